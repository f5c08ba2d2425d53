"""Counters of applications: the C header and the Python context manager, recorded natively."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from command_line import SOURCE
from vtax.core import binaries
from vtax.counters import counters, include_folder

PROGRAM = r"""
#include "vtax_counters.h"
#include <pthread.h>
#include <sys/wait.h>

vtax_counter *in_another_file(void);

static void *work(void *counter)
{
	int i;
	for (i = 0; i < 100000; i++)
		vtax_count((vtax_counter *)counter, 1);
	return NULL;
}

int main(void)
{
	pthread_t threads[4];
	vtax_counter *steps = vtax_counter_register("steps");
	char name[70];
	int i;
	for (i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, steps);
	for (i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	if (fork() == 0) {
		work(steps);
		_exit(0);
	}
	wait(NULL);
	if (in_another_file() != steps)
		return 2;
	vtax_count(vtax_counter_register("late"), 7);
	/* None of these has a place; adding must do no harm. */
	vtax_count(vtax_counter_register("No Name"), 1);
	vtax_count(vtax_counter_register("a..b"), 1);
	vtax_count(vtax_counter_register(NULL), 1);
	for (i = 0; i < 80; i++) {
		sprintf(name, "n%d", i);
		vtax_count(vtax_counter_register(name), 1);
	}
	memset(name, 'x', 53);
	name[53] = 0;
	vtax_count(vtax_counter_register(name), 1);
	usleep(50000);
	return 0;
}
"""
OTHER = """
#include "vtax_counters.h"
vtax_counter *in_another_file(void);
vtax_counter *in_another_file(void) { return vtax_counter_register("steps"); }
"""


def compiled(tmp_path: Path, compiler: str = "cc", standard: str = "c99", end: str = "c") -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is missing")
    sources = [tmp_path / f"{name}.{end}" for name in ("program", "other")]
    for source, text in zip(sources, (PROGRAM, OTHER), strict=True):
        source.write_text(text)
    flags = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-std={standard}", "-O2", "-pthread"]
    program = tmp_path / "program"
    files = [str(source) for source in sources]
    line = [compiler, *flags, f"-I{include_folder()}", *files, "-o", str(program)]
    subprocess.run(line, check=True, timeout=120)
    return program


def record(folder: Path, out: Path, app: str, command: list[str]) -> dict[str, Any]:
    """Record a command; return what was counted, by column."""
    program = [str(binaries.find("vtax-host")), "record", "--every", "1ms"]
    program += ["--events", "sched", "--app", app, "--out", str(out), "--", *command]
    environment = os.environ | {"VTAX_APP_DIR": str(folder)}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=120)
    if any(reason in done.stderr for reason in ("lacks CAP_", "no type information", "locked")):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    rows = pl.read_parquet(out / "intervals.parquet")
    columns = json.loads((out / "events.json").read_text())["columns"]
    found = {column["name"]: column for column in columns if column["source"] == "app"}
    for name, column in found.items():
        assert column["sum"] == rows[name].sum()
    return {name: column["sum"] + column["after_last_row"] for name, column in found.items()}


@pytest.mark.parametrize(
    ("compiler", "standard", "end"),
    [("cc", "c99", "c"), ("cc", "gnu17", "c"), ("c++", "c++11", "cc")],
)
def test_a_program_in_c_is_counted(tmp_path: Path, compiler: str, standard: str, end: str) -> None:
    program = compiled(tmp_path, compiler, standard, end)
    folder, out = tmp_path / "app", tmp_path / "run"
    counted = record(folder, out, "steps,late,n0,n60,n61,absent", [str(program)])
    # There are 61 places left besides steps and late.
    expected = {"steps": 500_000, "late": 7, "n0": 1, "n60": 1, "n61": 0, "absent": 0}
    assert counted == {f"app.{name}": value for name, value in expected.items()}
    assert list(folder.iterdir()) == []


def test_without_the_folder_a_program_runs_and_leaves_nothing(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    environment = {"VTAX_APP_DIR": str(tmp_path / "absent"), "PATH": os.environ["PATH"]}
    done = subprocess.run([str(program)], env=environment, timeout=300)
    assert done.returncode == 0 and not (tmp_path / "absent").exists()


PYTHON = """
import sys
from vtax.counters import counters
with counters("requests", "bytes.sent") as count:
    for _ in range(1000):
        count.add("requests")
    count.add("bytes.sent", 1 << 40)
assert not {"polars", "numpy", "typer"} & set(sys.modules)
"""


def test_a_program_in_python_is_counted(tmp_path: Path) -> None:
    folder, out = tmp_path / "app", tmp_path / "run"
    command = ["env", f"PYTHONPATH={SOURCE}", sys.executable, "-c", PYTHON]
    counted = record(folder, out, "requests,app.bytes.sent", command)
    assert counted == {"app.requests": 1000, "app.bytes.sent": 1 << 40}
    assert list(folder.iterdir()) == []


def test_those_that_run_already_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    monkeypatch.setenv("VTAX_APP_DIR", str(folder))
    with counters("served") as count:
        count.add("served", 5)
        assert count.value("served") == 5
        counted = record(folder, tmp_path / "run", "all", ["sleep", "0.1"])
        # What was counted before the recording is not in the rows.
        assert counted == {"app.served": 0}
        assert len(list(folder.iterdir())) == 1


def test_threads_lose_no_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VTAX_APP_DIR", str(tmp_path))
    with counters("a", "b") as count:

        def work() -> None:
            for _ in range(5000):
                count.add("b")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (page,) = tmp_path.glob("*.page")
        content = page.read_bytes()
        assert int.from_bytes(content[64 * 2 + 56 : 64 * 3], "little") == 20_000
        if os.fork() == 0:
            count.add("b")
            os._exit(0)
        os.wait()
        assert page.read_bytes() == content
        with pytest.raises(KeyError):
            count.add("c")
        with pytest.raises(ValueError, match="grows"):
            count.add("a", -1)


@pytest.mark.parametrize("name", ["", "A", "a b", "a.", "a..b", "x" * 53])
def test_names_must_fit(name: str) -> None:
    with pytest.raises(ValueError, match="not a name"), counters(name):
        pass
    with counters("x" * 52, "a.b_0"):
        pass
