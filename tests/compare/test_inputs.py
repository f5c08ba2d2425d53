"""What a command gets of the user's surroundings: input, variables, home, programs, devices."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import SOURCE, command, one_line, vtax
from recording import obstacle
from tested_machines import CONTAINED, checked
from vtax.core.command.standard_input import LIMIT_BYTES, SILENT
from vtax.workloads.variables import OWN, PREFIXES, SESSION, is_secret, user_variables

GUESTS = ("uml:mem=256M", "qemu:accel=tcg,mem=512M", *CONTAINED)
QUICK = ("--reps", "2", "--no-control", "--no-warm-up", "--baseline", "none", "--quiet", "--json")


def compare(
    spec: str,
    *argv: str,
    cwd: Path,
    metrics: tuple[str, ...] = (),
    stdin: bytes | None = None,
    environment: Mapping[str, str] | None = None,
    options: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    named = [word for each in metrics for word in ("--metric", each)]
    done = subprocess.run(
        command("compare", "--in", spec, *QUICK, *options, *named, "--", *argv),
        env={**os.environ, "PYTHONPATH": str(SOURCE), **(environment or {})},
        cwd=cwd,
        input=stdin,
        capture_output=True,
        timeout=300,
        check=False,
    )
    texts = (done.stdout.decode(), done.stderr.decode())
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


def values(done: subprocess.CompletedProcess[str], metric: str) -> set[float]:
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["results"]
    return {row[key] for row in rows if row["metric"] == metric for key in ("best", "median")}


def flags(done: subprocess.CompletedProcess[str]) -> list[Any]:
    return list(json.loads(done.stdout)["flags"])


def folder_of(spec: str, tmp_path: Path) -> Path:
    checked(spec)
    return tmp_path


@pytest.mark.parametrize("spec", ["native", *GUESTS])
def test_every_repetition_reads_the_standard_input_from_its_beginning(
    spec: str, tmp_path: Path
) -> None:
    text = b"".join(b"%d\n" % number for number in range(70_000))
    script = "cksum; wc -c <&0 | sed s/^/rest=/"
    done = compare(
        spec,
        *("sh", "-c", script),
        cwd=folder_of(spec, tmp_path),
        metrics=("bytes:B:higher=^[0-9]+ ([0-9]+)$", "rest:B:higher=rest=([0-9]+)"),
        stdin=text,
    )
    assert values(done, "bytes") == {len(text)}
    assert values(done, "rest") == {0}
    assert [*tmp_path.glob("runs/*/raw/*/*/stdin"), *tmp_path.glob("runs/*/raw/*/*/home")] == []


def test_a_file_is_read_from_where_it_stands_and_one_too_large_is_refused(tmp_path: Path) -> None:
    lines = tmp_path / "in.txt"
    lines.write_text("a\nb\nc\n")
    argv = command("compare", *QUICK, "--metric", "n:count:higher=([0-9]+)", "--", "wc", "-l")
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    with lines.open("rb", buffering=0) as file:
        file.read(2)
        done = subprocess.run(
            argv, env=environment, cwd=tmp_path, stdin=file, capture_output=True, text=True
        )
        assert values(done, "n") == {2}
    with lines.open("r+b") as file:
        file.truncate(LIMIT_BYTES + 1)
        done = subprocess.run(
            argv, env=environment, cwd=tmp_path, stdin=file, capture_output=True, text=True
        )
    assert "standard input holds more than 64 MiB" in one_line(done, 2)


@pytest.mark.parametrize("blocks", [True, False])
def test_a_pipe_that_stays_open_is_told_and_then_read_to_its_end(
    blocks: bool, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, blocks)
    os.write(writer, b"a\nb\n")
    with lines_of_a(reader, tmp_path) as started:
        os.close(reader)
        assert started.stderr is not None and started.stderr.readline() == READING
        os.write(writer, b"c\n")
        os.close(writer)
        out, err = started.communicate()
    done = subprocess.CompletedProcess(started.args, started.returncode, out, err)
    assert values(done, "n") == {3}


def test_a_pipe_into_which_nobody_writes_is_told_and_given_up(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with lines_of_a(reader, tmp_path) as started:
        out, err = started.communicate()
    os.close(reader)
    os.close(writer)
    done = subprocess.CompletedProcess(started.args, started.returncode, out, err)
    assert values(done, "n") == {0}
    assert err.splitlines(keepends=True)[0] == READING and "the command gets none" in err
    (run,) = tmp_path.glob("runs/*")
    assert json.loads((run / "run.json").read_text())["inputs"][-1] == SILENT


READING = "note: reading standard input to its end (< /dev/null gives the command none)\n"


def lines_of_a(stdin: int, cwd: Path) -> subprocess.Popen[str]:
    metric = ("--metric", "n:count:higher=n=([0-9]+)")
    return subprocess.Popen(
        command("compare", *QUICK, *metric, "--", "sh", "-c", "echo n=$(wc -l)"),
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        cwd=cwd,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("spec", ["native", *GUESTS])
def test_own_variables_arrive_and_what_does_not_is_named(spec: str, tmp_path: Path) -> None:
    given = {"SIZE": "1000000", "MY_TOKEN": "x", "OPENBLAS_NUM_THREADS": "1"}
    script = "echo n=${SIZE:-10}; echo lost=${MY_TOKEN:-4}${OPENBLAS_NUM_THREADS:-2}"
    done = compare(
        spec,
        *("sh", "-c", script),
        cwd=folder_of(spec, tmp_path),
        metrics=("n:count:higher=n=([0-9]+)", "lost:count:higher=lost=([0-9]+)"),
        environment=given,
    )
    assert values(done, "n") == {1_000_000}
    assert values(done, "lost") == {42}
    (run,) = tmp_path.glob("runs/*")
    # Whole names: this machine may have variables whose names contain one of these.
    said = set(re.findall(r"\w+", " ".join(json.loads((run / "run.json").read_text())["inputs"])))
    assert {"MY_TOKEN", "OPENBLAS_NUM_THREADS"} <= said and "SIZE" not in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "spec"),
    [
        (("record", "--in", "native", "--out", "run"), "native"),
        (("record", "--in", "uml:mem=256M", "--out", "run"), "uml:mem=256M"),
        (("lab", "--quiet"), "lab"),
        (("paging", "trace", "--no-slowdown", "--out", "it.vtrace"), "lab"),
    ],
)
def test_other_verbs_give_a_command_the_same(
    words: tuple[str, ...], spec: str, tmp_path: Path
) -> None:
    checked(spec)
    if words[0] == "record" and (missing := obstacle()):
        pytest.skip(missing)
    given = {"SIZE": "1000000", "MY_TOKEN": "x", "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        command(*words, "--", "sh", "-c", "echo n=$SIZE=${MY_TOKEN:-4}=$(wc -l)"),
        env={**os.environ, **given},
        cwd=tmp_path,
        input="a\nb\nc\n",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "n=1000000=4=3\n" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *[(each, True) for each in ("API_KEY", "APIKEY", "DEPLOYKEY", "key2", "PUBKEY", "KEYS")],
        *[(each, False) for each in ("MONKEY", "KEYBOARD", "XKEYMAP", "KEYWORDS", "PASSES")],
    ],
)
def test_a_key_is_a_secret_and_a_keyboard_is_none(name: str, secret: bool) -> None:
    assert is_secret(name, "x") is secret


ENVIRON = st.dictionaries(
    st.from_regex(r"[A-Z_]{1,12}", fullmatch=True) | st.sampled_from([*PREFIXES, *SESSION, "LANG"]),
    st.text("abc:/@%", max_size=9),
)


@given(ENVIRON)
def test_every_variable_is_given_or_named_or_of_the_session(environ: dict[str, str]) -> None:
    found = user_variables(environ)
    told = " ".join(found.said())
    for name, value in environ.items():
        if name in found.environment and found.environment[name] == value:
            assert not is_secret(name, value)
        else:
            session = any(name == each or name.startswith(each) for each in SESSION)
            assert name in told or session or name in OWN
    clean = user_variables(environ, clean=True)
    assert set(clean.environment) == {"PATH", "LANG", "LC_ALL", "TMPDIR"}


@given(ENVIRON, st.booleans(), st.booleans(), st.data())
def test_a_variable_asked_for_is_given_whatever_it_is(
    environ: dict[str, str], keep_env: bool, clean: bool, data: st.DataObject
) -> None:
    names = sorted(set(environ) - set(OWN))
    asked = data.draw(st.lists(st.sampled_from(names), unique=True) if names else st.just([]))
    usual = user_variables(environ, keep_env=keep_env, clean=clean)
    found = user_variables(environ, keep_env=keep_env, clean=clean, named=asked)
    assert {name: found.environment[name] for name in asked} == {
        name: environ[name] for name in asked
    }
    assert not set(asked) & {*found.scrubbed, *found.withheld}
    assert not [name for name in found.kept if is_secret(name, environ[name])]
    others = {*usual.environment} - {"LANG", "LC_ALL"} - {*asked}
    assert {name: found.environment[name] for name in others} == {
        name: usual.environment[name] for name in others
    }


@pytest.mark.parametrize("spec", ["native", "uml:mem=256M"])
def test_a_secret_asked_for_is_given_and_not_recorded(spec: str, tmp_path: Path) -> None:
    done = compare(
        spec,
        *("sh", "-c", "echo n=${#MY_TOKEN}"),
        cwd=folder_of(spec, tmp_path),
        metrics=("n:count:higher=n=([0-9]+)",),
        environment={"MY_TOKEN": "very-secret"},
        options=("--env", "MY_TOKEN"),
    )
    assert values(done, "n") == {len("very-secret")}
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert files and not [each for each in files if b"very-secret" in each.read_bytes()]


@pytest.mark.parametrize(
    ("name", "said"),
    [("NO_SUCH_THING", "there is no such variable"), ("A=5", "no such"), ("HOME", "sets it")],
)
def test_what_cannot_be_given_is_refused(name: str, said: str, tmp_path: Path) -> None:
    done = vtax("compare", *QUICK, "--env", name, "--", "true", cwd=tmp_path)
    assert said in one_line(done, 2)


@pytest.mark.parametrize("spec", ["native", *GUESTS])
def test_each_repetition_has_a_fresh_home_of_which_nothing_stays(spec: str, tmp_path: Path) -> None:
    script = "ls -A ~ | wc -l; [ -w ~ ] && mkdir -p ~/.cache/deep && echo x > ~/.cache/deep/file"
    done = compare(
        spec,
        *("sh", "-c", script),
        cwd=folder_of(spec, tmp_path),
        metrics=("before:count:lower=([0-9]+)",),
    )
    assert values(done, "before") == {0}
    assert not Path("/nonexistent").exists()
    assert list(tmp_path.glob("runs/*/raw/*/*/home")) == []


@pytest.mark.parametrize("spec", ["native", *GUESTS])
def test_devices_are_there_as_natively(spec: str, tmp_path: Path) -> None:
    script = """
