"""The outermost machine that vtax can reach: this one, with CPUs and memory capped as asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from vtax.core import binaries
from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import MisuseError
from vtax.core.units import format_bytes, parse_size
from vtax.environments import host_swap
from vtax.environments.base import Allocation, Launch, allowed_cpus, host_memory_bytes, register
from vtax.environments.capabilities import (
    Capability,
    CountPrograms,
    Files,
    RecordInside,
    RecordOutside,
)
from vtax.environments.host_swap import NO_SWAP, HostSwap, refused
from vtax.environments.machine import Machine, counting, shared_tree
from vtax.environments.option_values import cpu_count, process_limit, usual_processes
from vtax.environments.process_environment import ProcessEnvironment
from vtax.workloads.base import MachineShape

SMALLEST_CAP_BYTES = 16 << 20


class BareMetal(Check):
    """A percentage of `native` is a percentage of what this machine is, not of the hardware."""

    name = "bare-metal"
    purpose = "what 'native' means"

    def find(self, host: Host) -> Finding:
        vendor = host.read("/sys/class/dmi/id/sys_vendor")
        product = host.read("/sys/class/dmi/id/product_name")
        model = " ".join(part for part in (vendor, product) if part)
        hypervisor = host.read("/sys/hypervisor/type")
        if host.is_guest is None:
            why = "/proc/cpuinfo lists no CPU flags" if host.is_x86 else "the firmware does not say"
            return self.degraded(f"not known: {why}")
        if not host.is_guest and hypervisor is None:
            return self.ok(f"this is the hardware itself{f' ({model})' if model else ''}")
        what = ", ".join(part for part in (hypervisor, model) if part)
        return self.degraded(
            f"this host is itself a guest{f' ({what})' if what else ''}: "
            "'native' is not bare metal here",
            "measure on bare metal, or say so beside every figure (the report does)",
        )


@register
@dataclass(frozen=True, slots=True)
class Native(ProcessEnvironment):
    """This machine, with CPUs and memory limited as asked.

    Commands run through `vtax-agent serve`: pinned, in a cgroup, killed when vtax is.
    """

    name: ClassVar[str] = "native"
    keys: ClassVar[Mapping[str, str]] = {
        "cpus": "number of CPUs (default: all)",
        "mem": "memory limit, swap included (default: none)",
        **host_swap.KEYS,
        "pids": "most processes and threads of a command (default: 4096, or 64 a CPU if more)",
    }
    examples: ClassVar[Sequence[str]] = (
        "native",
        "native:cpus=2,mem=1G",
        "native:mem=256M,swap=1G",
    )
    offers: ClassVar[Mapping[type[Capability], str]] = {
        Files: "native",
        RecordOutside: "native",
        RecordInside: "native",
        CountPrograms: "native",
    }
    checks: ClassVar[Sequence[type[Check]]] = (BareMetal,)
    is_guest: ClassVar[bool] = False
    cleans_up: ClassVar[bool] = True

    cpus: int | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    swap: HostSwap = NO_SWAP

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        cpus = cpu_count("native", "cpus", options["cpus"]) if "cpus" in options else None
        memory = parse_size(options["mem"]) if "mem" in options else None
        if memory is not None and memory < SMALLEST_CAP_BYTES:
            raise MisuseError(f"native: mem={options['mem']} is too small to start a program in")
        processes = process_limit("native", options["pids"]) if "pids" in options else None
        return cls(cpus, memory, processes, HostSwap.from_options("native", options))

    def shape(self) -> MachineShape:
        available = len(allowed_cpus())
        return MachineShape(self.cpus or available, self.memory_bytes or host_memory_bytes())

    def memory_limit(self) -> int | None:
        return self.memory_bytes

    def has_folder(self, folder: Path) -> bool:
        return True

    def has_host_clock(self) -> bool:
        return True

    def boot_remedy(self) -> str:
        return "run 'vtax doctor'"

    def check(self) -> None:
        binaries.find("vtax-agent")
        self.swap.check("native")

    def capabilities(self, machine: Machine) -> Sequence[Capability]:
        return (*shared_tree(machine), counting(machine))

    def launch(self, allocation: Allocation) -> Launch:
        argv = [
            str(binaries.find("vtax-agent")),
            "serve",
            "--channel",
            f"fd:{allocation.channel_fd}",
        ]
        argv += ["--cpus", ",".join(map(str, allocation.cpus))]
        if self.memory_bytes is not None:
            argv += ["--memory", str(self.memory_bytes)]
        argv += self.swap.options()
        argv += ["--pids", str(self.processes or usual_processes(len(allowed_cpus())))]
        # The next agent, asked for at once, ends what a killed agent could not end.
        sweep = [self.swap.sweep()]
        return Launch(argv, work_inside=allocation.work, boot_timeout_s=10.0, clean_up=sweep)

    def explain_end(self, code: int, console: Sequence[str]) -> tuple[str, str | None] | None:
        return refused(console)

    def description(self, facts: Mapping[str, Any]) -> str:
        shape = self.shape()
        limit = format_bytes(self.memory_bytes) if self.memory_bytes else None
        memory = f"memory limited to {limit}" if limit else "no memory limit"
        memory += self.swap.said()
        kind = facts.get("virtualization", {}).get("kind", "unknown")
        what = {
            "none": "bare metal",
            "unknown": "a machine whose kind is not known",
        }.get(kind, f"itself a virtual machine ({kind})")
        kernel = facts.get("kernel", {}).get("release", "?")
        return f"this machine, {what}, Linux {kernel}, {shape.cpus} CPU, {memory}"
