"""Whether a command line's program is there, with the reason when it is not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from vtax.errors import VtaxError


def require(program: str, path: str, folder: Path, remedy: str) -> Path:
    """Where `program`, as named from `folder`, is; VtaxError when it cannot be started.

    A name without a slash is looked up in `path`, the value of the variable PATH.
    """
    if reason := _obstacle(program, path, folder):
        raise VtaxError(f"program '{program}': {reason}", remedy)
    return folder / (program if "/" in program else shutil.which(program, path=path) or program)


def _obstacle(program: str, path: str, folder: Path) -> str | None:
    if "/" in program:
        return _why_not(folder / program)
    if shutil.which(program, path=path):
        return None
    for directory in path.split(os.pathsep):
        if directory and (found := Path(directory) / program).is_file():
            return f"{found} is not executable"
    return "it is not on the PATH"


def _why_not(file: Path) -> str | None:
    if not file.exists():
        return "it does not exist"
    if not file.is_file():
        return "it is not a file"
    return None if os.access(file, os.X_OK) else "it is not executable"
