"""An emulated arm64 machine, whose clock and PMU count instructions.

QEMU emulates a PMU for arm64 and none for x86, so this environment has hardware counters on any
machine. What it counts is *emulated*: instructions as QEMU executes them, one after the other.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from vtax.core import binaries, cache
from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.files import write_atomic
from vtax.core.units import format_bytes
from vtax.environments import hiding, packages, qemu_program, sandbox
from vtax.environments.base import Allocation, Launch, MachineLike, register
from vtax.environments.capabilities import Capability, CountPrograms, Files, Pause, RecordInside
from vtax.environments.copying_machine import CopyingMachine
from vtax.environments.hiding import Shown
from vtax.environments.initramfs import newc
from vtax.environments.machine import Machine, counting, pausing
from vtax.environments.machine_command import MachineCommand
from vtax.environments.option_values import guest_memory
from vtax.environments.process_environment import ProcessEnvironment
from vtax.workloads.base import MachineShape

PROGRAM = "qemu-system-aarch64"
PACKAGE = "qemu-system-arm"
CPU = "cortex-a76"
"""This CPU has a PMU of six general counters and one for cycles (PMUv3)."""
SMALLEST_BYTES = 256 << 20
BOOT_TIMEOUT_S = 180.0
"""A boot takes 5 s on an idle machine."""
FURNISH_TIMEOUT_S = 60.0
MOST_ICOUNT = 10
"""QEMU's limit for the shift."""
KERNELS = (("linux-image-6.12-cloud-arm64:arm64", "linux-image-cloud-arm64:arm64"),)
"""PMUv3, BTF and virtio's console are built in. Debian 12 has 6.12 beside its own."""
BUSYBOX = ("busybox-static:arm64",)
AGENT = "/run/vtax/vtax-agent"
RECORDER = "/bin/vtax-host"
SHELL = "/bin/busybox"
FOLDERS = ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp")


class Arm64(Check):
    """An emulated arm64 machine has hardware counters, also where this one has none."""

    name = "qemu-arm64"
    purpose = "environment qemu-arm64"

    def find(self, host: Host) -> Finding:
        program = host.which(PROGRAM)
        if program is None:
            return self.missing(
                f"{PROGRAM} is not installed", host.install(PACKAGE, "QEMU for arm64")
            )
        version = re.search(r"version (\S+)", host.run([program, "--version"]).first_line)
        if version is None:
            return self.missing(f"{program} does not run", None)
        if host.arm64_agent() is None:
            return self.missing("the agent is not built for arm64", "make arm64")
        cached = (host.cache / "vtax/arm64").glob("kernel-*/boot/vmlinuz-*")
        if not any(cached) and (reason := packages.obstacle(packages.ARM64, host.root)):
            return self.impossible(f"no kernel of arm64: {reason}")
        return self.ok(f"{program}, version {version[1]}")


