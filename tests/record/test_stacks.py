"""Where the time goes, of programs that do known work in known functions."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from command_line import vtax
from recording import obstacle
from vtax.core.recorder.intervals import ROWS, STACKS
from vtax.core.recorder.recorder import command
from vtax.record.stacks import Stack, Weights, by_line, load

pytestmark = pytest.mark.slow

SOURCE = """
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#define APART __attribute__((noinline))

APART unsigned spin(long times)
{
    unsigned number = 1;
    while (times--) number = number * 1664525u + 1013904223u;
    return number;
}
APART unsigned thrice(long times) { return spin(3 * times) + 1; }
APART unsigned once(long times) { return spin(times) + 2; }
APART void reads(long times)
{
    static char bytes[1 << 20];
    int zeros = open("/dev/zero", O_RDONLY);
    while (times--) if (read(zeros, bytes, sizeof bytes) < 0) exit(1);
}
int main(int argc, char **argv)
{
    volatile unsigned sum = 0;
    (void)argc;
    for (int i = 0; i < 100; i++) sum += thrice(atol(argv[1]) / 100) + once(atol(argv[1]) / 100);
    reads(atol(argv[2]));
    return 0;
}
"""
SPINS, READS = "150000000", "4000"
BUILDS = {
    "tables": ("-O2",),
    # Higher levels give functions that call nothing no frame, whatever the options say.
    "frame pointers": ("-O0", "-fno-asynchronous-unwind-tables"),
    "static": ("-O2", "-static"),
}


@pytest.fixture(autouse=True)
def can_record() -> None:
    if reason := obstacle():
        pytest.skip(f"this machine cannot record: {reason}")
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")


def built(program: Path, *options: str) -> Path:
    line = ["gcc", *options, "-x", "c", "-", "-o", str(program)]
    subprocess.run(line, input=SOURCE, text=True, check=True)
    return program


def recorded(run: Path, *words: str | Path) -> Weights:
    """The stacks of a recording, which must sum up to the lengths of its rows."""
    line = ["--stacks", "--every", "1ms", "--out", str(run), *(str(word) for word in words)]
    done = vtax("record", *line)
    assert done.returncode == 0, done.stderr
    found = load(run)
    rows = pl.read_parquet(run / ROWS)
    lengths = rows["length_ns"].sum()
    # Each row names its stack, which is of its mode and has its time.
    lines = dict(enumerate(by_line(run)))
    own = rows.group_by("stack").agg(pl.col("length_ns").sum())
    assert dict(own.iter_rows()) == {number: ns for number, (_, ns) in lines.items()}
    modes = rows.select("stack", pl.col("mode").fill_null("unknown")).unique().iter_rows()
    assert all(lines[number][0][0] == mode for number, mode in modes)
    told = json.loads((run / "record.json").read_text())["stacks"]
    assert sum(found.values()) == lengths == told["total"]
    assert (told["weight"], told["stacks"]) == ("ns", len(found))
    return found


def weight(found: Weights, *frames: str) -> float:
    """Nanoseconds of the stacks that have all these frames, one below the other."""

    def has(stack: Stack) -> bool:
        rest = iter(stack)
        return all(frame in rest for frame in frames)

    return sum(ns for stack, ns in found.items() if has(stack))


@pytest.mark.parametrize("options", BUILDS.values(), ids=BUILDS)
def test_shares_are_those_of_the_work(options: Sequence[str], tmp_path: Path) -> None:
    program = built(tmp_path / "program", *options)
    found = recorded(tmp_path / "run", "--", program, SPINS, READS)
    thrice, once = (
        weight(found, "program", "program`main", f"program`{name}", "program`spin")
        for name in ("thrice", "once")
    )
    # The same function with three times and once the work, in turns of a few milliseconds.
    assert 0.68 < thrice / (thrice + once) < 0.82
    spins = weight(found, "program`spin")
    assert thrice + once > 0.97 * spins > 0
    assert weight(found, "host user", "program`spin") > 0.9 * spins


def test_the_kernel_is_below_the_program_that_called_it(tmp_path: Path) -> None:
    program = built(tmp_path / "program", "-O2")
    found = recorded(tmp_path / "run", "--", program, "100", READS)
    below = weight(found, "host kernel", "program`main", "program`reads")
    assert below > 0.8 * weight(found, "host kernel", "program")
    # The kernel writes the zeros; its functions are named.
    kernel = [stack for stack in found if "program`reads" in stack and stack[0] == "host kernel"]
    assert any(stack[-1].startswith("[kernel]`") for stack in kernel)
    places = {stack.index("program`reads") for stack in kernel}
    first = {next(n for n, f in enumerate(s) if f.startswith("[kernel]")) for s in kernel}
    assert max(places) < min(first)


def test_the_whole_machine_has_stacks_too(tmp_path: Path) -> None:
    found = recorded(tmp_path / "run", "--for", "1s")
    assert len({stack[0] for stack in found}) >= 1
    assert any(frame.startswith("[kernel]`") for stack in found for frame in stack)


def test_the_difference_of_two_environments(tmp_path: Path) -> None:
    program = built(tmp_path / "program", "-O2", "-static")
    words = ("--", program, SPINS, "400")
    native = recorded(tmp_path / "native", "--in", "native", *words)
    uml = recorded(tmp_path / "uml", "--in", "uml", *words)
    assert weight(native, "program`spin") > 0.5 * sum(native.values())
    # Code of the guest's programs is in the memory of user-mode Linux, not in their files.
    assert weight(uml, "[unnamed file]") > 0.3 * sum(uml.values())
    page = tmp_path / "difference.html"
    done = vtax("export", str(tmp_path / "native"), str(tmp_path / "uml"), "--flame", str(page))
    assert done.returncode == 0, done.stderr
    lines = page.with_suffix(".folded").read_text().splitlines()
    sums = [sum(float(line.rsplit(" ", 2)[at]) for line in lines) for at in (1, 2)]
    assert sums == pytest.approx([1.0, 1.0], abs=1e-6)
    assert "program`spin" in page.read_text() and "[unnamed file]" in page.read_text()


def test_a_recording_without_stacks_is_named(tmp_path: Path) -> None:
    done = vtax("record", "--every", "10ms", "--out", str(tmp_path / "run"), "--", "true")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run" / STACKS).exists()
    done = vtax("export", str(tmp_path / "run"), "--flame", str(tmp_path / "x.html"))
    assert done.returncode == 2 and "has no stacks" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (tmp_path / "x.html").exists()


def test_without_rows_there_are_no_stacks(tmp_path: Path) -> None:
    line = command(["--stacks", "--by-ptrace", "--", "true"], tmp_path / "run")
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "--stacks" in done.stderr
