"""Whether a command line's program is there, with the reason when it is not."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

from vtax.errors import VtaxError

FIRST_LINE_BYTES = 256
"""Of a script that the kernel looks at (BINPRM_BUF_SIZE)."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def require(program: str, path: str, folder: Path, remedy: str) -> Path:
    """Where `program`, as named from `folder`, is; VtaxError when it cannot be started.

    A script whose interpreter is missing cannot. A name without a slash is looked up in `path`,
    the value of the variable PATH.
    """
    if reason := _obstacle(program, path, folder):
        raise VtaxError(f"program '{program}': {reason}", _meant(program) or remedy)
    return folder / (program if "/" in program else shutil.which(program, path=path) or program)


def _meant(program: str) -> str | None:
    """What to write for a word that is no program's name."""
    if _ASSIGNMENT.match(program):
        return f"write env {program} ..."
    if len(program.split()) > 1:
        return f"write sh -c {shlex.quote(program)}"
    return None


def _obstacle(program: str, path: str, folder: Path) -> str | None:
    if "/" in program:
        return _why_not(folder / program)
    if which := shutil.which(program, path=path):
        return _why_not(folder / which)
    for directory in path.split(os.pathsep):
        if directory and (found := Path(directory) / program).is_file():
            return f"{found} is not executable"
    return "it is not on the PATH"


def _why_not(file: Path) -> str | None:
    if not file.exists():
        return "it does not exist"
    if not file.is_file():
        return "it is not a file"
    if not os.access(file, os.X_OK):
        return "it is not executable"
    interpreter = script_words(file)[:1]
    if interpreter and not Path(interpreter[0]).exists():
        shown = interpreter[0].encode("unicode_escape").decode()
        ending = ": its lines end with CR LF" if shown.endswith("\\r") else ""
        return f"its interpreter {shown} does not exist{ending}"
    return None


def script_words(script: Path) -> list[str]:
    """The interpreter of a script and its one argument, as the kernel splits the first line.

    Empty where it is no script.
    """
    try:
        with script.open("rb") as file:
            first = file.read(FIRST_LINE_BYTES)
    except OSError:
        return []
    if not first.startswith(b"#!"):
        return []
    # At blanks and tabs alone: a carriage return is part of the name.
    line = os.fsdecode(first[2:].split(b"\n", 1)[0]).strip(" \t")
    return re.split("[ \t]+", line, maxsplit=1) if line else []
