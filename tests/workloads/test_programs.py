"""A program that cannot be started is refused with its reason, before anything boots."""

from pathlib import Path

import pytest

from vtax.errors import VtaxError
from vtax.workloads.programs import require


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plain").write_text("")
    (tmp_path / "good").write_text("")
    (tmp_path / "good").chmod(0o755)
    (tmp_path / "inner").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("/etc/passwd", "program '/etc/passwd': it is not executable"),
        ("./plain", "it is not executable"),
        ("./inner", "it is not a file"),
        ("./missing", "it does not exist"),
        ("plain", "plain is not executable"),
        ("missing", "it is not on the PATH"),
    ],
)
def test_the_reason_is_said(folder: Path, program: str, reason: str) -> None:
    with pytest.raises(VtaxError, match=f"{reason}; check its name"):
        require(program, f"/nonexistent:{folder}", folder, "check its name")


def test_a_program_that_is_there_is_taken(folder: Path) -> None:
    for program in ("good", "./good", str(folder / "good")):
        require(program, str(folder), folder, "")
