"""The workload of a recording: any command line, a built-in one, and several copies of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePath

from vtax import binaries
from vtax.workloads import programs

_COPIES = """\
copies=$1; shift; all=; failed=0
while [ "$copies" -gt 0 ]; do "$@" & all="$all $!"; copies=$((copies-1)); done
for one in $all; do wait "$one" || failed=$?; done
exit "$failed"
"""


def is_builtin(argv: Sequence[str]) -> bool:
    """Whether a command line names one of vtax-agent's workloads, and no program here."""
    from vtax.paging.lab import builtin_workloads

    return shutil.which(argv[0]) is None and argv[0] in builtin_workloads()


def line(argv: Sequence[str], agent: PurePath | None = None) -> list[str]:
    """The command line that runs `argv`; `agent`: where vtax-agent is, in a machine that has it.

    Raises VtaxError when the program is not there and the machine has this one's files.
    """
    if not is_builtin(argv):
        if agent is None:
            programs.require(argv[0], os.environ.get("PATH", ""), Path.cwd(), "check its name")
        return list(argv)
    return [str(agent or binaries.find("vtax-agent")), "workload", *argv]


def several(argv: Sequence[str], copies: int) -> list[str]:
    """The command line that runs so many copies of `argv` at once and fails when one does."""
    return list(argv) if copies == 1 else ["sh", "-c", _COPIES, "sh", str(copies), *argv]
