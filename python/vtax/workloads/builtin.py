"""The workloads built into vtax-agent, and several copies of a command at once."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from vtax.core import binaries, foreign_json
from vtax.core.errors import VtaxError
from vtax.workloads import programs
from vtax.workloads.base import tail

LIST_TIMEOUT_S = 20.0

_COPIES = """\
copies=$1; shift; all=; failed=0
while [ "$copies" -gt 0 ]; do "$@" & all="$all $!"; copies=$((copies-1)); done
for one in $all; do wait "$one" || failed=$?; done
exit "$failed"
"""


def builtin_workloads() -> dict[str, str]:
    """Names of the agent's workloads and what each does. Raises VtaxError without an agent."""
    done = subprocess.run(
        [str(binaries.find("vtax-agent")), "workload", "--list", "--json"],
        capture_output=True,
        text=True,
        timeout=LIST_TIMEOUT_S,
        check=False,
    )
    try:
        listed = foreign_json.parse(done.stdout)
        return {str(each["name"]): str(each["summary"]) for each in listed}
    except (ValueError, KeyError, TypeError):
        raise VtaxError(f"vtax-agent does not list its workloads: {tail(done.stderr)}") from None


def is_builtin(argv: Sequence[str]) -> bool:
    """Whether a command line names one of vtax-agent's workloads, and no program on this
    machine."""
    return shutil.which(argv[0]) is None and argv[0] in builtin_workloads()


def line(argv: Sequence[str], agent: str | None = None) -> list[str]:
    """The command line that runs `argv`; `agent`: the path of vtax-agent in the machine.

    Raises VtaxError when the command runs on this machine and its program does not exist.
    """
    if not is_builtin(argv):
        if agent is None:
            require_here(argv)
        return list(argv)
    return [agent or str(binaries.find("vtax-agent")), "workload", *argv]


def require_here(argv: Sequence[str]) -> Path:
    """The path of this machine's program of that name; raises VtaxError when it cannot be
    started."""
    return programs.require(argv[0], os.environ.get("PATH", ""), Path.cwd(), "check its name")


def several(argv: Sequence[str], copies: int) -> list[str]:
    """The command line that runs `copies` of `argv` at once and fails when one of them does."""
    return list(argv) if copies == 1 else ["sh", "-c", _COPIES, "sh", str(copies), *argv]
