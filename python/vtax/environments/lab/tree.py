"""This machine's tree in the emulated host: its programs run there as root, beside real KVM."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Self

from vtax.environments import guest_kernel, sandbox
from vtax.environments.agent import STDIN, Finished, given_input
from vtax.environments.emulated_host import contents
from vtax.environments.emulated_host.emulator import KEPT
from vtax.environments.emulated_host.started import StartedHost
from vtax.environments.guest_kernel import GuestKernel
from vtax.environments.lab.configuration import LabConfiguration
from vtax.environments.lab.recipe import LabRecipe
from vtax.environments.machine_command import MachineCommand

ROOT = PurePosixPath("/run/vtax/root")
LAYER = PurePosixPath("/run/vtax/layer")
"""The folder for what is written over the tree, in memory."""
OUTPUT = "command"
"""The folder of the command's output, in the work folder."""


class Tree:
    """An emulated host with this machine's tree as its root: writable, in memory.

    The lab's `kept` is this machine's own folder there. Secrets are hidden from programs as they
    are from guests (docs/security.md).
    """

    def __init__(self, lab: LabConfiguration, work: Path, cpus: Sequence[int]) -> None:
        self.output = work / OUTPUT
        self.output.mkdir(mode=0o700)
        if lab.kept is not None:
            (work / KEPT).mkdir(mode=0o700)
        self._started = StartedHost(LabRecipe.of(lab), work, cpus)
        try:
            self._started.host.enter()
            script = root_script(lab.kept, guest_kernel.prepare(lab.kernel))
            self._started.host.shell(script, "put this machine's tree together")
        except BaseException:
            self.kill()
            raise

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        workdir: Path,
        timeout_s: float | None = None,
        stdin: bytes | None = None,
    ) -> Finished:
        """Run a command in the emulated host; stdout and stderr grow in `output` meanwhile.

        Raises VtaxError when the command cannot be started, MachineLostError when the host is lost.
        """
        change = ["/bin/sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(workdir)]
        line = ["/bin/busybox", "chroot", str(ROOT), *change, *argv]
        if stdin is not None:
            (self.output / STDIN).write_bytes(stdin)
        name = given_input(self.output.parent, OUTPUT)
        command = MachineCommand(line, environment, OUTPUT, timeout_s)
        return self._started.agent.run(command, stdin=name)

    def kill(self) -> None:
        """End the host and all that is in it."""
        self._started.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def root_script(kept: Path | None, kernel: GuestKernel) -> str:
    """Shell commands that put the root together after the agent has mounted the host's tree."""
    own = f"{ROOT}/lib/modules/{kernel.release}"
    modules = shlex.quote(f"{contents.TREE}{kernel.tree}")
    lines = ["set -e", "busybox --install -s /bin", f"mkdir -p {LAYER} {ROOT}"]
    lines += [f"mount -t tmpfs -o mode=755,size=75% layer {LAYER}"]
    lines += [f"mkdir {LAYER}/upper {LAYER}/work"]
    over = f"lowerdir={contents.TREE},upperdir={LAYER}/upper,workdir={LAYER}/work,xino=on"
    lines += [f"mount -t overlay -o {over} root {ROOT}"]
    lines += [f"mount -t proc proc {ROOT}/proc", f"mount -t sysfs sysfs {ROOT}/sys"]
    lines += [f"mount -t cgroup2 cgroup2 {ROOT}/sys/fs/cgroup"]
    lines += [f"mount -t debugfs debugfs {ROOT}/sys/kernel/debug"]
    lines += [f"mount --rbind /dev {ROOT}/dev"]
    lines += [f"mount -t tmpfs -o mode=755 run {ROOT}/run", f"mkdir -p {ROOT}{sandbox.WORK}"]
    lines += [f"mount --bind {sandbox.WORK} {ROOT}{sandbox.WORK}"]
    # Programs look for the modules of the running kernel there; this machine may run another one.
    lines += [f"if [ ! -e {own} ] && [ -d {modules} ]; then"]
    lines += [f"mkdir -p {own}; mount --bind {modules} {own}; fi"]
    if kept is not None:
        target = shlex.quote(f"{ROOT}{kept}")
        lines += [f"mkdir -p {target}", f"mount --bind {sandbox.WORK}/{KEPT} {target}"]
    lines += ["mkdir -p /dev/net", "[ -e /dev/net/tun ] || mknod /dev/net/tun c 10 200"]
    return "\n".join([*lines, "ip link set lo up"])
