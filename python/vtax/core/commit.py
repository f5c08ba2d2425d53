"""Which commit of a user's program was measured, as Git says it."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

TIMEOUT_S = 10.0
"""Git looks at every file of the working tree, which may be large, and on another machine."""


@functools.cache
def commit_of(folder: Path) -> str | None:
    """The commit of the working tree that has this folder, with `-dirty` where tracked files are
    changed; None: there is no commit or no Git, or Git did not answer in time.

    Git changes nothing, and starts no program that the repository names.
    """
    words = ("--always", "--dirty", "--abbrev=40", "--exclude=*")
    own = ("--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(folder))
    try:
        done = subprocess.run(
            ["git", *own, "describe", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
