"""The command as the shell sees it: signals at any time, bytes that are not text, full disks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from command_line import SOURCE
from vtax.core.formats.folder import load

VTAX = [sys.executable, "-m", "vtax.main"]
QUICK = ("compare", "-q", "--reps", "1", "--no-warm-up", "--no-control")


def started(words: Sequence[str | bytes], folder: Path, **environment: Any) -> Any:
    return subprocess.Popen(
        [*VTAX, *words],
        env=os.environ | {"PYTHONPATH": str(SOURCE), "NO_COLOR": "1"} | environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def vtax(words: Sequence[str | bytes], folder: Path, **environment: Any) -> tuple[int, str]:
    """Exit code and standard error."""
    process = started(words, folder, **environment)
    _, err = process.communicate(timeout=120)
    return process.returncode, err.decode(errors="replace")


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    assert vtax((*QUICK, "--", "true"), folder) == (0, "")
    return next((folder / "runs").iterdir())


@pytest.mark.parametrize("verb", ["compare", "record", "report"])
def test_a_signal_in_the_first_half_second_is_no_traceback(
    tmp_path: Path, finished_run: Path, verb: str
) -> None:
    words = {
        "compare": ("compare", "--reps", "9", "--", "sleep", "1003"),
        "record": ("record", "--", "sleep", "1003"),
        "report": ("report", str(finished_run)),
    }[verb]
    # A report may be done by then; a recording that has begun ends as on request.
    allowed = {"compare": (130,), "record": (130, 0), "report": (130, 0)}[verb]
    for step in range(6):
        process = started(words, tmp_path)
        # Python's own start is not vtax's: the handlers are not there yet.
        while process.poll() is None and not _has_handlers(process.pid):
            time.sleep(0.001)
        time.sleep(step * 0.1)
        process.send_signal(signal.SIGTERM if step % 2 else signal.SIGINT)
        _, err = process.communicate(timeout=120)
        said = err.decode()
        assert "Traceback" not in said and "Exception" not in said, (step, said)
        assert process.returncode in allowed, (step, said)


def _has_handlers(pid: int) -> bool:
    """Whether vtax's handlers are there; the last is that of SIGHUP, for which Python has none."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = int(status.partition("SigCgt:")[2].split()[0], 16)
    return bool(caught >> (signal.SIGHUP - 1) & 1)


def test_an_argument_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    code, said = vtax((*QUICK, "--", "echo", b"a\xffb"), tmp_path)
    assert code == 2
    assert said.startswith("vtax: argument 9 is not UTF-8: b'a\\xffb'") and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"a\xffb")
    folder.mkdir()
    code, said = vtax((*QUICK, "--", "true"), folder)
    assert (code, said.count("\n")) == (2, 1) and "a\\xffb' is not UTF-8" in said
    assert list(folder.iterdir()) == []


def test_a_variable_that_is_not_utf8_is_recorded_or_refused(tmp_path: Path) -> None:
    bad = {b"OMP_X": b"a\xffb"}
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in bad.items()}
    assert vtax((*QUICK, "--", "true"), tmp_path, **environment) == (0, "")
    (run,) = (tmp_path / "runs").iterdir()
    assert load(run)[0].scrubbed_variables["OMP_X"] == "a\\xffb"
    code, said = vtax((*QUICK, "--keep-env", "--", "true"), tmp_path, **environment)
    assert (code, said.count("\n")) == (2, 1) and "variable OMP_X is not UTF-8" in said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "small", str(place)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("limit", ["nr_inodes=2", "nr_inodes=4", "size=4k", "size=24k", "size=1m"])
def test_a_full_disk_is_one_line(small_disk: Path, tmp_path: Path, limit: str) -> None:
    remount = ["mount", "-o", f"remount,{limit}", str(small_disk)]
    subprocess.run(remount, check=True)
    words = ("compare", "-q", "--reps", "3", "--no-control", "--out", str(small_disk))
    code, said = vtax((*words, "--", "true"), tmp_path)
    assert code == 1
    assert "Traceback" not in said and said.startswith("vtax: ") and said.count("\n") == 1, said
    assert "No space left on device" in said


def test_a_full_output_is_one_line(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*VTAX, *QUICK, "--json", "--", "true"],
            env=os.environ | {"PYTHONPATH": str(SOURCE)},
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode == 1
    assert done.stderr == "vtax: output: No space left on device; free space there\n"


def test_help_and_completion_load_nothing_slow() -> None:
    """Every command pays for these modules before its own imports."""
    slow = {"dask", "numpy", "plotly", "polars", "pydantic", "rich", "scipy", "vtax._native"}
    code = f"import sys, vtax.verbs; print(sorted({slow!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
