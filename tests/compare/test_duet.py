"""`--duet`: what may run at once, what is said of it, and a real pair from start to interrupt."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from command_line import SOURCE, command, one_line, vtax
from comparison_data import environment, kinds, only, record, sample
from process_watch import eventually, processes_naming
from vtax.compare import duet, page
from vtax.compare.analysis import compare
from vtax.compare.history.surroundings import Measured, require_same_command
from vtax.compare.request import ComparisonRequest
from vtax.compare.verb import CompareOptions, request_of
from vtax.core.errors import MisuseError
from vtax.core.formats.folder import load
from vtax.core.formats.model import ComparisonRecord, Sample
from vtax.core.runner.duet import swapped
from vtax.core.statistics.results import Comparison

TWO = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
NATIVE, UML = environment("native", "baseline"), environment("uml")


def asked(*specs: str, baseline: str | None = None, control: bool = True) -> ComparisonRequest:
    own = CompareOptions(
        workload=["true"], environments=list(specs), baseline=baseline, control=control
    )
    return request_of(own)


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duet, "allowed_cpus", lambda: [0, 2, 4, 6])


def test_baseline_and_one_environment_have_cpus_of_their_own(four_cpus: None) -> None:
    found = duet.paired(asked("uml:mem=512M"))
    labels = [each.label for each in found.compared_variants]
    assert labels == ["native:cpus=1,mem=512M", "uml:mem=512M"]
    assert found.places == ((4,), (6,))
    two = duet.paired(asked("native:cpus=2,mem=1G", baseline="native:cpus=2"))
    assert two.places == ((0, 2), (4, 6))


def test_one_alone_runs_beside_itself(four_cpus: None) -> None:
    found = duet.paired(asked("native:cpus=1", baseline="none"))
    assert [each.label for each in found.compared_variants] == ["native:cpus=1", "native:cpus=1#aa"]


@pytest.mark.parametrize(
    ("specs", "baseline", "said"),
    [
        (("uml", "qemu:accel=tcg"), None, "not 3: native:cpus=1,"),
        (("native:cpus=1",), None, "so they cannot swap them"),
        (("lab",), "native:cpus=1", "'lab' is no process of this machine"),
    ],
)
def test_what_cannot_run_at_once_is_refused_in_one_line(
    four_cpus: None, specs: Sequence[str], baseline: str | None, said: str
) -> None:
    with pytest.raises(MisuseError, match=said) as error:
        duet.paired(asked(*specs, baseline=baseline))
    assert "\n" not in error.value.message and error.value.remedy


def test_one_cpu_alone_is_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duet, "allowed_cpus", lambda: [0])
    with pytest.raises(MisuseError, match="1 CPU for each of two environments is more than the 1"):
        duet.paired(asked("uml:mem=512M"))


def test_one_alone_without_a_control_is_refused(four_cpus: None) -> None:
    with pytest.raises(MisuseError, match="not 1: native:cpus=1"):
        duet.paired(asked("native:cpus=1", baseline="none", control=False))


def pairs(times: Mapping[int, tuple[float, float]], later_s: float = 0.002) -> list[Sample]:
    """Samples of rounds in which both ran at once, by the times of native and of uml."""
    found = []
    for number, own in times.items():
        for at, (label, wall_s) in enumerate(zip(("native", "uml"), own, strict=True)):
            found.append(
                sample(
                    label,
                    number,
                    wall_s,
                    boot=0,
                    round=number,
                    position=2 * number + at,
                    wall_s=wall_s,
                    host_wall_s=wall_s,
                    cpus=str((at + swapped(1, number)) % 2),
                    beside_s=min(own) - later_s,
                    later_s=later_s if at else -later_s,
                )
            )
    return found


def analysed(samples: Sequence[Sample], **changes: object) -> tuple[ComparisonRecord, Comparison]:
    own = record(NATIVE, UML, duet=True, reboot="never", **changes)
    return own, compare(own, samples, "runs/x")


STEADY = {n: (1.0 + n / 90, (1.0 + n / 90) * (1.1 + n % 3 / 100)) for n in range(8)}


def test_that_both_ran_at_once_is_said_with_how_far() -> None:
    _, found = analysed(pairs(STEADY))
    flag = only(found, "duet")
    assert "not comparable with runs alone" in flag.message
    assert "began 2 ms apart and both ran for 90 %" in flag.message
    assert "duet-overlap" not in kinds(found)
    assert "duet" not in kinds(compare(record(NATIVE, UML), pairs(STEADY), "runs/x"))


def test_a_short_overlap_is_a_flag() -> None:
    _, found = analysed(pairs({n: (1.0 + n / 100, 3.0) for n in range(5)}))
    assert "only 34 % of the longer one's time" in only(found, "duet-overlap").message
    _, rare = analysed(pairs(STEADY | {3: (1.0, 5.0)}))
    assert "duet-overlap" not in kinds(rare)


def test_the_difference_of_cpus_is_not_that_of_environments() -> None:
    """CPU 1 is 30 % slower than CPU 0; uml takes 10 % more, with noise of 1 %."""
    slow = {"0": 1.0, "1": 1.3}

    def placed(each: Sample) -> Sample:
        return dataclasses.replace(each, value=each.value * slow[each.cpus or ""])

    _, plain = analysed(pairs(STEADY))
    _, moved = analysed(list(map(placed, pairs(STEADY))))
    for found in (plain, moved):
        (own,) = [r for r in found.results if r.environment == "uml"]
        assert own.percent_of_baseline == pytest.approx(100 / 1.11, rel=0.005)
        assert own.ci_low is not None and own.ci_high is not None
        assert own.ci_high - own.ci_low < 3


def test_the_time_to_detect_is_in_the_page_and_in_json() -> None:
    samples = pairs(STEADY)
    _, found = analysed(samples)
    one, two = found.detection
    assert (one.environment, one.metric, one.percent, two.percent) == ("uml", "wall_s", 1.0, 2.0)
    assert one.rounds is not None and two.rounds is not None and one.seconds is not None
    assert 2 < two.rounds < one.rounds
    # Both run at once, so a round takes as long as the longer one, 1.15 s in the mean.
    mean = sum(max(times) for times in STEADY.values()) / len(STEADY)
    assert one.seconds == pytest.approx(one.rounds * mean)
    in_turn = compare(record(NATIVE, UML, reboot="never"), samples, "runs/x").detection[0]
    both = sum(map(sum, STEADY.values())) / len(STEADY)
    assert in_turn.rounds is not None and in_turn.seconds == pytest.approx(in_turn.rounds * both)
    said = json.loads(json.dumps(page.to_json(found)))["detection"]
    assert said[0] == dataclasses.asdict(one)
    notes = [note.text for section in page.page(found, samples).sections for note in section.notes]
    begin = "A slowdown in wall_s would be seen with a power of 80 %: of 1 % after about "
    (shown,) = [text for text in notes if text.startswith(begin)]
    assert f"about {one.rounds} rounds ({one.low} to {one.high})" in shown


def test_starts_of_machines_are_part_of_the_time_to_detect() -> None:
    booting = UML.model_copy(update={"boot_s": (3.0, 5.0)})
    samples = [dataclasses.replace(each, boot=each.repetition) for each in pairs(STEADY)]
    never, each = (
        compare(record(NATIVE, booting, reboot=when), samples, "runs/x").detection[0]
        for when in ("never", "each")
    )
    assert never.seconds is not None and each.seconds is not None and each.rounds is not None
    assert each.seconds == pytest.approx(never.seconds + 4.0 * each.rounds)


def test_a_duet_is_not_held_against_runs_alone(four_cpus: None) -> None:
    own, _ = analysed(pairs(STEADY))
    alone = record(NATIVE, UML)
    for now, then in ((own, alone), (alone, own)):
        with pytest.raises(MisuseError, match="--duet"):
            require_same_command(Measured.by(now), Measured.by(then), "runs/old")
    request = duet.paired(asked("native:cpus=1", baseline="none"))
    assert Measured.asked(request).parameters["--duet"] is True


@TWO
def test_a_sweep_is_no_duet(tmp_path: Path) -> None:
    words = ("compare", "--duet", "--param", "n=1,2", "--", "sleep", "{n}")
    assert "for one comparison" in one_line(vtax(*words, cwd=tmp_path), 2)


@TWO
@pytest.mark.slow
def test_a_pair_from_spec_to_report_and_again(tmp_path: Path) -> None:
    spec = tmp_path / "pair.yaml"
    spec.write_text(
        "vtax: 1\nverb: compare\nduet: true\n"
        "in: ['native:cpus=1,pids=500']\nbaseline: native:cpus=1\nreps: 4\n"
        "command: [sh, -c, 'grep ^Cpus_allowed_list /proc/self/status; sleep 0.3']\n"
    )
    done = vtax("compare", "--spec", str(spec), "--out", "runs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    own, samples = load(folder)
    assert (
        own.duet
        and len(own.environments) == 2
        and "duet: true" in folder.joinpath("spec.yaml").read_text()
    )
    runs = [each for each in samples if each.metric == "wall_s"]
    assert len(runs) == 8
    for number in range(4):
        one, other = (each for each in runs if each.round == number)
        assert one.cpus != other.cpus and one.later_s == -(other.later_s or 0.0)
        # Two sleeps at once: a busy machine begins one late, but never both one after the other.
        assert one.beside_s == pytest.approx(other.beside_s) and (one.beside_s or 0) > 0
    for each in runs:
        work = (
            folder
            / "raw"
            / f"{each.environment}".replace(":", "-").replace("=", "-").replace(",", "-")
        )
        printed = (work / f"r{each.repetition:03d}" / "stdout").read_text()
        assert printed.split()[1] == each.cpus
    assert {each.cpus for each in runs if each.environment == "native:cpus=1"} == {
        str(cpu) for cpu in sorted(os.sched_getaffinity(0))[-2:]
    }
    again = vtax("report", str(folder), "--json", cwd=tmp_path)
    flags = {flag["kind"] for flag in json.loads(again.stdout)["flags"]}
    assert "duet" in flags


@TWO
@pytest.mark.slow
def test_ctrl_c_ends_both_and_keeps_finished_pairs(tmp_path: Path) -> None:
    name = f"0.2{os.getpid():07d}"
    argv = command("compare", "--duet", "--baseline", "none", "--in", "native:cpus=1")
    argv += ["--reps", "500", "--out", str(tmp_path), "--quiet", "--", "sleep", name]
    with subprocess.Popen(
        argv,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert eventually(
            lambda: any(path.stat().st_size > 1500 for path in tmp_path.glob("*/samples.jsonl"))
        )
        assert eventually(lambda: len(processes_naming(f"sleep {name}")) >= 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert not processes_naming(f"sleep {name}")
    (folder,) = tmp_path.iterdir()
    own, samples = load(folder)
    assert own.state == "interrupted"
    by_round: dict[int | None, int] = {}
    for each in samples:
        if each.metric == "wall_s":
            by_round[each.round] = by_round.get(each.round, 0) + 1
    # A pair is kept whole or, where the signal came between its two samples, its first one.
    assert by_round and sum(count == 2 for count in by_round.values()) >= len(by_round) - 1
