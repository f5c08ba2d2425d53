"""QEMU itself: the program, its kernel and KVM, for every environment that runs it."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import VtaxError

PROGRAM = "qemu-system-x86_64"
CHANNEL = "org.vtax.agent"
"""The virtio-serial port of a guest's agent."""

KVM_API = 12
"""The only version since 2007; another one is not KVM that QEMU can use."""


@dataclass(frozen=True, slots=True)
class Hypervisor:
    """What QEMU boots instead of the guest's kernel, which then is its first domain's."""

    image: Path
    """A multiboot image, inside the guest's box."""
    line: str


@dataclass(frozen=True, slots=True)
class Emulator:
    """Which QEMU a guest runs in, and what QEMU gets besides what the guest needs."""

    program: Path | None = None
    """Path inside the guest's box; None: the installed QEMU."""
    options: Sequence[str] = ()
    parameters: Sequence[str] = ()
    """Parameters of the guest's kernel."""
    read_only: Mapping[Path, Path] = field(default_factory=dict)
    """Host files to let into the box, with their paths inside."""
    writable: Mapping[Path, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    hypervisor: Hypervisor | None = None

    def boot(self, kernel: Path, initramfs: Path, parameters: Sequence[str]) -> list[str]:
        """Options that boot a kernel, by itself or as the hypervisor's first domain."""
        line = " ".join(parameters)
        if self.hypervisor is None:
            return ["-kernel", str(kernel), "-initrd", str(initramfs), "-append", line]
        # QEMU parts multiboot modules at commas; a doubled one is a comma.
        modules = f"{kernel} {line.replace(',', ',,')},{initramfs}"
        own = ["-kernel", str(self.hypervisor.image), "-append", self.hypervisor.line]
        return [*own, "-initrd", modules]


INSTALLED = Emulator()


BARE = (
    "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-nic", "none",
    "-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny",
    "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
)  # fmt: skip
"""Options of every machine: nothing but a console, and no way out of QEMU's own process."""


KERNEL = (
    "console=ttyS0",
    "quiet",
    # Reboot at once on panic, which -no-reboot turns into QEMU's end.
    "panic=-1",
    # A busy host delivers the timer's interrupts too late for the kernel's test of them, which then
    # panics (kernel-parameters.txt).
    "no_timer_check",
)
"""Parameters of every guest's kernel."""


def agent_port(descriptor: int) -> list[str]:
    """QEMU's options for the channel to the agent, whose other end is a descriptor."""
    line = ["-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,fd={descriptor}"]
    return [*line, "-device", f"virtserialport,chardev=agent,name={CHANNEL}"]


def tree_parameters(modules: Sequence[str]) -> list[str]:
    """Parameters of the kernel of a guest that sees this machine's tree by 9p."""
    return [
        *KERNEL,
        "vtax.lower=9p:host",
        "vtax.work=9p:work",
        f"vtax.channel=virtio:{CHANNEL}",
        f"vtax.modules={':'.join(modules)}",
    ]


def program() -> Path:
    """QEMU; raises VtaxError with the remedy when it is missing."""
    return named(PROGRAM, "qemu-system-x86")


def named(name: str, package: str) -> Path:
    """A program of QEMU; raises VtaxError with its package when it is missing."""
    if found := shutil.which(name):
        return Path(found)
    raise VtaxError(f"QEMU ({name}) is missing", f"apt-get install {package}")


def export(tag: str, path: Path, options: str) -> list[str]:
    """QEMU's options for a folder that the guest mounts by 9p."""
    # security_model=none: guests' files belong to vtax's user on the host; ownership changes are
    # ignored.
    return [
        "-fsdev",
        f"local,id={tag},path={path},security_model=none,{options}",
        "-device",
        f"virtio-9p-pci,fsdev={tag},mount_tag={tag}",
    ]


class Installed(Check):
    """The full-system guest: emulated (TCG) anywhere, or at speed with KVM."""

    name = "qemu"
    purpose = "environment qemu"

    def find(self, host: Host) -> Finding:
        program = host.which(PROGRAM)
        if not host.is_x86:
            return self.impossible(f"its guests are x86, and the agent is for {host.machine}")
        if program is None:
            return self.missing(
                f"{PROGRAM} is not installed", host.install("qemu-system-x86", "QEMU")
            )
        output = host.run([program, "--version"])
        version = re.search(r"version (\S+)", output.first_line)
        if output.code != 0 or version is None:
            return self.missing(
                f"{program} does not run: {output.last_error}",
                host.install("--reinstall qemu-system-x86", "QEMU again"),
            )
        return self.ok(f"{program}, version {version[1]}")


class QemuKernel(Check):
    """The full-system guest boots a kernel of this distribution, with its modules."""

    name = "qemu-kernel"
    purpose = "environment qemu"

    def find(self, host: Host) -> Finding:
        unreadable = None
        for image in reversed(host.glob("/boot/vmlinuz-*")):
            release = image.name.removeprefix("vmlinuz-")
            # A cloud kernel has no 9p, by which the guest sees the host's tree.
            if "/9p.ko" not in (host.read(f"/lib/modules/{release}/modules.dep") or ""):
                continue
            if os.access(image, os.R_OK):
                return self.ok(f"/boot/{image.name}")
            unreadable = image.name
        cached = sorted((host.cache / "vtax/kernels").glob("package-*/boot/vmlinuz-*"))
        if cached:
            return self.ok(f"{cached[-1].name}, in the cache of vtax")
        if host.uses_apt:
            # vtax unpacks the package into its cache, which needs no root.
            if host.glob("/var/lib/apt/lists/*_Packages*"):
                return self.ok(
                    "the distribution's package, fetched at first use (apt-get download)"
                )
            return self.missing("apt has no package lists to fetch a kernel by", "apt-get update")
        if unreadable:
            return self.missing(
                f"/boot/{unreadable} may be read by root alone", f"chmod a+r /boot/{unreadable}"
            )
        return self.missing(
            "no kernel with a 9p module in /boot", "install a kernel package of the distribution"
        )


class Kvm(Check):
    """Presence is no proof: there may be a device that cannot run an ordinary kernel."""

    name = "kvm"
    purpose = "environment qemu:accel=kvm"

    def find(self, host: Host) -> Finding:
        hardware = host.cpu_flags & {"vmx", "svm"}
        device = host.path("/dev/kvm")
        if not device.exists():
            if hardware:
                module = "kvm_intel" if "vmx" in hardware else "kvm_amd"
                return self.missing("the CPU can, but there is no /dev/kvm", f"modprobe {module}")
            where = "the hypervisor above" if host.is_guest else "the CPU or its firmware setting"
            return self.impossible(f"no /dev/kvm and no vmx or svm: {where} does not offer it")
        try:
            version = host.kvm_version(device)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                return self.missing(
                    "/dev/kvm is there, but not for this user", "usermod -aG kvm USER, new login"
                )
            return self.impossible(f"/dev/kvm does not open: {error.strerror}")
        if version != KVM_API:
            return self.impossible(f"/dev/kvm answers as version {version}, not {KVM_API}")
        if not hardware:
            return self.degraded(
                "/dev/kvm answers, but the CPU shows neither vmx nor svm: guests may hang or crawl",
                "use qemu:accel=auto, which tries a short boot first",
            )
        return self.ok("/dev/kvm answers; a short boot decides before it is used")
