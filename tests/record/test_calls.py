"""The counts of system calls and of kinds of page faults, of programs that make known numbers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from process_watch import ended
from recording import described, obstacle
from vtax.core.recorder.options import RecordOptions, Target
from vtax.core.recorder.recorder import Recorder, command

pytestmark = pytest.mark.slow

TIMEOUT_S = 120.0
MANY = 100
FAULTS = "faults.minor"
PYTHON = (sys.executable, "-B", "-s", "-S", "-c")
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0"}

REPEATED = """
import os, sys, threading, time
zero, null = os.open("/dev/zero", os.O_RDONLY), os.open("/dev/null", os.O_WRONLY)
block = bytes(300)

def fork():
    child = os.fork()
    if not child:
        os.stat("/")
        os._exit(0)
    os.waitpid(child, 0)

def thread():
    started = threading.Thread(target=os.getppid)
    started.start()
    started.join()

code = compile(sys.argv[1], "repeated", "exec")
for _ in range(int(sys.argv[2])):
    exec(code)
"""

ALONE: Mapping[str, Mapping[str, int]] = {
    "os.getppid()": {"null": 1},
    "os.stat('/')": {"stat": 1},
    "os.fstat(zero)": {"fstat": 1},
    "os.read(zero, 1000)": {"read": 1, "read_bytes": 1000},
    "os.write(null, block)": {"write": 1, "write_bytes": 300},
    "os.close(os.open('/', os.O_RDONLY))": {"open": 1, "close": 1},
    "os.close(os.open('made', os.O_CREAT))": {"create": 1, "close": 1},
    "os.mkdir('made'); os.rmdir('made')": {"mkdir": 2},
    "os.getsid(0)": {"other": 1},
    "time.monotonic()": {"clock": 1},
    "time.process_time()": {"clock_call": 1},
}
"""Statements of Python, with all the calls that they make."""

AMONG_OTHERS: Mapping[str, Mapping[str, int]] = {
    "fork()": {"fork": 1, "thread": 0, "wait": 1, "stat": 1, "exec": 0},
    "thread()": {"thread": 1, "fork": 0},
}
"""Statements that make other calls too."""


EBPF = RecordOptions.of(events="calls", every="10ms", **{"without-vdso": ""})
PTRACE = RecordOptions.of(**{"by-ptrace": ""})


@pytest.fixture(params=[EBPF, PTRACE], ids=["ebpf", "ptrace"])
def means(request: pytest.FixtureRequest) -> RecordOptions:
    options: RecordOptions = request.param
    if options is EBPF:
        can_record()
    return options


def can_record() -> None:
    if reason := obstacle():
        pytest.skip(f"this machine cannot record: {reason}")


def totals(run: Path) -> Mapping[str, int]:
    """All that was counted, by column."""
    return {each["name"]: each["sum"] + each["after_last_row"] for each in described(run)}


def counted(
    statement: str, times: int, run: Path, options: RecordOptions = EBPF
) -> Mapping[str, int]:
    """The calls of a program that repeats a statement."""
    program = Target(command=(*PYTHON, REPEATED, statement, str(times)))
    subprocess.run(
        command([*options.arguments(), *program.arguments()], run),
        env=ENVIRONMENT,
        cwd=run.parent,
        stdout=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=True,
    )
    return {name.removeprefix("calls."): count for name, count in totals(run).items()}


def difference(statement: str, folder: Path, means: RecordOptions) -> Mapping[str, int]:
    """What MANY more repetitions add to each column."""
    few = counted(statement, MANY, folder / "few", means)
    many = counted(statement, 2 * MANY, folder / "many", means)
    # Python lists the current folder, in which the first run's files are by the second.
    return {name: many[name] - few[name] for name in few if name not in ("getdents_bytes", FAULTS)}


@pytest.mark.parametrize("statement", ALONE)
def test_calls_are_counted_exactly_and_in_no_other_column(
    statement: str, tmp_path: Path, means: RecordOptions
) -> None:
    found = difference(statement, tmp_path, means)
    expected = {name: MANY * calls for name, calls in ALONE[statement].items()}
    together = sum(n for name, n in expected.items() if not name.endswith("_bytes"))
    assert {name: n for name, n in found.items() if n} == {**expected, "all": together}


@pytest.mark.parametrize("statement", AMONG_OTHERS)
def test_calls_of_children_and_threads_are_counted(
    statement: str, tmp_path: Path, means: RecordOptions
) -> None:
    found = difference(statement, tmp_path, means)
    for name, calls in AMONG_OTHERS[statement].items():
        assert found[name] == MANY * calls, name


def test_clock_readings_are_absent_where_programs_keep_their_vdso(tmp_path: Path) -> None:
    can_record()
    usual = RecordOptions.of(events="calls", every="10ms")
    found = counted("time.monotonic()", MANY, tmp_path / "run", usual)
    assert "clock" not in found and found["clock_call"] < MANY


def test_calls_without_a_class_are_named(tmp_path: Path) -> None:
    can_record()
    counted("os.getsid(0)", MANY, tmp_path / "run")
    record = json.loads((tmp_path / "run/record.json").read_text())
    (found,) = [each for each in record["other_calls"] if each["name"] == "getsid"]
    assert found["count"] == MANY
    assert found["number"] > 0
    assert record["other_calls"] == sorted(
        record["other_calls"], key=lambda each: each["count"], reverse=True
    )


TOUCHING = """
import mmap, sys

