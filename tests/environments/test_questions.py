"""The same small questions in every environment, and the answers that differ from native ones.

`VTAX_WRITE_DOCS=1` rewrites the table of docs/environments.md, for the environments that run here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from command_line import ROOT, vtax
from tested_machines import CONTAINED, checked

QUESTIONS = ROOT / "tests/data/questions.sh"
DOCUMENT = ROOT / "docs/environments.md"
HEADING = "| question | answered otherwise than natively in |\n| --- | --- |\n"
GUESTS = (
    "uml:mem=256M",
    "qemu:accel=tcg,mem=512M",
    pytest.param("lab", marks=pytest.mark.long),
    *CONTAINED,
)
NATIVE_IN_NEWER_GVISOR = {"open-files", "more-open-files"}
"""What Debian 12's runsc answers otherwise, of 2022, and Debian 13's, of 2024, does not."""
GIVEN = {"SIZE": "1000000", "MY_TOKEN": "x", "SSH_AUTH_SOCK": "/tmp/x", "TZ": "UTC"}


def answers(spec: str, folder: Path) -> dict[str, str]:
    # A checkout in a home would be hidden from guests.
    script = Path(shutil.copy(QUESTIONS, folder))
    options = ("--reps", "1", "--no-control", "--no-warm-up", "--baseline", "none", "--quiet")
    argv = ("compare", "--in", spec, *options, "--", "bash", str(script))
    done = vtax(*argv, cwd=folder, environment=GIVEN)
    assert done.returncode == 0, done.stderr
    (said,) = folder.glob("runs/*/raw/*/r000/stdout")
    return dict(line.split("=", 1) for line in said.read_text().splitlines() if "=" in line)


def documented() -> dict[str, set[str]]:
    rows = DOCUMENT.read_text().partition(HEADING)[2].partition("\n\n")[0].splitlines()
    pairs = (re.findall(r"`([^`]*)`", row) for row in rows)
    return {question: set(names) for question, *names in pairs}


@pytest.mark.slow
@pytest.mark.parametrize("spec", GUESTS)
def test_what_is_answered_otherwise_than_natively_is_documented(spec: str, tmp_path: Path) -> None:
    checked(spec)
    name = spec.partition(":")[0]
    folders = [tmp_path / each for each in ("native", "guest")]
    for each in folders:
        each.mkdir()
    native = answers("native:cpus=1", folders[0])
    # The folders differ only by name.
    found = {
        key: text.replace("/guest", "/native") for key, text in answers(spec, folders[1]).items()
    }
    assert len(native) >= 50 and native.keys() == found.keys()
    differ = {key for key in native if native[key] != found[key]}
    if os.environ.get("VTAX_WRITE_DOCS"):
        write({key: documented().get(key, set()) - {name} for key in native}, name, differ)
    told = {question for question, names in documented().items() if name in names}
    if name == "gvisor" and "20221219" not in runsc_version():
        told -= NATIVE_IN_NEWER_GVISOR
    assert differ == told, {key: (native[key], found[key]) for key in differ ^ told}


def runsc_version() -> str:
    return subprocess.run(["runsc", "--version"], capture_output=True, text=True).stdout


def write(rows: dict[str, set[str]], name: str, differ: set[str]) -> None:
    for question in differ:
        rows[question].add(name)
    lines = [
        f"| `{question}` | {', '.join(f'`{each}`' for each in sorted(names))} |\n"
        for question, names in rows.items()
        if names
    ]
    before, heading, after = DOCUMENT.read_text().partition(HEADING)
    rest = after.partition("\n\n")[2]
    DOCUMENT.write_text(f"{before}{heading}{''.join(lines)}\n{rest}")
