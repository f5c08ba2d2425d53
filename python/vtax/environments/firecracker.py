"""Firecracker: guests with few devices and no firmware, under KVM.

Firecracker shares no folder with its guest. Beside it in the box runs a 9P server, which the guest
reaches by vsock, as it reaches vtax (https://github.com/firecracker-microvm/firecracker,
docs/vsock.md): where the guest connects to port P of the host, Firecracker connects to the Unix
socket VSOCK_P.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import VtaxError
from vtax.core.formats.scratch import scratch
from vtax.core.units import format_bytes
from vtax.environments import guest_kernel, kvm_probe, qemu_program, sandbox
from vtax.environments.base import Allocation, HostTree, Launch, MachineLike, register
from vtax.environments.capabilities import (
    Capability,
    Files,
    GuestPage,
    Pause,
    RecordInside,
    RecordOutside,
)
from vtax.environments.channel import AcceptingChannel, Channel
from vtax.environments.guest_kernel import VSOCK_MODULES, GuestKernel
from vtax.environments.machine import Machine, MachineSource, pausing, publishing, shared_tree
from vtax.environments.option_values import cpu_count, guest_memory
from vtax.environments.process_environment import ProcessEnvironment
from vtax.workloads.base import MachineShape

PROGRAM = "firecracker"
SERVER = "diod"
SERVER_PATH = "/usr/sbin:/usr/local/sbin"
"""Where distributions have the server, beside the user's PATH."""
IN_LAB = "try it in the lab: vtax lab -- vtax compare --in firecracker ..."
SMALLEST_BYTES = 192 << 20
"""As in QEMU, whose guests have the same kernel."""
BOOT_TIMEOUT_S = 120.0
"""KVM may itself be emulated, as in QEMU."""
PROBE_TIMEOUT_S = 30.0
VSOCK = sandbox.WORK.parent / "vsock"
"""Firecracker's socket; those of the host's ports have its name and their number."""
FILES_PORT = 564
"""9P's; the agent expects the server there (crates/agent/PROTOCOL.md)."""
CHANNEL_PORT = 1024
CONFIGURATION = sandbox.WORK.parent / "vm.json"
GUEST = 3
"""The smallest address that a guest may have (vsock(7))."""

