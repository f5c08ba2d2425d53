"""Where events can be counted from."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from vtax.core.checks.host import CAP_BPF, CAP_PERFMON, Host
from vtax.core.checks.model import Check, Finding
from vtax.core.elf import is_static

DYNAMIC = "; vtax-host is dynamic: a machine into which it is pushed needs libelf"


class Pmu(Check):
    """Hardware counters: cycles, instructions, TLB misses and page walks."""

    name = "pmu"

    def find(self, host: Host) -> Finding:
        count = host.count_cycles()
        paranoid = host.read("/proc/sys/kernel/perf_event_paranoid")
        if count.error in (errno.EACCES, errno.EPERM):
            if paranoid is None:
                return self.impossible("perf events are shut off here (container or seccomp)")
            return self.missing(
                f"kernel.perf_event_paranoid is {paranoid}: not for this user",
                "sysctl kernel.perf_event_paranoid=1 (as root)",
            )
        if count.error:
            why = "this guest was given no PMU" if host.is_guest else "the kernel knows no PMU here"
            return self.impossible(f"{why} ({errno.errorcode.get(count.error, count.error)})")
        if count.value == 0 or count.running_ns == 0:
            # A vPMU without a real one behind it, or all counters taken by another tool.
            return self.degraded(
                "a counter opens but counts nothing",
                "stop other profilers, or give the guest a PMU",
            )
        restricted = paranoid is not None and paranoid.isdecimal() and int(paranoid) >= 2
        if restricted and not host.capable(CAP_PERFMON):
            return self.degraded(
                f"own user-space events only: kernel.perf_event_paranoid is {paranoid}",
                "sysctl kernel.perf_event_paranoid=1 (as root)",
            )
        return self.ok("hardware counters count")


class Ebpf(Check):
    """Counting in the kernel at tracepoints, without a switch for each event."""

    name = "ebpf"

    def find(self, host: Host) -> Finding:
        if "[confidentiality]" in (host.read("/sys/kernel/security/lockdown") or ""):
            return self.impossible("the kernel is locked down for confidentiality")
        if not host.capable(CAP_BPF, CAP_PERFMON):
            return self.missing("needs CAP_BPF and CAP_PERFMON", "run as root")
        if error := host.try_bpf():
            return self.impossible(
                f"bpf(2) is refused: {os.strerror(error)} (kernel setting or container)"
            )
        program = host.program()
        if program is None:
            return self.missing(
                "allowed, but vtax-host is not part of this installation",
                "make setup, or pip install .",
            )
        if not host.exists("/sys/kernel/btf/vmlinux"):
            return self.degraded(
                "works, but the kernel has no type information (BTF): fixed tracepoints only",
                "boot a kernel with CONFIG_DEBUG_INFO_BTF",
            )
        dynamic = "" if is_static(Path(program)) else DYNAMIC
        return self.ok(f"allowed, with type information (BTF){dynamic}")


class Tracefs(Check):
    """The names and formats of tracepoints."""

    name = "tracefs"
    purpose = "tracepoints"

    def find(self, host: Host) -> Finding:
        if "tracefs" not in (host.read("/proc/filesystems") or "").split():
            return self.impossible("the kernel is built without tracing")
        for folder in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing"):
            events = host.path(folder) / "events"
            try:
                if events.is_dir():
                    groups = sum(1 for entry in events.iterdir() if entry.is_dir())
                    return self.ok(f"{folder}, events in {groups} groups")
            except OSError:
                return self.missing(f"{folder} may not be read by this user", "run as root")
        if host.euid != 0:
            return self.missing("not mounted, or not for this user", "run as root")
        return self.missing("not mounted", "mount -t tracefs tracefs /sys/kernel/tracing")


class Rapl(Check):
    """Energy counters of the CPU package."""

    name = "rapl"
    purpose = "energy"

    def find(self, host: Host) -> Finding:
        counters = host.glob("/sys/class/powercap/*-rapl:*/energy_uj")
        if not counters:
            if host.is_guest:
                return self.impossible("hypervisors do not pass the energy counters on")
            if not host.is_x86:
                return self.impossible(f"{host.machine} has no such counters")
            return self.missing("no /sys/class/powercap/*-rapl", "modprobe intel_rapl_msr")
        if not any(os.access(counter, os.R_OK) for counter in counters):
            # Root alone since 2020, when the counters turned out to leak keys.
            return self.missing("the energy counters may be read by root alone", "run as root")
        return self.ok(f"{len(counters)} counter{'s' if len(counters) > 1 else ''}")


CHECKS = (Pmu, Ebpf, Tracefs, Rapl)
