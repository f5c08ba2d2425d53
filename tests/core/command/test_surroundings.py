"""The surroundings of the command: encodings, streams that nobody reads, folders and limits."""

from __future__ import annotations

import ast
import codecs
import io
import json
import os
import shutil
import subprocess
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import SOURCE, command, one_line, run
from vtax.core.command import streams
from vtax.core.formats.folder import load

ENCODINGS = ("ascii", "latin-1", "iso8859-15", "cp1252", "koi8-r", "euc-jp", "utf-8")
QUICK = ("compare", "--in", "native", "--baseline", "none", "--no-control", "--no-warm-up")
QUICK += ("--reps", "2")
TRUE = ("--", "true")
ONLY_READ = ("printed.py", "metric_units.py")
"""Files with signs that programs print."""
OTHER_USER = ("setpriv", "--reuid=61234", "--regid=61234", "--clear-groups")
OTHER_USER += ("--inh-caps", "+dac_override", "--ambient-caps", "+dac_override")
"""A user whose processes are counted, and who may read and write as root does."""


def signs() -> set[str]:
    """Characters in the source's texts that are neither letters nor ASCII."""
    found: set[str] = set()
    for file in SOURCE.rglob("*.py"):
        if file.name in ONLY_READ:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {each for each in node.value if not each.isascii()}
    return {each for each in found if unicodedata.category(each)[0] in "SPZN"}


def test_every_sign_that_vtax_prints_has_an_ascii_form() -> None:
    codecs.register_error(streams.READABLE, streams._readable)
    left = {each for each in signs() if "\\" in each.encode("ascii", streams.READABLE).decode()}
    assert left == set(), sorted(map(unicodedata.name, left))


@given(st.text(), st.sampled_from(ENCODINGS))
def test_any_text_goes_into_any_encoding(text: str, encoding: str) -> None:
    codecs.register_error(streams.READABLE, streams._readable)
    whole = io.BytesIO()
    writer = io.TextIOWrapper(whole, encoding=encoding, errors=streams.READABLE, newline="")
    writer.write(text)
    writer.flush()
    assert whole.getvalue().decode(encoding) is not None
    fits = "".join(each for each in text if _fits(each, encoding))
    assert fits.encode(encoding, streams.READABLE) == fits.encode(encoding)


def _fits(letter: str, encoding: str) -> bool:
    try:
        letter.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


