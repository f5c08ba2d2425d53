"""The workload hpcc: its problem, its parser, and what it refuses to believe."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tested_machines
from vtax.core.errors import MisuseError, VtaxError
from vtax.workloads import hpcc_metrics, parse
from vtax.workloads.base import MachineShape, Metric
from vtax.workloads.hpcc import Hpcc
from vtax.workloads.hpcc_input import PRESETS, grid, input_file, memory_needed, require_memory
from vtax.workloads.hpcc_output import parse_summary, random_access_times, read_output

DATA = Path(__file__).parent / "data" / "hpcc"
NP1 = (DATA / "np1.txt").read_text()
NP2 = (DATA / "np2.txt").read_text()
SIZES = (DATA / "sizes.txt").read_text()

GIB = 1 << 30
OUTCOME = replace(tested_machines.OUTCOME, wall_s=1.5, user_s=1.0, system_s=0.25)


class Folder:
    """A working folder in memory."""

    def __init__(self, **files: str) -> None:
        self.files = {"stdout": "", "stderr": ""} | files

    def read_bytes(self, name: str, limit_bytes: int = 16 << 20) -> bytes:
        return self.read_text(name, limit_bytes).encode()

    def read_text(self, name: str, limit_bytes: int = 16 << 20) -> str:
        if name not in self.files:
            raise VtaxError(f"no result file '{name}'")
        return self.files[name]


def workload(*sizes: int) -> Hpcc:
    return Hpcc(sizes=sizes or (400,))


def metrics(text: str, *sizes: int, stdout: str = "", stderr: str = "") -> dict[str, Metric]:
    folder = Folder(stdout=stdout, stderr=stderr, **{"hpccoutf.txt": text})
    found = workload(*sizes).metrics(OUTCOME, folder)
    assert len({metric.name for metric in found}) == len(found)
    return {metric.name: metric for metric in found}


def summary_value(text: str, name: str) -> float:
    match = re.search(rf"^{name}=(.*)$", text, re.MULTILINE)
    assert match
    return float(match[1])


def changed(text: str, name: str, value: str) -> str:
    new, count = re.subn(rf"(?m)^{name}=.*$", f"{name}={value}", text)
    assert count == 1
    return new


def test_one_process_gives_every_kernel_and_no_messages() -> None:
    found = metrics(NP1)
    for name in (
        *("HPL_Tflops", "HPL_time", "SingleDGEMM_Gflops", "StarDGEMM_Gflops", "PTRANS_GBs"),
        *("MPIRandomAccess_GUPs", "MPIRandomAccess_LCG_GUPs", "StarSTREAM_Triad"),
        *("SingleSTREAM_Copy", "MPIFFT_Gflops", "StarFFT_Gflops", "SingleRandomAccess_LCG_GUPs"),
    ):
        assert found[name].value == summary_value(NP1, name) > 0
    assert not [name for name in found if "PingPong" in name or "Ring" in name]
    assert found["wall_s"].value == 1.5
    assert found["cpu_s"].value == 1.25


def test_two_processes_give_messages_too() -> None:
    found = metrics(NP2)
    latency = found["MaxPingPongLatency_usec"]
    assert (latency.unit, latency.better) == ("\N{MICRO SIGN}s", "lower")
    assert latency.value == summary_value(NP2, "MaxPingPongLatency_usec")
    assert found["RandomlyOrderedRingBandwidth_GBytes"].better == "higher"


def test_what_is_found_is_what_was_expected() -> None:
    for text, processes in ((NP1, 1), (NP2, 2)):
        expected = replace(workload(), processes=processes).expected_metrics(MachineShape(1, GIB))
        found = [(m.name, m.unit, m.better) for m in metrics(text).values()]
        assert found == list(expected)


def test_several_sizes_are_reported_one_by_one() -> None:
    found = metrics(SIZES, 200, 400, 300)
    rates = [found[f"HPL_N{size}_Gflops"].value for size in (200, 400, 300)]
    assert max(rates) == pytest.approx(found["HPL_Tflops"].value * 1000, rel=1e-3)
    assert len(set(rates)) == 3
    assert "HPL_time" not in found


def test_every_value_of_the_summary_is_there() -> None:
    summary = parse_summary(NP1)
    body = NP1.split("Begin of Summary section.\n")[1].split("End of Summary")[0]
    assert len(summary) == body.count("=") > 120
    assert summary["HPL_N"] == 400
    assert summary["LANG"] == "C"
    assert isinstance(summary["HPL_eps"], float)
    assert summary["MaxPingPongLatency_usec"] == -1


def test_a_grid_larger_than_the_processes_is_refused_although_hpcc_succeeds() -> None:
    text = (DATA / "grid_too_large.txt").read_text()
    stderr = (DATA / "grid_too_large.stderr").read_text()
    assert "Success=1" in text
    with pytest.raises(VtaxError, match="Need at least 4 processes"):
        metrics(text, 400, stderr=stderr)
    with pytest.raises(VtaxError, match="Need at least 4 processes"):
        metrics(text, 400, stdout=stderr)
    # This is found even if the printed text is lost: HPCC solved a default problem of its own.
    with pytest.raises(VtaxError, match="N=2560, not N=400"):
        metrics(text, 400)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (r"(\|\|Ax-b\|\|_oo.*)= +\S+ \.* PASSED", r"\1= 812.5 ...... FAILED", r"HPL .*812\.5"),
        (r"WALL(.*)PASSED(.*)", r"WALL\1FAILED\2", "PTRANS .*FAILED"),
        (r"Found 0 errors(.*)\(passed\)", r"Found 9999 errors\1(failed)", "RandomAccess .*9999"),
        (
            r"(Begin of StarDGEMM section\.\nScaled residual: )\S+\nNode\(s\) with error 0",
            r"\g<1>77.5\nNode(s) with error 2",
            r"StarDGEMM .*77\.5",
        ),
        (r"Solution Validates.*", "Failed Validation on array b[], oh", "StarSTREAM .*array b"),
    ],
)
def test_a_failed_check_in_the_text_names_the_test(old: str, new: str, named: str) -> None:
    text, count = re.subn(old, new, NP1, count=1)
    assert count == 1
    with pytest.raises(VtaxError, match=named):
        metrics(text)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("Success", "0", "Success=0"),
        ("HPL_RnormI", "1e-3", "HPL failed.* residual"),
        ("HPL_RnormI", "nan", "HPL failed"),
        ("HPL_Tflops", "-1", "HPL did not run"),
        ("HPL_Tflops", "nan", "HPL_Tflops=nan"),
        ("HPL_Tflops", "0,0452608", "decimal comma"),
        ("HPL_N", "500", "N=500, not N=400"),
        ("PTRANS_residual", "1e-2", "PTRANS failed.* residual"),
        ("MPIRandomAccess_ErrorsFraction", "0.011", "MPIRandomAccess failed.*1.1"),
        ("MPIRandomAccess_LCG_ErrorsFraction", "nan", "MPIRandomAccess_LCG failed"),
        ("MPIFFT_maxErr", "1e-5", "MPIFFT failed.* residual"),
        ("MPIFFT_N", "1", "MPIFFT failed"),
        ("PTRANS_GBs", "-2", "PTRANS_GBs"),
        ("StarSTREAM_Copy", "inf", "StarSTREAM_Copy"),
    ],
)
def test_a_bad_summary_value_is_refused(name: str, value: str, named: str) -> None:
    with pytest.raises(VtaxError, match=named):
        metrics(changed(NP1, name, value))


def test_errors_that_hpcc_allows_pass() -> None:
    text = changed(NP1, "MPIRandomAccess_ErrorsFraction", "0.0099")
    assert metrics(text)["MPIRandomAccess_GUPs"].value > 0


@pytest.mark.parametrize("value", ["-1", "0"])
def test_what_was_not_measured_is_absent(value: str) -> None:
    assert "PTRANS_GBs" not in metrics(changed(NP1, "PTRANS_GBs", value))


def test_a_summary_of_each_process_alone_is_refused() -> None:
    with pytest.raises(VtaxError, match="different MPI"):
        metrics(NP1 + NP1)


def test_a_file_cut_short_says_so() -> None:
    with pytest.raises(VtaxError, match="cut short: no end of summary"):
        metrics(NP1[: NP1.index("PTRANS_GBs=")])
    with pytest.raises(VtaxError, match="no summary section"):
        metrics(NP1[:5000])
    with pytest.raises(VtaxError, match="empty"):
        metrics("")


GOOD = metrics(NP1)


@given(st.integers(0, len(NP1)))
@example(NP1.index("End of Summary section.") + len("End of Summary section."))
@settings(max_examples=300, deadline=None)
def test_truncated_anywhere_it_is_right_or_refused(length: int) -> None:
    try:
        found = metrics(NP1[:length])
    except VtaxError:
        assert length < NP1.index("End of Summary section.") + len("End of Summary section.")
    else:
        assert found == GOOD


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_garbage_in_the_file_is_never_another_exception(data: st.DataObject) -> None:
    raw = bytearray(NP2.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(raw) - 1))
        raw[start : start + data.draw(st.integers(0, 6))] = data.draw(st.binary(max_size=6))
    check_survives(raw.decode("utf-8", errors="replace"))


@given(st.lists(st.sampled_from(NP2.splitlines()) | st.text(max_size=30), max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_mixture_of_lines_is_never_another_exception(lines: list[str]) -> None:
    check_survives("\n".join(["Begin of Summary section.", *lines, "End of Summary section."]))


@given(
    st.sampled_from(sorted(parse_summary(NP2))),
    st.text(alphabet="0123456789.,-+eExnaif ", max_size=25) | st.text(max_size=10),
)
@example("HPL_N", "9" * 5000)
@example("MPIFFT_N", "1e999")
@example("PTRANS_n", "\u0661\u0662")
@settings(max_examples=300, deadline=None)
def test_any_value_is_never_another_exception(name: str, value: str) -> None:
    pattern = re.compile(rf"^{name}=.*$", re.MULTILINE)
    check_survives(pattern.sub(lambda _: f"{name}={value}", NP2))


def check_survives(text: str) -> None:
    try:
        found = metrics(text)
    except VtaxError as error:
        assert "\n" not in str(error)
    else:
        assert all(math.isfinite(metric.value) and metric.value > 0 for metric in found.values())


def test_exit_codes_signals_and_time_outs_are_failures() -> None:
    folder = Folder(stderr="mpirun: all lost\n", **{"hpccoutf.txt": NP1})
    for outcome, said in (
        (replace(OUTCOME, exit_code=1), "exit code 1: mpirun: all lost"),
        (replace(OUTCOME, exit_code=None, signal=9), "killed by SIGKILL"),
        (replace(OUTCOME, exit_code=None, signal=9, timed_out=True), "time limit after 1.5 s"),
    ):
        with pytest.raises(VtaxError, match=said):
            workload().metrics(outcome, folder)


@pytest.mark.parametrize(
    ("processes", "shape"), [(1, (1, 1)), (2, (1, 2)), (6, (2, 3)), (7, (1, 7)), (16, (4, 4))]
)
def test_the_grid_is_the_squarest(processes: int, shape: tuple[int, int]) -> None:
    assert grid(processes) == shape


def test_the_input_file_has_each_value_on_the_line_that_hpcc_reads() -> None:
    lines = input_file((200, 400), 6, 64).decode().splitlines()
    assert len(lines) == 36
    assert lines[4].split()[0] == "2"
    assert lines[5].startswith("200 400 ")
    assert lines[7].split()[0] == "64"
    assert (lines[10].split()[0], lines[11].split()[0]) == ("2", "3")
    assert lines[12].split()[0] == "16.0"
    assert lines[32].split()[0] == lines[34].split()[0] == "0"


def test_the_real_runs_had_the_problem_of_our_input() -> None:
    read = read_output(SIZES, "", (200, 400, 300))
    assert read.summary["HPL_NB"] == 80
    assert (read.summary["HPL_nprow"], read.summary["HPL_npcol"]) == grid(2)


def test_presets_and_options() -> None:
    assert parse(["hpcc"]).parameters()["preset"] == "small"
    tiny = parse(["hpcc", "--preset", "tiny", "-np", "2", "--nb", "32"])
    assert tiny.label() == "hpcc tiny"
    assert tiny.parameters() == {
        "preset": "tiny",
        "sizes": [400],
        "np": 2,
        "nb": 32,
        "working_set_bytes": 8 * 400**2,
    }
    given_sizes = parse(["hpcc", "--sizes", "1000,4000"])
    assert given_sizes.label() == "hpcc N=1000,4000"
    assert PRESETS["paper"][0] == 1000 and 4000 in PRESETS["paper"]


@pytest.mark.parametrize(
    "words",
    [
        ("--preset", "huge"),
        ("--sizes", "1000,"),
        ("--sizes", "1000,1000"),
        ("--sizes", "50"),
        ("--sizes", ",".join(str(100 + n) for n in range(21))),
        ("--preset", "tiny", "--sizes", "1000"),
        ("-np", "0"),
        ("-np", "\u0661"),
        ("--pre", "tiny"),
        ("extra",),
    ],
)
def test_wrong_options_are_misuse_in_one_line(words: tuple[str, ...]) -> None:
    with pytest.raises(MisuseError, match=r"^hpcc: .*vtax compare -- hpcc --help") as caught:
        parse(["hpcc", *words])
    assert "\n" not in str(caught.value)


def test_help_has_an_example_and_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(["hpcc", "--help"])
    assert caught.value.code == 0
    assert "example:\n  vtax compare" in capsys.readouterr().out


def test_as_many_processes_as_cpus() -> None:
    argv = Hpcc((400,)).command(MachineShape(3, GIB)).argv
    assert argv[argv.index("-np") + 1] == "3"
    argv = Hpcc((400,), processes=2).command(MachineShape(3, GIB)).argv
    assert argv[argv.index("-np") + 1] == "2"


def test_a_problem_that_does_not_fit_names_the_largest_that_does() -> None:
    with pytest.raises(
        MisuseError, match=r"N=20000 .*1 GiB.*the largest N that fits is (\d+)"
    ) as e:
        Hpcc((1000, 20000)).command(MachineShape(1, GIB))
    match = re.search(r"fits is (\d+)", str(e.value))
    assert match
    Hpcc((int(match[1]),)).command(MachineShape(1, GIB))
    with pytest.raises(MisuseError):
        Hpcc((int(match[1]) + 1,)).command(MachineShape(1, GIB))


@given(st.integers(100, 50_000), st.integers(1, 64), st.integers(1 << 24, 1 << 38))
def test_memory_is_refused_exactly_when_it_does_not_fit(size: int, ranks: int, memory: int) -> None:
    fits = memory_needed(size, ranks) <= int(0.8 * memory)
    try:
        require_memory((size,), ranks, MachineShape(ranks, memory))
    except MisuseError as error:
        assert not fits
        found = re.search(r"fits is (\d+)", str(error))
        assert found is None or int(found[1]) < size
    else:
        assert fits


def test_every_preset_fits_a_sensible_machine() -> None:
    for name in ("tiny", "small"):
        require_memory(PRESETS[name], 1, MachineShape(1, 256 << 20))
    require_memory(PRESETS["paper"], 2, MachineShape(2, 2 * GIB))


def test_both_clocks_of_random_access_are_read() -> None:
    found = random_access_times(NP1)
    assert found.table_words == 1 << 17
    assert found.wall_s == pytest.approx(summary_value(NP1, "MPIRandomAccess_time"), abs=1e-6)
    assert found.cpu_s == pytest.approx(found.wall_s, rel=0.5)
    for text in ("", NP1.replace("CPU time used = ", "CPU time used = x")):
        with pytest.raises(VtaxError, match="does not say how long"):
            random_access_times(text)


def test_how_long_each_kernel_ran() -> None:
    """HPL's and RandomAccess's own times; for the other kernels their work over their rate."""
    found = {
        metric.name: metric for metric in hpcc_metrics.metrics(read_output(NP1, "", (400,)), (400,))
    }
    assert all(metric.ran_s and 0 < metric.ran_s < 60 for name, metric in found.items()
               if name != "PTRANS_GBs")  # fmt: skip
    assert found["PTRANS_GBs"].ran_s is None
    assert found["HPL_Tflops"].ran_s == summary_value(NP1, "HPL_time")
    updates = summary_value(NP1, "MPIRandomAccess_ExeUpdates")
    rate = summary_value(NP1, "MPIRandomAccess_GUPs") * 1e9
    assert found["MPIRandomAccess_GUPs"].ran_s == pytest.approx(updates / rate, rel=0.01)
    single = found["SingleRandomAccess_GUPs"]
    assert single.ran_s == pytest.approx(4 * summary_value(NP1, "RandomAccess_N") / 1e9
                                         / single.value)  # fmt: skip