uniq -c <(printf 'a\\nb\\nb\\n')
echo out >> /dev/stdout; echo err >> /dev/stderr; cat /dev/stdin < /dev/null
for each in null zero full random urandom tty ptmx; do [ -c /dev/$each ] || echo no $each; done
[ -d /dev/shm ] && [ -d /dev/pts ] || echo no folders
! echo x 2>/dev/null >/dev/full || echo not full
f=$(mktemp -p /dev/shm) && rm "$f" || echo no shared memory
script -qec 'tty' /dev/null < /dev/null | grep -q /dev/pts || echo no terminal
"""
    done = compare(
        spec,
        *("bash", "-c", script),
        cwd=folder_of(spec, tmp_path),
        metrics=("b:count:higher=([0-9]+) b",),
    )
    assert values(done, "b") == {2}
    (said,) = {path.read_text() for path in tmp_path.glob("runs/*/raw/*/r*/stdout")}
    assert "out\n" in said and "no" not in said.split(), said


@pytest.mark.parametrize("spec", ["native", *GUESTS])
def test_processes_that_a_command_leaves_are_told(spec: str, tmp_path: Path) -> None:
    argv = ("sh", "-c", "setsid sleep 60 & sleep 60 & echo started")
    done = compare(spec, *argv, cwd=folder_of(spec, tmp_path))
    assert done.returncode == 0, done.stderr
    (flag,) = [each for each in flags(done) if each["kind"] == "left-processes"]
    assert "2 processes that it had started went on" in flag["message"]


def test_a_pipeline_that_ends_leaves_nothing(tmp_path: Path) -> None:
    done = compare("native", "sh", "-c", "seq 1000 | sort | tail -1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [each for each in flags(done) if each["kind"] == "left-processes"] == []


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("wc -l < in.txt", "write sh -c 'wc -l < in.txt'"),
        ("seq 3 | tail -1", "write sh -c 'seq 3 | tail -1'"),
        ("SIZE=5", "write env SIZE=5"),
    ],
)
def test_a_word_of_the_shell_is_refused_with_what_to_write(
    word: str, remedy: str, tmp_path: Path
) -> None:
    done = vtax("compare", *QUICK, "--", word, cwd=tmp_path)
    assert one_line(done, 1).endswith(remedy)


@pytest.mark.parametrize("spec", ["native", "uml:mem=256M"])
@pytest.mark.parametrize(
    ("first", "named"), [("#!/bin/bash\r", r"/bin/bash\r"), ("#! /no/such -x", "/no/such")]
)
def test_a_script_without_its_interpreter_is_refused_with_its_name(
    spec: str, first: str, named: str, tmp_path: Path
) -> None:
    script = folder_of(spec, tmp_path) / "script"
    script.write_bytes(f"{first}\necho 1\n".encode())
    script.chmod(0o755)
    done = vtax("compare", "--in", spec, *QUICK, "--", "./script", cwd=tmp_path)
    assert f"its interpreter {named} does not exist" in one_line(done, 1)


def test_a_metric_is_found_behind_much_output(tmp_path: Path) -> None:
    script = "yes 0123456789 | head -c 6000000; echo; echo answer 42"
    done = compare(
        "native", "sh", "-c", script, cwd=tmp_path, metrics=("n:count:higher=answer ([0-9]+)",)
    )
    assert values(done, "n") == {42}


@pytest.mark.parametrize("spec", [each for each in GUESTS if "image" not in each])
def test_a_program_of_the_users_home_runs_at_the_first_try(spec: str, tmp_path: Path) -> None:
    home = folder_of(spec, tmp_path) / "people/me"
    project, prefix = home / "project", home / ".tools/versions/3"
    for each in (project, prefix / "bin", prefix / "lib", home / ".local/bin", home / ".ssh"):
        each.mkdir(parents=True)
    (prefix / "lib/data").write_text("rate 7\n")
    (home / ".ssh/id").write_text("key")
    (home / "letter").write_text("letter")
    real = prefix / "bin/tool"
    own = f'cat "{prefix}/lib/data"; cat {home}/.ssh/id {home}/letter 2>/dev/null; true'
    real.write_text(f"#!/bin/sh\n{own}\n")
    real.chmod(0o755)
    (home / ".local/bin/tool").symlink_to(real)
    path = f"{home}/.local/bin:/usr/bin:/bin"
    for argv in (("tool",), ("sh", "-c", "tool")):
        done = compare(
            spec,
            *argv,
            cwd=project,
            metrics=("rate:count:higher=rate (.*)",),
            environment={"HOME": str(home), "PATH": path},
        )
        assert values(done, "rate") == {7}
    for run in project.glob("runs/*"):
        said = " ".join(json.loads((run / "run.json").read_text())["inputs"])
        assert f"guests see read-only, for programs in a home: {home}/.local/bin, {prefix}" in said
        assert {path.read_text() for path in run.glob("raw/*/r*/stdout")} == {"rate 7\n"}
