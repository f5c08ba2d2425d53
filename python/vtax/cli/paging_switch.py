"""`vtax paging switch` and `recover`: move this host's running guests to the other paging mode.

The work is done by the static agent, because the host that needs it may have no Python (the lab's
emulated host has none). These commands give it help, completion and a line among the other verbs.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

SWITCH_EXAMPLES = """\b
Examples:
  vtax paging switch --to shadow --dry-run
  vtax paging switch --to shadow
  vtax paging switch --to other --json

\b
Needs root, and of every guest: shared memory (memory-backend-file or -memfd with share=on) and
a QMP Unix socket. What is missing is said before anything is touched. If vtax is killed on the
way, 'vtax paging recover' brings every guest back.
"""

RECOVER_EXAMPLES = """\b
Examples:
  vtax paging recover
  vtax paging recover --state-dir /var/tmp/switch --json
"""

SWITCH_SETTINGS: dict[str, Any] = {
    "short_help": "Move this host's running KVM guests to the other paging mode.",
    "epilog": SWITCH_EXAMPLES,
}
RECOVER_SETTINGS: dict[str, Any] = {
    "short_help": "Bring guests back after a switch that was killed.",
    "epilog": RECOVER_EXAMPLES,
}


class Target(StrEnum):
    """The paging mode to move to."""

    NESTED = "nested"
    SHADOW = "shadow"
    OTHER = "other"


StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        help="Where guests' states and the journal are kept. Default: /run/vtax/switch.",
        metavar="DIR",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def switch(
    to: Annotated[
        Target, typer.Option("--to", help="nested, shadow, or other: the one that is not on.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Look and say what would be done; touch nothing.")
    ] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> None:
    """Move every running KVM guest of this host to nested or shadow paging, without a restart.

    Each guest is paused, its device state saved with its memory left in place, the module
    (kvm_amd or kvm_intel) loaded again with npt= or ept=, and the guest brought back on the same
    memory. It is a transaction: if a step fails, the old mode comes back and every guest runs on.
    Tried only in an emulated AMD host, with vtax's own guests: not on hardware, nor with libvirt.
    """
    options = ["--to", to.value]
    options += ["--dry-run"] * dry_run
    _become_agent("switch", options, state_dir, as_json)


def recover(state_dir: StateDir = None, as_json: AsJson = False) -> None:
    """Bring every guest back after a switch that was killed or failed half-way.

    Safe to repeat. Does nothing, and says so, when there is nothing to recover.
    """
    _become_agent("recover", [], state_dir, as_json)


def _become_agent(verb: str, options: list[str], state_dir: Path | None, as_json: bool) -> NoReturn:
    """Replace this process: signals, output and exit code are then the agent's own."""
    from vtax import binaries

    agent = str(binaries.find("vtax-agent"))
    options += ["--state-dir", str(state_dir)] if state_dir else []
    options += ["--json"] * as_json
    os.execv(agent, [agent, verb, *options])
