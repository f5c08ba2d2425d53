"""What makes a CPU's speed change from one moment to the next."""

from __future__ import annotations

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding

_CPU = "/sys/devices/system/cpu"


class CpuFreq(Check):
    """A governor that follows the load makes the first part of a repetition slow."""

    name = "cpufreq"
    purpose = "steady CPU speed"

    def find(self, host: Host) -> Finding:
        files = host.glob(f"{_CPU}/cpu[0-9]*/cpufreq/scaling_governor")
        governors = {file.read_text().strip() for file in files}
        if not governors:
            if host.is_guest:
                return self.impossible("the hypervisor does not show the CPU's frequency")
            driver = "acpi_cpufreq" if host.is_x86 else "cppc_cpufreq"
            return self.missing("no frequency driver is loaded", f"modprobe {driver}")
        if governors == {"performance"}:
            return self.ok("performance on every CPU")
        return self.degraded(
            f"governor {', '.join(sorted(governors))}: speed follows the load",
            f"echo performance | tee {_CPU}/cpu*/cpufreq/scaling_governor (as root)",
        )


class Turbo(Check):
    """A speed above the nominal speed depends on temperature and on how many cores work."""

    name = "turbo"
    purpose = "steady CPU speed"

    def find(self, host: Host) -> Finding:
        for file, on in (("intel_pstate/no_turbo", "0"), ("cpufreq/boost", "1")):
            value = host.read(f"{_CPU}/{file}")
            if value is None:
                continue
            if value != on:
                return self.ok("off")
            return self.degraded(
                "on: speed depends on temperature and on the other cores",
                f"echo {1 - int(on)} > {_CPU}/{file} (as root)",
            )
        if host.is_guest:
            return self.impossible("the hypervisor decides, and does not say")
        return self.impossible("the frequency driver has no switch for it")


class Smt(Check):
    """Two threads of one core take speed from each other."""

    name = "smt"
    purpose = "steady CPU speed"

    def find(self, host: Host) -> Finding:
        active = host.read(f"{_CPU}/smt/active")
        if active is None:
            return self.degraded("not known: the kernel does not say")
        if active == "1":
            return self.degraded(
                "on: CPUs share cores in pairs", f"echo off > {_CPU}/smt/control (as root)"
            )
        if host.is_guest:
            return self.ok("off as seen from here; the hypervisor may still share cores")
        return self.ok("off")


CHECKS = (CpuFreq, Turbo, Smt)
