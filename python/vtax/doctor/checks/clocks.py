"""Checks of the machine's clocks."""

from __future__ import annotations

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding

_SLOW = {"acpi_pm": "about 1 us", "hpet": "about 1 us", "jiffies": "a whole tick", "xen": "a call"}
"""Clock sources that a program cannot read without entering the kernel, or that are coarse."""


class Clocksource(Check):
    """The clock under every wall time; some cannot be read without a system call."""

    name = "clocksource"
    purpose = "wall times"

    def find(self, host: Host) -> Finding:
        folder = "/sys/devices/system/clocksource/clocksource0"
        current = host.read(f"{folder}/current_clocksource")
        if current is None:
            return self.degraded("not known: the kernel does not say")
        if current not in _SLOW:
            return self.ok(current)
        others = (host.read(f"{folder}/available_clocksource") or "").split()
        better = next((name for name in others if name not in _SLOW), None)
        return self.degraded(
            f"{current}: each reading costs {_SLOW[current]}",
            f"echo {better} > {folder}/current_clocksource (as root)" if better else None,
        )


class StealClock(Check):
    """Tells the time in which the hypervisor ran something else; 0 without it means nothing."""

    name = "steal-clock"
    purpose = "stolen time"

    def find(self, host: Host) -> Finding:
        if host.is_guest is False:
            return self.ok("not needed: no hypervisor above steals time")
        facts = host.facts
        if facts is None:
            return self.missing("not known: vtax-agent gave no facts", "make setup")
        clock = facts.get("clock")
        known = clock.get("steal_clock") if isinstance(clock, dict) else None
        if known is True:
            return self.ok("the hypervisor reports stolen time")
        if known is False:
            return self.impossible("the hypervisor offers no steal clock: stolen time is unknown")
        reason = clock.get("steal_reason") if isinstance(clock, dict) else None
        return self.impossible(f"stolen time is unknown: {reason or 'vtax-agent cannot tell'}")


CHECKS = (Clocksource, StealClock)
