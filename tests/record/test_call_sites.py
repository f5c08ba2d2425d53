"""Where programs make their calls, of programs that make known numbers in known functions."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from command_line import vtax
from recording import described, obstacle
from vtax.core.recorder.intervals import CALL_SITES
from vtax.core.recorder.options import RecordOptions, Target
from vtax.core.recorder.recorder import command

pytestmark = pytest.mark.slow

TIMEOUT_S = 120.0
SOURCE = """
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#define APART __attribute__((noinline))

APART void often(int times) { while (times--) getppid(); __asm__ volatile(""); }
APART void seldom(int times)
{
    struct stat found;
    while (times--) { getppid(); stat("/", &found); }
    __asm__ volatile("");
}
APART int deep(int depth, int times)
{
    if (depth) return deep(depth - 1, times) + 1;
    often(times);
    return 0;
}
int main(int argc, char **argv)
{
    (void)argc;
    often(atoi(argv[1]));
    seldom(atoi(argv[2]));
    return deep(100, atoi(argv[3])) != 100;
}
"""
POINTERS = ("-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables")
BUILDS = {
    "tables": (),
    "frame pointers": POINTERS,
    "static": ("-static",),
}


@pytest.fixture(autouse=True)
def can_record() -> None:
    if reason := obstacle():
        pytest.skip(f"this machine cannot record: {reason}")
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")


def built(program: Path, *options: str) -> Path:
    line = ["gcc", "-O1", *options, "-x", "c", "-", "-o", str(program)]
    subprocess.run(line, input=SOURCE, text=True, check=True)
    return program


def stacks(run: Path, *argv: str | Path) -> Sequence[tuple[list[str], int]]:
    """The frames of each stack and its count; all calls have one, which is asserted."""
    options = RecordOptions({"events": "calls", "every": "1s", "call-sites": ""}).arguments()
    target = Target(command=[str(each) for each in argv]).arguments()
    subprocess.run(command([*options, *target], run), timeout=TIMEOUT_S, check=True)
    lines = [line.rpartition(" ") for line in (run / CALL_SITES).read_text().splitlines()]
    found = [(stack.split(";"), int(count)) for stack, _, count in lines]
    by_class: Counter[str] = Counter()
    for (kind, *_), count in found:
        by_class[f"calls.{kind}"] += count
    columns = {each["name"]: each for each in described(run) if each["unit"] == "count"}
    counts = {name: each["sum"] + each["after_last_row"] for name, each in columns.items()}
    assert by_class.total() == counts.pop("calls.all")
    assert by_class == {name: count for name, count in counts.items() if count}
    told = json.loads((run / "record.json").read_text())["call_sites"]
    assert (told["calls"], told["lost"]) == (by_class.total(), 0)
    return found


def calls_below(found: Sequence[tuple[list[str], int]], kind: str, function: str) -> int:
    """How many calls of a class a function of the program made through the C library."""
    return sum(n for stack, n in found if stack[0] == kind and stack[-2].endswith(function))


@pytest.mark.parametrize("options", BUILDS.values(), ids=BUILDS)
def test_each_call_is_counted_where_it_is_made(options: Sequence[str], tmp_path: Path) -> None:
    program = built(tmp_path / "program", *options)
    found = stacks(tmp_path / "run", program, "700", "300", "0")
    assert calls_below(found, "null", "program`often") == 700
    assert calls_below(found, "null", "program`seldom") == 300
    assert calls_below(found, "stat", "program`seldom") == 300
    (stack,) = [stack for stack, _ in found if stack[0] == "stat" and "program`seldom" in stack]
    assert stack[1] == "program" and "program`main" in stack


def test_processes_that_ended_before_are_counted(tmp_path: Path) -> None:
    program = built(tmp_path / "program", *POINTERS)
    script = f"for i in $(seq 50); do {program} 7 3 0; done; sleep 0.2"
    found = stacks(tmp_path / "run", "sh", "-c", script)
    assert calls_below(found, "null", "program`often") == 50 * 7
    assert calls_below(found, "stat", "program`seldom") == 50 * 3


def test_a_program_without_names_has_offsets(tmp_path: Path) -> None:
    found = stacks(tmp_path / "run", built(tmp_path / "bare", "-s"), "700", "300", "0")
    places = {stack[-2]: n for stack, n in found if stack[0] == "null" and n > 10}
    assert sorted(places.values()) == [300, 700]
    assert all(place.startswith("bare+0x") for place in places)


def test_names_of_files_cannot_break_a_line(tmp_path: Path) -> None:
    program = built(tmp_path / "a;b`c\n1 2")
    found = stacks(tmp_path / "run", program, "700", "0", "0")
    assert calls_below(found, "null", "a_b_c_1 2`often") == 700


def test_deep_stacks_say_that_they_are_cut(tmp_path: Path) -> None:
    found = stacks(tmp_path / "run", built(tmp_path / "program"), "0", "0", "500")
    (stack,) = [stack for stack, n in found if n == 500]
    assert stack[2] == "[deeper]" and stack[-3:-1] == ["program`deep", "program`often"]


def test_only_a_command_has_call_sites(tmp_path: Path) -> None:
    line = command(["--call-sites", "--events", "calls", "--for", "1s"], tmp_path / "run")
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2 and "COMMAND" in done.stderr


@pytest.mark.parametrize("events", ["calls.all", "default", "calls.read_bytes,faults"])
def test_call_sites_without_a_class_of_calls_are_refused(tmp_path: Path, events: str) -> None:
    line = command(["--call-sites", "--events", events, "--", "true"], tmp_path / "run")
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 2 and "--events calls" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "where", [("--pid", "1"), ("--vm", "all"), ("--in", "native", "--", "true")]
)
def test_call_sites_elsewhere_are_refused(tmp_path: Path, where: Sequence[str]) -> None:
    line = ["--call-sites", "--events", "calls", "--out", str(tmp_path / "run"), *where]
    done = vtax("record", *line)
    assert done.returncode == 2 and "--call-sites" in done.stderr
    assert not (tmp_path / "run").exists()


def test_the_verb_keeps_the_stacks(tmp_path: Path) -> None:
    line = ["--call-sites", "--events", "calls", "--out", str(tmp_path / "run")]
    done = vtax("record", *line, "--", built(tmp_path / "program"), "700", "0", "0")
    assert done.returncode == 0, done.stderr
    assert "program`often" in (tmp_path / "run" / CALL_SITES).read_text()