def area(*file, **how):
    made = mmap.mmap(*(file or [-1]), size, **how)
    made.madvise(mmap.MADV_NOHUGEPAGE)
    return made

private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS}
for line in sys.stdin:
    kind, pages, path = line.split()
    size = int(pages) * mmap.PAGESIZE
    places = range(0, size, mmap.PAGESIZE)
    with open(path, "r+b") as file:
        if kind == "copied":
            touched = area(file.fileno(), flags=mmap.MAP_PRIVATE)
        else:
            touched = area(**({} if kind == "shared" else private))
    if kind == "read-first":
        for at in places:
            touched[at]
    for at in places:
        touched[at] = 1
    touched.close()
    print(flush=True)
"""

KINDS: Mapping[str, Mapping[str, int]] = {
    "private": {"anonymous": 1, "file": 0, "cow": 0},
    "shared": {"anonymous": 0, "file": 1, "cow": 0},
    "read-first": {"anonymous": 1, "file": 0, "cow": 1},
    "copied": {"anonymous": 0, "file": 0, "cow": 1},
}
"""Memory that the program touches, with the faults of each of its pages."""
PAGES = 500


@pytest.mark.parametrize("kind", KINDS)
def test_page_faults_are_counted_exactly_by_their_kind(kind: str, tmp_path: Path) -> None:
    can_record()
    file = tmp_path / "pages"
    file.write_bytes(bytes(2 * PAGES * os.sysconf("SC_PAGE_SIZE")))
    with ended(
        subprocess.Popen(
            (*PYTHON, TOUCHING),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=ENVIRONMENT,
        )
    ) as program:
        assert program.stdin and program.stdout

        def touch(pages: int) -> None:
            assert program.stdin and program.stdout
            program.stdin.write(f"{kind} {pages} {file}\n".encode())
            program.stdin.flush()
            assert program.stdout.readline() == b"\n"

        # What it touches for the first time of all is touched here.
        for pages in 2 * (PAGES, 2 * PAGES):
            touch(pages)
        found = []
        for pages in (PAGES, 2 * PAGES):
            run = tmp_path / str(pages)
            options = RecordOptions.of(events="faults", every="10ms").arguments()
            with Recorder(
                [*options, *Target(processes=[program.pid]).arguments()], run
            ) as recorder:
                recorder.ready()
                touch(pages)
                recorder.finish()
            found.append(totals(run))
    few, many = found
    if "faults.anonymous" not in few:
        pytest.skip("this machine does not tell the kinds of page faults")
    for name, faults in KINDS[kind].items():
        column = f"faults.{name}"
        assert many[column] - few[column] == PAGES * faults, column
    assert many["faults.user"] == sum(many[f"faults.{name}"] for name in KINDS[kind])