@pytest.fixture(scope="session")
def latin_locale(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """A locale of ISO-8859-1, which this machine need not have."""
    folder = tmp_path_factory.mktemp("locales")
    if shutil.which("localedef") is None or not Path("/usr/share/i18n/charmaps").is_dir():
        pytest.skip("apt-get install locales")
    line = ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", str(folder / "de_DE.ISO-8859-1")]
    subprocess.run(line, check=False, capture_output=True)
    if not any(folder.iterdir()):
        pytest.skip("localedef makes no locale here")
    return {"LOCPATH": str(folder), "LC_ALL": "de_DE.ISO-8859-1", "LANG": "de_DE.ISO-8859-1"}


PLAIN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize(
    ("variables", "encoding"),
    [
        ({"PYTHONIOENCODING": "latin-1"}, "latin-1"),
        ({"PYTHONIOENCODING": "ascii:strict"}, "ascii"),
        ({"PYTHONIOENCODING": "iso8859-15"}, "iso8859-15"),
        (PLAIN_C, "ascii"),
        (PLAIN_C | {"PYTHONIOENCODING": "cp1252"}, "cp1252"),
        ("latin", "latin-1"),
    ],
)
def test_tables_and_errors_in_old_encodings(
    tmp_path: Path,
    environment: dict[str, str],
    request: pytest.FixtureRequest,
    variables: Mapping[str, str] | str,
    encoding: str,
) -> None:
    if isinstance(variables, str):
        variables = request.getfixturevalue("latin_locale")
    out = tmp_path / "läufe"
    done = subprocess.run(
        command(*QUICK, "--out", str(out), "--metric", "n:lower=([0-9]+)", "--", "echo", "5 µ"),
        env=environment | dict(variables),
        capture_output=True,
        timeout=120,
        check=False,
    )
    said = done.stderr.decode(encoding)
    assert done.returncode == 0 and "Traceback" not in said, said
    table = done.stdout.decode(encoding)
    assert ("läufe" if encoding != "ascii" else "l\\xe4ufe") in table
    assert "report: " in table and "\\u" not in table
    (folder,) = out.iterdir()
    assert load(folder)[0].workload_parameters["argv"] == ["echo", "5 µ"]
    wrong = subprocess.run(
        command("compare", "--in", "größe", *TRUE),
        env=environment | dict(variables),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert wrong.returncode == 2 and wrong.stderr.decode(encoding).count("\n") == 1


def gone() -> int:
    """The writer's end of a pipe whose reader has gone away."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("which", [(1,), (2,), (1, 2)])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "gone"])
def test_nobody_reads_what_is_printed(
    tmp_path: Path, environment: dict[str, str], which: tuple[int, ...], closed: bool
) -> None:
    line = command(*QUICK, "--out", str(tmp_path / "runs"), *TRUE)
    if closed:
        line = ["sh", "-c", f'exec "$@" {" ".join(f"{each}>&-" for each in which)}', "sh", *line]
    streams_of = dict.fromkeys((1, 2), subprocess.PIPE)
    if not closed:
        streams_of |= {each: gone() for each in which}
    done = subprocess.run(
        line, env=environment, stdout=streams_of[1], stderr=streams_of[2], timeout=120, check=False
    )
    for each in streams_of.values():
        if each != subprocess.PIPE:
            os.close(each)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in (done.stderr or b"")
    (folder,) = (tmp_path / "runs").iterdir()
    record, samples = load(folder)
    assert record.state == "complete" and samples
    assert (folder / "report.html").exists() and (folder / "samples.parquet").exists()


def test_a_reader_of_progress_that_goes_away_meanwhile(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    argv = command(*QUICK[:-1], "40", "--out", str(tmp_path / "runs"), "--json", *TRUE)
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stderr
        assert b"native" in process.stderr.readline()
        process.stderr.close()
        assert json.loads(process.stdout.read())["results"]
        assert process.wait(120) == 0


def test_a_working_folder_that_was_removed(tmp_path: Path, environment: dict[str, str]) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    for verb in (QUICK + TRUE, ("report", "x"), ("paging", "simulate", "x")):
        done = subprocess.run(
            ["sh", "-c", script, "sh", *command(*verb)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert "working folder has been removed; cd to" in one_line(done, 1)


@pytest.mark.parametrize("limit", [200_000, 400_000, 700_000, 1_000_000, 2_000_000, 4_000_000])
def test_little_memory_is_one_line_or_enough(
    tmp_path: Path, environment: dict[str, str], limit: int
) -> None:
    line = command(*QUICK, "--quiet", "--out", str(tmp_path), *TRUE)
    done = subprocess.run(
        ["sh", "-c", f'ulimit -v {limit} && exec "$@"', "sh", *line],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode == 0:
        assert limit >= 1_000_000 and any(tmp_path.glob("*/samples.parquet"))
        return
    assert done.stderr.count("\n") == 1
    assert f"limited to {limit >> 10} MiB here (ulimit -v)" in one_line(done, 1)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("most", [10, 12, 14, 20])
def test_few_open_files_are_one_line_or_enough(
    tmp_path: Path, environment: dict[str, str], most: int
) -> None:
    line = command(*QUICK, "--quiet", "--out", str(tmp_path), *TRUE)
    done = subprocess.run(
        ["sh", "-c", f'ulimit -n {most} && exec "$@"', "sh", *line],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        assert done.stderr.count("\n") == 1, done.stderr
        one_line(done, 1)


@pytest.mark.parametrize("most", [1, 4, 9, 12])
def test_no_more_threads_is_one_line(
    tmp_path: Path, environment: dict[str, str], most: int
) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can be a user without processes")
    line = command(*QUICK, "--out", str(tmp_path), *TRUE)
    done = subprocess.run(
        [*OTHER_USER, "prlimit", f"--nproc={most}", *line],
        env=environment | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stderr.count("\n") == 1
    assert "no more threads can be started here; raise" in one_line(done, 1)


def test_help_needs_none_of_it(tmp_path: Path, environment: dict[str, str]) -> None:
    shown = run(environment, "compare", "--help")
    for before in ("ulimit -v 400000", f"mkdir {tmp_path}/x && cd {tmp_path}/x && rmdir ../x"):
        done = subprocess.run(
            ["sh", "-c", f'{before} && exec "$@"', "sh", *command("compare", "--help")],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, shown.stdout), done.stderr