@register
@dataclass(frozen=True, slots=True)
class QemuArm64(ProcessEnvironment):
    """An emulated arm64 machine whose clock and hardware counters count instructions."""

    name: ClassVar[str] = "qemu-arm64"
    keys: ClassVar[Mapping[str, str]] = {
        "icount": "each instruction takes 2^N ns; off: no instruction counter (default: 1)",
        "mem": "memory (default: 1G)",
    }
    examples: ClassVar[Sequence[str]] = ("qemu-arm64", "qemu-arm64:icount=0,mem=512M")
    offers: ClassVar[Mapping[type[Capability], str]] = {
        CountPrograms: "qemu-arm64",
        Files: "qemu-arm64",
        Pause: "qemu-arm64",
        RecordInside: "qemu-arm64",
    }
    checks: ClassVar[Sequence[type[Check]]] = (Arm64, sandbox.Bubblewrap)
    own_counter: ClassVar[bool] = True

    icount: int | None = 1
    memory_bytes: int = 1 << 30
    pushed: tuple[Path, ...] = ()

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        return cls(
            icount=_icount(options.get("icount", "1")),
            memory_bytes=guest_memory("qemu-arm64", options.get("mem", "1G"), SMALLEST_BYTES),
        )

    def shape(self) -> MachineShape:
        # One CPU: with more, QEMU counts the instructions of all of them together.
        return MachineShape(1, self.memory_bytes)

    def sees_host_files(self) -> bool:
        return False

    def with_pushed(self, paths: Sequence[Path]) -> Self:
        return replace(self, pushed=tuple(paths))

    def emulates_clock(self) -> bool:
        return self.icount is not None

    def agent_inside(self) -> str:
        return AGENT

    def check(self) -> None:
        program()
        sandbox.bubblewrap()
        binaries.find("vtax-agent", binaries.ARM64)
        if reason := files_obstacle():
            raise VtaxError(f"qemu-arm64: no kernel of arm64: {reason}")

    def launch(self, allocation: Allocation) -> Launch:
        kernel, initramfs = boot_files()
        box = sandbox.Box(
            work=allocation.work,
            view=hiding.view(Shown()),
            read_only={kernel: _inside("kernel"), initramfs: _inside("initramfs")},
        )
        argv = sandbox.command(box, self._qemu(allocation.channel_fd))
        notes = ("Time and hardware counters are emulated: they count instructions.",)
        return Launch(
            sandbox.pinned(allocation.cpus, argv),
            sandbox.WORK,
            BOOT_TIMEOUT_S,
            notes if self.emulates_clock() else (),
        )

    def start(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        return EmulatedMachine(self, work, cpus, self.pushed)

    def capabilities(self, machine: Machine) -> Sequence[Capability]:
        return (
            Files(machine.push, machine.pull),
            counting(machine),
            pausing(machine),
            RecordInside(_recorder),
        )

    def description(self, facts: Mapping[str, Any]) -> str:
        release = facts.get("kernel", {}).get("release", "?")
        count = "" if self.icount is None else f", 2^{self.icount} ns an instruction"
        return (
            f"emulated arm64 ({CPU}, QEMU TCG{count}), Linux {release}, "
            f"1 CPU, {format_bytes(self.memory_bytes)}"
        )

    def _qemu(self, channel_fd: int) -> list[str]:
        line = [str(program()), "-machine", "virt,gic-version=3", "-cpu", CPU, "-smp", "1"]
        line += ["-accel", "tcg,thread=single", "-m", f"{self.memory_bytes >> 20}M"]
        if self.icount is not None:
            line += ["-icount", f"shift={self.icount},sleep=off"]
        line += qemu_program.BARE
        line += ["-kernel", str(_inside("kernel")), "-initrd", str(_inside("initramfs"))]
        line += ["-append", _PARAMETERS]
        return [*line, *qemu_program.agent_port(channel_fd)]


# The kernel's tests of its ciphers would share the CPU with the first program. Programs have equal
# addresses each time: how long some loops over memory are depends on them.
_PARAMETERS = (
    "console=ttyAMA0 quiet panic=-1 cryptomgr.notests norandmaps vtax.lower=initramfs "
    f"vtax.channel=virtio:{qemu_program.CHANNEL}"
)


class EmulatedMachine(CopyingMachine):
    """A machine that has nothing but busybox and what is copied into it."""

    def furnish(self) -> None:
        install = [SHELL, "--install", "-s", "/bin"]
        self._agent.run(MachineCommand(install, {}, "furnish", FURNISH_TIMEOUT_S))


def program() -> Path:
    """QEMU for arm64; raises VtaxError with the remedy when it is missing."""
    return qemu_program.named(PROGRAM, PACKAGE)


def files_obstacle() -> str | None:
    """Why there are no kernel and shell; None when they are there or can be fetched."""
    if _kernels_fetched():
        return None
    return packages.obstacle(packages.ARM64)


def _kernels_fetched() -> bool:
    return packages.fetched(packages.ARM64, "kernel", with_needs=KERNELS) and packages.fetched(
        packages.ARM64, "busybox", BUSYBOX
    )


def boot_files() -> tuple[Path, Path]:
    """The kernel and the initramfs; they are fetched and made in the cache (10 s the first time).

    Raises VtaxError with the remedy when they cannot be made.
    """
    (kernel,) = packages.fetch(packages.ARM64, "kernel", with_needs=KERNELS).glob("boot/vmlinuz-*")
    agent = binaries.find("vtax-agent", binaries.ARM64).read_bytes()
    busybox = packages.fetch(packages.ARM64, "busybox", BUSYBOX) / "bin/busybox"
    programs = {"init": agent, SHELL[1:]: busybox.read_bytes()}
    with contextlib.suppress(VtaxError):  # Only recordings need it, and they say so.
        programs[RECORDER[1:]] = binaries.find("vtax-host", binaries.ARM64).read_bytes()
    archive = newc(programs, FOLDERS)
    initramfs = cache.folder("arm64") / "initramfs"
    with cache.locked(initramfs):
        if not initramfs.is_file() or initramfs.read_bytes() != archive:
            # A guest that still boots from the old one has it open.
            write_atomic(initramfs, archive)
    return kernel, initramfs


def _recorder() -> str:
    binaries.find("vtax-host", binaries.ARM64)
    return RECORDER


def _icount(text: str) -> int | None:
    if text == "off":
        return None
    if not text.isdecimal() or int(text) > MOST_ICOUNT:
        raise MisuseError(f"qemu-arm64: icount={text} must be off or a number to {MOST_ICOUNT}")
    return int(text)


def _inside(name: str) -> Path:
    return sandbox.WORK.parent / name
