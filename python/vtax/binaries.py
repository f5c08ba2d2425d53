"""Where vtax's own compiled programs are."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from vtax.errors import VtaxError

FOLDER = Path(__file__).parent / "_bin"


def find(name: str) -> Path:
    """The path of `vtax-agent`, `vtax-dgemm` or `libvtax_umlfix.so`.

    Raises VtaxError when the package was installed without it.
    """
    candidate = FOLDER / name
    if candidate.is_file() and os.access(candidate, os.R_OK):
        return candidate
    raise VtaxError(
        f"{name} is not part of this installation", "run 'make setup' or 'pip install .'"
    )


def run_agent() -> NoReturn:
    """The command `vtax-agent`: becomes the agent, so that it is on the PATH beside `vtax`."""
    try:
        agent = find("vtax-agent")
        os.execv(agent, [str(agent), *sys.argv[1:]])
    except VtaxError as error:
        sys.exit(f"vtax-agent: {error}")
