"""A domU on an existing Xen host, whose dom0 is reached by ssh.

One connection carries the domU's kernel and initramfs, and then its console, which is the channel
to its agent. The domU sees dom0's tree read-only and without its secrets; it ends with the
connection, and nothing of it stays.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar

from vtax.environments import hiding, sandbox
from vtax.environments.base import Allocation, Launch
from vtax.environments.capabilities import Capability, Files, RecordInside
from vtax.environments.copying_machine import bring
from vtax.environments.emulated_host import exports
from vtax.environments.machine import Machine, MachineNetwork
from vtax.environments.ssh_client import Login, explain
from vtax.environments.xen import dom0, parts
from vtax.environments.xen.configuration import XenConfiguration

BOOT_TIMEOUT_S = 180.0
"""The kernel and initramfs have to go through a slow line, too."""
OWN = "vtax: "
"""What the script itself says begins with this."""


@dataclass(frozen=True, slots=True)
class RemoteDomu:
    """What a `Machine` needs to start one domU."""

    name: ClassVar[str] = "xen"
    cleans_up: ClassVar[bool] = True

    xen: XenConfiguration
    host: Login

    def emulates_clock(self) -> bool:
        return False

    def own_network(self, cpus: Sequence[int]) -> MachineNetwork | None:
        return None

    def launch(self, allocation: Allocation) -> Launch:
        kernel = parts.kernel(self.xen.kernel)
        guest = parts.guest(kernel)
        own = f"vtax-{secrets.token_hex(6)}"
        folder = PurePosixPath("/tmp", own)
        boot = dom0.Boot(own, folder / "kernel", folder / "initramfs", folder / "exports")
        configuration = dom0.configuration(self.xen.domu(0, guest.modules), boot)
        files = {
            "kernel": kernel.kernel.read_bytes(),
            "initramfs": guest.initramfs,
            "configuration": configuration.encode(),
        }
        script = "\n".join(_script(boot, {name: len(content) for name, content in files.items()}))
        return Launch(
            # In a mount namespace of its own, which ends with the script, whatever ends it. The
            # script has no single quote.
            [*self.host.line(), f"exec unshare -m /bin/sh -c '{script}'"],
            work_inside=sandbox.WORK,
            boot_timeout_s=BOOT_TIMEOUT_S,
            over_stdio=True,
            preamble=b"".join(files.values()),
            environment=os.environ,
        )

    def capabilities(self, machine: Machine) -> Sequence[Capability]:
        return (
            Files(machine.push, machine.pull),
            RecordInside(lambda: bring(machine, "vtax-host")),
        )

    def explain_end(self, code: int, console: Sequence[str]) -> tuple[str, str | None] | None:
        own = [line.removeprefix(OWN) for line in console if line.startswith(OWN)]
        if own:
            others = [line for line in console if not line.startswith(OWN)][:2]
            return " | ".join([own[-1], *others]), None
        return explain(self.host.line(), console) if code == 255 else None


def _script(boot: dom0.Boot, sizes: dict[str, int]) -> list[str]:
    """What dom0's shell does: take the files from its input, start the domU, relay its console."""
    own, folder = boot.name, boot.kernel.parent
    tree = boot.exports / "host" / exports.TREE

    def refused(why: str) -> str:
        return f'{{ echo "{OWN}{why}" >&2; exit 1; }}'

    lines = ["umask 077", "PATH=$PATH:/usr/sbin:/sbin:/usr/lib/xen-common/bin"]
    lines += [f"command -v xl >/dev/null || {refused('there is no xl: install xen-utils there')}"]
    lines += [f"xl info >/dev/null || {refused('xl finds no Xen: log in to dom0, as root')}"]
    lines += [f"mkdir {folder} || {refused(f'cannot make {folder}')}"]
    # Nothing is removed recursively: dom0's own tree is mounted below.
    made = [str(tree), *(str(each) for each in tree.parents if each.is_relative_to(folder))]
    files = " ".join(f"{folder}/{name}" for name in sizes)
    end = f"xl destroy {own}; umount -l {tree}; rm -f {files}; rmdir {' '.join(made)}"
    lines += [f'trap "{{ {end}; }} 2>/dev/null" EXIT']
    lines += ['trap "exit 1" HUP INT TERM']
    for name, size in sizes.items():
        lines += [f"head -c {size} >{folder}/{name}"]
        lines += [
            f'[ "$(wc -c <{folder}/{name})" -eq {size} ] || {refused(f"no room in {folder}")}'
        ]
    lines += [f"mkdir -p {tree}", "mount --make-rprivate /", f"mount --bind / {tree}"]
    lines += [f"mount -o remount,bind,ro {tree} || {refused('dom0 cannot be shown read-only')}"]
    lines += _hidden(tree)
    lines += [f"xl create -q {folder}/configuration >&2 || {refused('xl cannot create the domU')}"]
    lines += [f"tty=$(xenstore-read /local/domain/$(xl domid {own})/console/tty)"]
    lines += [f'[ -c "$tty" ] || {refused("the domU has no console")}']
    lines += ["stty raw -echo <$tty", "exec 3<&0", "cat <&3 >$tty & typed=$!", "cat <$tty &"]
    # The connection's end closes the input.
    lines += [f"while kill -0 $typed && xl domid {own} >/dev/null; do sleep 1; done 2>/dev/null"]
    return [
        *lines,
        f"xl domid {own} >/dev/null 2>&1 || {refused('the domU crashed or powered off')}",
    ]


def _hidden(tree: PurePosixPath) -> list[str]:
    """Shell commands that cover the secrets below `tree`. A link could lead out of it."""
    patterns = " ".join(str(tree / pattern) for pattern in hiding.SECRETS)
    lines = [f"for each in {patterns}; do", '[ "$(readlink -f "$each")" = "$each" ] || continue']
    lines += ['if [ -d "$each" ]; then mount -t tmpfs -o ro none "$each"']
    return [
        *lines,
        'elif [ -e "$each" ]; then mount --bind /dev/null "$each"; fi || exit 1',
        "done",
    ]
