"""A program that cannot be started is refused with its reason, before anything boots."""

import subprocess
from pathlib import Path

import pytest

from vtax.core import elf
from vtax.core.errors import VtaxError
from vtax.workloads import programs
from vtax.workloads.programs import require

SCRIPTS = {
    "crlf": b"#!/bin/sh\r\necho\r\n",
    "argument": b"#! \t/no/such/interpreter -x\n",
    "env": b"#!/usr/bin/env no-such-program\n",
    "good-script": b"#!/bin/sh -e\n",
    "good-env": b"#!/usr/bin/env good\n",
    "no-script": b"\x7fELF",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plain").write_text("")
    (tmp_path / "good").write_text("")
    (tmp_path / "good").chmod(0o755)
    (tmp_path / "inner").mkdir()
    for name, line in SCRIPTS.items():
        (tmp_path / name).write_bytes(line)
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("/etc/passwd", "/etc/passwd is not executable; chmod +x /etc/passwd"),
        ("./plain", "plain is not executable; chmod +x"),
        ("./inner", "it is not a file; check its name"),
        ("./missing", "it does not exist; check its name"),
        ("plain", "plain is not executable; chmod +x"),
        ("missing", "it is not on the PATH; check its name"),
        ("./crlf", r"interpreter /bin/sh\r does not exist: its lines end with CR LF; sed -i"),
        ("crlf", r"interpreter /bin/sh\r does not exist: its lines end with CR LF; sed -i"),
        ("argument", "interpreter /no/such/interpreter does not exist; install it"),
        ("env", "interpreter 'no-such-program' is not on the PATH; install it"),
    ],
)
def test_the_reason_is_said(folder: Path, program: str, reason: str) -> None:
    with pytest.raises(VtaxError) as refused:
        require(program, f"/nonexistent:{folder}", folder, "check its name")
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("argv", "written"),
    [
        (["wc -l < in.txt"], "write sh -c 'wc -l < in.txt'"),
        (["wc<in.txt"], "write sh -c 'wc<in.txt'"),
        (["ls -l"], "write sh -c 'ls -l'"),
        (["SIZE=5", "sh", "-c", "echo $SIZE"], "write env SIZE=5 sh -c 'echo $SIZE'"),
        (["cd", "/tmp"], "write sh -c 'cd /tmp'"),
        (["a;b"], "write sh -c 'a;b'"),
        (["./my program"], "check its name"),
        (["hpc"], "check its name"),
    ],
)
def test_what_a_shell_would_have_read_is_written_for_one(argv: list[str], written: str) -> None:
    with pytest.raises(VtaxError) as refused:
        require(argv[0], "/usr/bin:/bin", Path("/"), "check its name", argv[1:])
    assert refused.value.remedy == written


def test_a_program_that_the_kernel_would_not_start(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "EMULATORS", folder / "none")
    true = Path("/bin/true").read_bytes()
    loader = elf.read(Path("/bin/true")).loader  # type: ignore[union-attr]
    assert loader is not None
    named = true.replace(loader.encode(), loader.replace("ld", "xx").encode())
    cases = {"does not exist": named, "not for": true[:18] + b"\x16\0" + true[20:]}
    for reason, content in cases.items():
        (folder / "made").write_bytes(content)
        (folder / "made").chmod(0o755)
        with pytest.raises(VtaxError, match=reason):
            require("./made", "", folder, "")
        done = subprocess.run(["sh", "-c", "./made"], cwd=folder, check=False, capture_output=True)
        assert done.returncode != 0
    (folder / "none").mkdir()
    (folder / "none/qemu-s390x").touch()
    assert require("./made", "", folder, "") == folder / "./made"


def test_a_program_that_is_there_is_taken(folder: Path) -> None:
    for program in ("good", "./good", str(folder / "good"), "good-script", "good-env", "no-script"):
        require(program, str(folder), folder, "")
