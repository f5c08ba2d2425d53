"""Where vtax's own compiled programs are."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from vtax.core.errors import VtaxError

FOLDER = Path(__file__).parent.parent / "_bin"
ARM64 = "aarch64"
"""arm64, as `uname` calls it. Other machines have its programs in a folder of this name."""


def find(name: str, machine: str | None = None) -> Path:
    """The path of a program or library that vtax ships, such as `vtax-agent`.

    `machine` is the architecture that it is for; None: this machine's. Raises VtaxError when the
    package was installed without it.
    """
    foreign = machine not in (None, platform.machine())
    candidate = FOLDER / (machine or "") / name if foreign else FOLDER / name
    if candidate.is_file() and os.access(candidate, os.R_OK):
        return candidate
    if foreign:
        raise VtaxError(
            f"{name} for {machine} is not part of this installation", "run 'make arm64'"
        )
    raise VtaxError(
        f"{name} is not part of this installation", "run 'make setup' or 'pip install .'"
    )


def on_path(variables: Mapping[str, str]) -> str:
    """The PATH of `variables` with vtax's own programs before all others."""
    return f"{FOLDER}{os.pathsep}{variables.get('PATH', os.defpath)}"


def run_agent() -> NoReturn:
    """The command `vtax-agent`, on the PATH beside `vtax`."""
    _become("vtax-agent")


def run_host() -> NoReturn:
    """The command `vtax-host`, likewise; `vtax-place` and `vtax-control` are earlier names of its
    parts, which it knows."""
    _become("vtax-host")


def _become(name: str) -> NoReturn:
    try:
        os.execv(find(name), sys.argv)
    except VtaxError as error:
        sys.exit(f"{name}: {error}")
