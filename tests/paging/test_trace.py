"""`vtax paging trace`: what a program of known accesses comes to, and how a trace ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars
import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import SOURCE, command, one_line, vtax
from vtax import paging
from vtax.core.errors import VtaxError
from vtax.environments import packages, traced_qemu, unpacked_qemu
from vtrace import ENTRY, FAULT, FETCH, PRESENT, WRITTEN, Block, blocks

ROUNDS = 30_000
PAGES = 40
DATA = 0x2000_0000
KNOWN = f"""
.globl _start
_start: mov ${DATA:#x}, %rbx
        mov ${ROUNDS}, %rcx
1:      mov (%rbx), %rax
        mov %rax, 8(%rbx)
        mov %rax, 16(%rbx)
        dec %rcx
        jnz 1b
        mov ${PAGES}, %rcx
2:      add $4096, %rbx
        movb $1, (%rbx)
        dec %rcx
        jnz 2b
        # One access that crosses into the next page is two references.
        mov {DATA + 4096 * 2 - 4:#x}, %rax
        mov $60, %eax
        xor %edi, %edi
        syscall
.bss
        .balign 4096
        .skip {4096 * (PAGES + 1)}
"""


def test_help(snapshot: SnapshotAssertion) -> None:
    done = vtax("paging", "trace", "--help")
    assert done.returncode == 0 and done.stdout == snapshot


def test_a_misuse_is_one_line(tmp_path: Path) -> None:
    line = ("paging", "trace", "--out", str(tmp_path / "t"))
    assert one_line(vtax(*line), 2) == (
        "vtax: no workload; name one after --, e.g. -- gzip -kc FILE"
    )
    assert one_line(vtax("paging", "trace", "--", "true"), 2) == (
        "vtax: no file for the trace; use --out FILE, or --online to keep none"
    )
    for sample, every in (("1K", "1M"), ("2M", "1M"), ("1M", "2T")):
        sampled = (*line, "--sample", sample, "--every", every, "--", "true")
        assert "does not fit; a sample is 100K instructions" in one_line(vtax(*sampled), 2)
    online = ("paging", "trace", "--online")
    assert "unknown machine" in one_line(vtax(*online, "--machine", "abacus", "--", "true"), 2)
    assert "at most 2G of memory" in one_line(vtax(*line, "--mem", "3G", "--", "true"), 2)
    assert "it is not on the PATH" in one_line(vtax(*line, "--", "no-such"), 1)
    assert list(tmp_path.iterdir()) == []


def test_a_qemu_that_cannot_be_had_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(*_: Any, **__: Any) -> Path:
        raise VtaxError("packages of the backports cannot be fetched: there is no apt-get")

    monkeypatch.setattr(unpacked_qemu.shutil, "which", lambda _: None)
    monkeypatch.setattr(packages, "fetch", fetch)
    with pytest.raises(VtaxError, match=r"needs QEMU 9\.2 or newer: .* no apt-get") as caught:
        traced_qemu.find()
    assert caught.value.remedy == "install a newer qemu-system-x86"


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of known accesses."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc to make the program of known accesses")
    folder = tmp_path_factory.mktemp("known")
    (folder / "known.s").write_text(KNOWN)
    made = ["gcc", "-nostdlib", "-static", "-no-pie", f"-Wl,-Tbss={DATA:#x}", "known.s"]
    subprocess.run([*made, "-o", "known"], cwd=folder, check=True)
    return folder / "known"


def needs_qemu() -> None:
    try:
        traced_qemu.find()
    except VtaxError as error:
        pytest.skip(str(error))


def traced(out: Path, *line: str) -> dict[str, Any]:
    done = vtax("paging", "trace", "--out", str(out), "--json", *line)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def ours(block: Block) -> list[tuple[int, bool]]:
    end = DATA + 4096 * (PAGES + 1)
    return [each for each in block.references if DATA <= each[0] < end]


@pytest.mark.slow
@pytest.mark.parametrize("options", [("--no-slowdown",), ("--user-only",)])
def test_every_access_of_a_known_program_is_there_once(
    tmp_path: Path, known: Path, options: tuple[str, ...]
) -> None:
    needs_qemu()
    out = tmp_path / "known.vtrace"
    line = (*options, "--share", str(known.parent), "--", str(known))
    found = traced(out, *line)
    seen: Counter[tuple[int, bool]] = Counter()
    faults: Counter[int] = Counter()
    totals = Counter[str]()
    executed: set[int] = set()
    for block in blocks(out):
        within = ours(block)
        seen.update(within)
        totals["references"] += len(block.references)
        totals["instructions"] += block.instructions
        totals["kernel"] += sum(address >> 63 for address, _ in block.references)
        if len(within) == len(block.references) == 4096:
            # There are five instructions for three references, and the kernel's where it came
            # between.
            assert 3 * block.instructions >= 5 * 4096 - 15
            totals["whole"] += abs(3 * block.instructions - 5 * 4096) <= 15
        for operation in block.operations:
            if operation[0] == FAULT and DATA <= operation[1] < DATA + 4096 * (PAGES + 1):
                faults[operation[1] >> 12] += 1
            if operation[0] == ENTRY and operation[3] & PRESENT and operation[3] & WRITTEN:
                totals["mapped"] += 1
            if operation[0] == FETCH:
                executed.add(operation[1] >> 12)
    pages = {(DATA + 4096 * page, True): 1 for page in range(1, PAGES + 1)}
    crossing = {(DATA + 4096 * 2 - 4, False): 1, (DATA + 4096 * 2, False): 1}
    rounds = {(DATA, False): ROUNDS, (DATA + 8, True): ROUNDS, (DATA + 16, True): ROUNDS}
    assert seen == rounds | pages | crossing
    # The first page is read first, as a page of zeros, and copied when it is written.
    assert faults == {(DATA >> 12) + page: 1 if page else 2 for page in range(PAGES + 1)}
    assert totals["mapped"] >= PAGES + 2
    assert totals["whole"] >= ROUNDS * 3 // 4096 // 2
    assert (found["references"], found["instructions"]) == (
        totals["references"],
        totals["instructions"],
    )
    assert found["bytes_per_reference"] == pytest.approx(
        out.stat().st_size / totals["references"], abs=1e-4
    )
    assert (totals["kernel"] == 0) == ("--user-only" in options)
    # The linker puts the code of such a program there.
    assert 0x40_1000 >> 12 in executed
    assert any(page >> 51 for page in executed) == ("--user-only" not in options)
    assert (found["slowdown"] is None) == ("--no-slowdown" in options)
    # The model translates every reference by the tables of the trace, or fails.
    done = vtax("paging", "simulate", str(out), "--json", "--mode", "native,shadow,nested")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_warm_up_is_a_phase_of_its_own(tmp_path: Path, known: Path) -> None:
    needs_qemu()
    out = tmp_path / "twice.vtrace"
    traced(out, "--warm-up", "--no-slowdown", "--share", str(known.parent), "--", str(known))
    phase, phases, seen = 0, [0], [Counter[tuple[int, bool]](), Counter[tuple[int, bool]]()]
    for block in blocks(out):
        seen[phase].update(ours(block))
        if block.begins is not None:
            phase = block.begins
            phases.append(phase)
    assert phases == [0, 1]
    assert seen[0] == seen[1]
    assert seen[1][(DATA + 8, True)] == ROUNDS
    windows = paging.simulate(out, modes=["shadow"], window="10K").windows
    assert windows["phase"].unique().sort().to_list() == ["0", "1"]


@pytest.mark.slow
def test_a_simulation_while_the_program_runs_keeps_windows_and_no_trace(
    tmp_path: Path, known: Path
) -> None:
    needs_qemu()
    out = tmp_path / "windows"
    line = ("--online", "--no-slowdown", "--mode", "nested,shadow", "--window", "100K")
    found = traced(out, *line, "--share", str(known.parent), "--", str(known))
    assert (found["file"], found["bytes_per_reference"]) == (None, None)
    assert found["simulation"]["workload"] == known.name
    modes = found["simulation"]["modes"]
    assert [mode["mode"] for mode in modes] == ["nested", "shadow"]
    for mode in modes:
        assert (mode["references"], mode["instructions"]) == (
            found["references"],
            found["instructions"],
        )
    # Each page of the program is filled into the shadow tables at its first touch, or before.
    assert modes[1]["exits"] > PAGES
    windows = polars.read_parquet(out / "windows.parquet")
    assert windows.filter(mode="shadow")["instructions"].sum() == found["instructions"]
    assert len(windows) >= 2 * (found["instructions"] // 200_000)


@pytest.mark.slow
def test_a_sampled_trace_has_every_operation_and_the_references_of_some_intervals(
    tmp_path: Path, known: Path
) -> None:
    needs_qemu()
    sampled = tmp_path / "sampled.vtrace"
    line = ("--no-slowdown", "--share", str(known.parent), "--", str(known))
    found = traced(sampled, "--sample", "100K", "--every", "500K", *line)
    ends, work, within = [], [], Block()
    faults: Counter[int] = Counter()
    for block in blocks(sampled):
        within.instructions += block.instructions
        within.references += block.references
        for operation in block.operations:
            if operation[0] == FAULT and DATA <= operation[1] < DATA + 4096 * (PAGES + 1):
                faults[operation[1] >> 12] += 1
        if block.ends:
            # A block vector counts each instruction of the interval once, and iterations.
            work.append(sum(block.ends.blocks))
            assert work[-1] >= within.instructions > 0
            # Until the translated code is changed, a few references come late or are missing.
            assert len(within.references) < 100 or block.ends.recorded
            ends.append((block.ends.recorded, within))
            within = Block()
    assert not within.references and not within.instructions
    # An interval ends with a block; QEMU leaves a repeated string instruction after 65,536
    # iterations.
    assert all(50_000 <= each < 50_500 + 65_536 for each in work[:-1])
    # The program itself has no such instruction.
    assert sum(each < 50_500 for each in work) > 5 * ROUNDS // 50_000
    recorded = [interval for on, interval in ends if on]
    assert (len(ends), len(recorded)) == (found["intervals"], found["recorded_intervals"])
    assert 0 < len(recorded) <= 2 * (len(ends) // 10 + 1)
    assert found["references"] == sum(len(interval.references) for _, interval in ends)
    # The faults of the program are all there, wherever they happened.
    assert faults == {(DATA >> 12) + page: 1 if page else 2 for page in range(PAGES + 1)}
    total = sum(interval.instructions for _, interval in ends)
    assert found["instructions"] == total > 5 * ROUNDS


@pytest.mark.slow
@pytest.mark.soak
def test_an_estimate_holds_against_a_whole_trace(tmp_path: Path, soak: bool) -> None:
    needs_qemu()
    rounds, sample, every = (19, "2M", "20M") if soak else (1, "2M", "8M")
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc to make the program")
    program = tmp_path / "rounds"
    source = Path(__file__).with_name("rounds.c")
    subprocess.run(["gcc", "-O1", "-static", "-o", program, source], check=True)
    whole, sampled = tmp_path / "whole.vtrace", tmp_path / "sampled.vtrace"
    line = ("--no-slowdown", "--share", str(tmp_path), "--", str(program), str(rounds))
    complete = traced(whole, *line)
    found = traced(sampled, "--sample", sample, "--every", every, *line)
    assert found["instructions"] > 10**8 * rounds
    assert complete["intervals"] is None and complete["instructions"] > 10**8 * rounds
    assert found["recorded_intervals"] < found["intervals"] / 3
    known, estimated = (
        {mode["mode"]: mode for mode in json.loads(done.stdout)["modes"]}
        for done in (vtax("paging", "simulate", str(file), "--json") for file in (whole, sampled))
    )
    # How many timer exits a guest has depends on the host's load: too many for a run this short.
    for mode in known if soak else ("native",):
        truth, estimate = known[mode], estimated[mode]
        print(f"{mode}: {truth}\nestimated: {estimate}")
        assert truth["relative_error_percent"] is None
        # No two runs have the same length. An estimate of 20 is outside the 95 % interval; twice
        # as far off is one of 10,000.
        cycles, known_cycles = (each["cycles"] / each["instructions"] for each in (estimate, truth))
        off = 100 * abs(cycles / known_cycles - 1)
        assert off <= 2 * estimate["relative_error_percent"] < 40, (off, truth, estimate)


SAMPLED = ("--sample", "200K", "--every", "1M")
# A whole trace of a busy loop would be long.
WHOLE_AND_SAMPLED = pytest.mark.parametrize(
    ("sample", "step"), [((), "sleep 0.5"), (SAMPLED, ":")], ids=["whole", "sampled"]
)


@pytest.mark.slow
@WHOLE_AND_SAMPLED
def test_a_command_that_is_ended_after_its_time_is_simulated_so_far(
    tmp_path: Path, sample: tuple[str, ...], step: str
) -> None:
    needs_qemu()
    line = ("paging", "trace", "--online", "--no-slowdown", "--quiet", "--timeout", "1s", *sample)
    done = vtax(*line, "--", "sh", "-c", f"while :; do {step}; done", cwd=tmp_path)
    assert done.returncode == 128 + signal.SIGKILL or done.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in done.stderr
    assert "shadow" in done.stdout
    assert ("±" in done.stdout) == bool(sample)


@pytest.mark.slow
@WHOLE_AND_SAMPLED
def test_ctrl_c_keeps_what_was_traced_and_leaves_nothing_else(
    tmp_path: Path, sample: tuple[str, ...], step: str
) -> None:
    needs_qemu()
    out = tmp_path / "cut.vtrace"
    line = command("paging", "trace", "--out", str(out), "--json", *sample, "--", "sh", "-c")
    started = subprocess.Popen(
        [*line, f"echo begun; while :; do {step}; done"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert started.stderr is not None
    for text in started.stderr:
        if text.strip() == "begun":
            break
    time.sleep(1)
    started.send_signal(signal.SIGINT)
    output, errors = started.communicate(timeout=120)
    assert started.returncode == 130, errors
    found = json.loads(output)
    assert found["slowdown"] is None and "Ctrl-C" in found["slowdown_reason"]
    assert sum(len(block.references) for block in blocks(out)) == found["references"] > 10_000
    assert list(tmp_path.iterdir()) == [out]
    if sample:
        assert 4 <= found["recorded_intervals"] < found["intervals"] / 3
        done = vtax("paging", "simulate", str(out), "--json", "--mode", "nested")
        assert 0 < json.loads(done.stdout)["modes"][0]["relative_error_percent"] < 100
