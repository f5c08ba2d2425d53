"""A command for a machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class MachineCommand:
    """A command that a machine runs.

    Files in `folder` are there when the command starts (`stdin` is its standard input), and what
    the command wrote there is on the host afterwards; without a shared folder at least stdout and
    stderr.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    """A folder below the writable folder, for its results."""
    timeout_s: float | None = None
    workdir: Path | None = None
    """Where it runs: a folder of this host's that the machine has; None: in `folder`."""
    leave: bool = False
    """What the command leaves running goes on until the machine ends."""