_START = 'printf %s "$1" >"$2"; "$3" {options} & shift 3; exec "$@"'
"""Write the configuration, start the server, and become Firecracker; nothing but its own words
stands in the shell's text."""
_SERVED = (
    *("--foreground", "--no-auth", "--config-file", "/dev/null", "--logdest", "stderr"),
    *("--export", str(sandbox.TREE), "--export", str(sandbox.WORK)),
    *("--listen", f"{VSOCK}_{FILES_PORT}"),
)
_AS_ROOT = ("--allsquash", "--squashuser", "root")
_UNUSED = (
    *("virtio_pci", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_console"),
    *("9pnet_virtio", guest_kernel.DISK_MODULE),
    *(*guest_kernel.FILE_SYSTEM_MODULES, *guest_kernel.NETWORK_MODULES),
)
"""Modules of QEMU's guests for what Firecracker's do not have."""
_FAILURE = re.compile(r"\[[^]]*\] \w+ error: (.+)")
"""A line of Firecracker's log that says why it ends."""


class Installed(Check):
    """Firecracker's guests have few devices and start fast; they need KVM."""

    name = "firecracker"
    purpose = "environment firecracker"

    def find(self, host: Host) -> Finding:
        program = host.which(PROGRAM)
        if not host.is_x86:
            return self.impossible(f"its guests are x86, and the agent is for {host.machine}")
        if program is None:
            return self.missing(f"{PROGRAM} is not installed", "put its release on PATH")
        version = host.run([program, "--version"])
        if version.code != 0:
            return self.missing(f"{program} does not run: {version.last_error}", None)
        if host.which(SERVER) is None:
            return self.missing(
                f"{version.first_line}, but {SERVER} is not installed, which serves its files",
                host.install(SERVER, SERVER),
            )
        return self.ok(version.first_line)


@register
@dataclass(frozen=True, slots=True)
class Firecracker(HostTree, ProcessEnvironment):
    """A Firecracker guest under KVM, with a distribution kernel."""

    name: ClassVar[str] = "firecracker"
    keys: ClassVar[Mapping[str, str]] = {
        "cpus": "number of CPUs (default: 1)",
        "mem": "memory (default: 1G)",
    }
    examples: ClassVar[Sequence[str]] = ("firecracker", "firecracker:mem=512M,cpus=1")
    offers: ClassVar[Mapping[type[Capability], str]] = {
        Files: "firecracker",
        GuestPage: "firecracker",
        RecordOutside: "firecracker",
        RecordInside: "firecracker",
        Pause: "firecracker",
    }
    checks: ClassVar[Sequence[type[Check]]] = (
        Installed,
        qemu_program.QemuKernel,
        qemu_program.Kvm,
        sandbox.Bubblewrap,
    )

    cpus: int = 1
    memory_bytes: int = 1 << 30
    boot_timeout_s: float = BOOT_TIMEOUT_S
    channel: Path | None = None
    """The socket at which this host waits for the guest's agent."""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        return cls(
            cpu_count("firecracker", "cpus", options.get("cpus", "1")),
            guest_memory("firecracker", options.get("mem", "1G"), SMALLEST_BYTES),
        )

    def shape(self) -> MachineShape:
        return MachineShape(self.cpus, self.memory_bytes)

    def check(self) -> None:
        binary = Path(program())
        server()
        sandbox.bubblewrap()
        guest_kernel.require(guest_kernel.prepare(), VSOCK_MODULES, "Firecracker")
        probed = replace(self, boot_timeout_s=PROBE_TIMEOUT_S)
        if reason := kvm_probe.doubt(probed, binary):
            raise VtaxError(f"firecracker needs KVM: {reason}", IN_LAB)

    def start(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        # The guest's box keeps what it needs of the folder.
        with scratch("firecracker") as folder, socket.socket(socket.AF_UNIX) as listener:
            channel = folder / "channel"
            _bind(listener, channel)
            listener.listen(1)
            return FirecrackerMachine(replace(self, channel=channel), work, cpus, listener)

    def launch(self, allocation: Allocation) -> Launch:
        guest = guest_kernel.prepare()
        assert self.channel is not None
        box = sandbox.Box(
            work=allocation.work,
            view=self.view(),
            read_only={
                # It may lie in a hidden folder.
                Path(program()): _inside(PROGRAM),
                guest.kernel: _inside("kernel"),
                guest.initramfs: _inside("initramfs"),
                self.channel: _port(CHANNEL_PORT),
            },
            devices=(kvm_probe.DEVICE,),
            has_tree=True,
            has_server=True,
        )
        options = shlex.join([*_SERVED, *(_AS_ROOT if os.geteuid() == 0 else ())])
        line = ["/bin/sh", "-c", _START.format(options=options), "sh"]
        line += [json.dumps(self._configuration(guest)), str(CONFIGURATION), server()]
        line += [str(_inside(PROGRAM)), "--no-api", "--config-file", str(CONFIGURATION)]
        # The server does not start where it cannot lift this limit; in the box it could not.
        line = ["prlimit", "--fsize=unlimited", *sandbox.command(box, line)]
        return Launch(sandbox.pinned(allocation.cpus, line), sandbox.WORK, self.boot_timeout_s)

    def capabilities(self, machine: Machine) -> Sequence[Capability]:
        return (*shared_tree(machine), pausing(machine), publishing(machine))

    def explain_end(self, code: int, console: Sequence[str]) -> tuple[str, str | None] | None:
        said = [found[1] for line in console if (found := _FAILURE.search(line))]
        return (f"Firecracker ended: {said[-1]}", None) if said else None

    def description(self, facts: Mapping[str, Any]) -> str:
        release = facts.get("kernel", {}).get("release", "?")
        version = facts.get("monitor", {}).get("version", "?")
        return (
            f"Firecracker {version} with KVM, Linux {release}, "
            f"{self.cpus} CPU, {format_bytes(self.memory_bytes)}"
        )

    def _configuration(self, guest: GuestKernel) -> dict[str, Any]:
        """What Firecracker makes: its `--config-file` (docs/getting-started.md there)."""
        parameters = [
            *qemu_program.KERNEL,
            # A reset by the keyboard's controller is the only way in which a guest ends itself.
            *("reboot=k", "pci=off"),
            *("vtax.lower=9p.vsock:tree", "vtax.work=9p.vsock:work"),
            f"vtax.channel=vsock:{CHANNEL_PORT}",
            f"vtax.modules={':'.join(guest.without(*_UNUSED))}",
        ]
        return {
            "boot-source": {
                "kernel_image_path": str(_inside("kernel")),
                "initrd_path": str(_inside("initramfs")),
                "boot_args": " ".join(parameters),
            },
            "drives": [],
            "machine-config": {
                "vcpu_count": self.cpus,
                "mem_size_mib": self.memory_bytes >> 20,
            },
            "vsock": {"guest_cid": GUEST, "uds_path": str(VSOCK)},
        }


class FirecrackerMachine(Machine):
    """A started guest, which connects to `listener`."""

    def __init__(
        self,
        environment: MachineSource,
        work: Path,
        cpus: Sequence[int],
        listener: socket.socket,
    ) -> None:
        self._listener = listener
        super().__init__(environment, work, cpus)

    def channel(self, ours: socket.socket) -> Channel:
        return AcceptingChannel(ours, self._listener)

    def refresh_facts(self) -> None:
        super().refresh_facts()
        self.facts["monitor"] = {"name": "Firecracker", "version": version()}

    def close(self) -> None:
        """End the guest at once: it has no power to switch off, and no disk."""
        self.kill()


def program() -> str:
    """Firecracker; raises VtaxError with the remedy when it is missing."""
    if found := shutil.which(PROGRAM):
        return found
    raise VtaxError(
        "Firecracker is missing", f"put '{PROGRAM}' of one of its releases into a folder of PATH"
    )


def version() -> str:
    """The version of the installed Firecracker, or `?`."""
    said = subprocess.run([program(), "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Firecracker v(\S+)", said.stdout)
    return found[1] if found else "?"


def server() -> str:
    """The 9P server; raises VtaxError with the remedy when it is missing."""
    if found := shutil.which(SERVER) or shutil.which(SERVER, path=SERVER_PATH):
        return found
    raise VtaxError(
        f"{SERVER} is missing, which serves files to Firecracker's guests",
        f"apt-get install {SERVER}",
    )


def _bind(listener: socket.socket, path: Path) -> None:
    """Bind a socket to a path, which may be longer than the 107 bytes that unix(7) allows."""
    folder = os.open(path.parent, os.O_PATH)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def _port(number: int) -> Path:
    return VSOCK.with_name(f"{VSOCK.name}_{number}")


def _inside(name: str) -> Path:
    return sandbox.WORK.parent / name
