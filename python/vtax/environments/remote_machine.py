"""A machine elsewhere, reached by a program such as ssh or srun that joins its standard input and
output to those of a shell there.

The agent is sent over the connection that then carries its requests; nothing is installed on the
machine, and what vtax put there is removed when the agent ends.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from vtax.environments.copying_machine import CopyingMachine
from vtax.environments.host_swap import HostSwap
from vtax.environments.lease import Renewal

BOOT_TIMEOUT_S = 120.0
"""The agent's 3 MB have to go through a slow line, too."""
SWAP_FOLDER = "${XDG_CACHE_HOME:-$HOME/.cache}/vtax/swap"
"""The folder that vtax on the machine calls `host_swap.folder`, in words of the machine's shell."""
FOLDER = re.compile(r"/[A-Za-z0-9._/-]*")
"""A folder there that needs no quotes in any shell."""

_OWN = "vtax: "
"""What `script` itself says begins with this."""
_FOLDER_FAULT = "dir: "
"""After that, a fault for which another folder may be the remedy begins with this."""


class RemoteMachine(CopyingMachine):
    """A machine over ssh, whose agent has a lease that is renewed."""

    _renewal: Renewal | None = None

    def furnish(self) -> None:
        self._renewal = Renewal(self._agent.renew)

    def kill(self) -> None:
        if self._renewal is not None:
            self._renewal.end()
        super().kill()


def script(
    folder: str, size: int, serve: Sequence[str], swap: HostSwap, also: str | None = None
) -> str:
    """What the machine's shell does: take `size` bytes of agent from its input, serve, remove
    all. `also`: another path for the folder, unless it is there already."""
    agent = f"{folder}/vtax-agent"

    def refused(why: str) -> str:
        return f'{{ echo "{_OWN}{why}" >&2; exit 1; }}'

    no_folder = refused(f"{_FOLDER_FAULT}cannot make {folder}")
    no_room = refused(f"{_FOLDER_FAULT}no room for the agent in {folder}")
    steps = [
        "umask 077",
        f"mkdir {folder} || {no_folder}",
        f"link={also}; if [ -e $link ]; then link=; else ln -s {folder} $link; fi"
        if also
        else "link=",
        # Slurm signals every process of a step, and may do so again while rm removes the folder.
        f'trap "trap \\"\\" HUP INT TERM; rm -rf {folder} $link" EXIT',
        'trap "exit 1" HUP INT TERM',
        f"head -c {size} >{agent} || {no_room}",
        f'[ "$(wc -c <{agent})" -eq {size} ] || {refused("the agent did not come whole there")}',
        f"chmod 700 {agent}",
    ]
    line = f"{agent} {shlex.join(serve)}"
    if swap:
        # Not in `folder`: a later vtax would not know it, and its parent may be a tmpfs.
        steps += [f'mkdir -p "{SWAP_FOLDER}"']
        line += f' {shlex.join(swap.size())} --swap-folder "{SWAP_FOLDER}"'
    # 126: found, but not executable. The options are those of the deepest mount above the folder.
    steps += [
        line,
        "code=$?",
        f"if [ $code -eq 126 ] && cd {folder}; then at=",
        "while read -r _ place _ options _; do "
        'case "$(pwd -P)/" in "${place%/}"/*) '
        "[ ${#place} -lt ${#at} ] || { at=$place; with=$options; };; esac; done </proc/mounts",
        f'case ",$with," in *,noexec,*) echo "{_OWN}{_FOLDER_FAULT}$at is mounted noexec" >&2;; '
        "esac; fi",
        "exit $code",
    ]
    return "; ".join(steps)


def said_by_script(console: Sequence[str]) -> tuple[str, str | None] | None:
    """The fault that `script` told, and the remedy; None when it told none."""
    own = [line.removeprefix(_OWN) for line in console if line.startswith(_OWN)]
    if not own:
        return None
    in_folder = own[-1].removeprefix(_FOLDER_FAULT)
    return in_folder, "choose another folder with dir=" if in_folder != own[-1] else None
