"""The power that this host draws, by counters of energy (RAPL) or its battery.

Files: Documentation/power/powercap/powercap.rst, Documentation/ABI/testing/sysfs-class-power.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path("/")
LONGEST_S = 120.0
"""The smallest counters hold 2^32 times 15.3 uJ, which 500 W use in 131 s."""
ABSENT = "no energy counters and no battery in use"
REFUSED = "the energy counters may be read by root alone"


@dataclass(frozen=True, slots=True)
class EnergyReading:
    """A counter of energy at a moment, as /sys/class/powercap has it."""

    domain: str
    """Its `name`, such as package-0."""
    at_s: float
    """The moment by the monotonic clock."""
    energy_uj: int
    max_energy_range_uj: int
    """The value after which the counter begins at 0 again."""


def measured_watts(before: EnergyReading, after: EnergyReading) -> float | None:
    """The mean power between two readings of a domain; None where they are no such pair.

    The counter may have begun again once in between, so it must be read often enough.
    """
    seconds = after.at_s - before.at_s
    if seconds <= 0 or before.domain != after.domain:
        return None
    used = after.energy_uj - before.energy_uj
    if used < 0:
        used += before.max_energy_range_uj
    return used / seconds / 1e6 if used >= 0 else None


@dataclass(slots=True)
class Drawn:
    """Mean power during a measurement."""

    watts: Mapping[str, float] = field(default_factory=dict)
    """Watts by what was measured, such as package-0 or battery BAT0."""
    absent: str | None = ABSENT
    """Why nothing was measured."""


@contextmanager
def metered(root: Path = ROOT) -> Iterator[Drawn]:
    """Measure the block; the result is filled in at its end. After more than `LONGEST_S` a counter
    may have begun anew twice."""
    drawn, before = Drawn(), _readings(root)
    yield drawn
    after = _readings(root)
    pairs = [(each, after[zone]) for zone, each in before.items() if zone in after]
    found = {
        first.domain: watts
        for first, last in pairs
        if (watts := measured_watts(first, last)) is not None
    }
    drawn.watts = found or _battery(root)
    if drawn.watts:
        drawn.absent = None
    elif _zones(root) and not before:
        drawn.absent = REFUSED


def _zones(root: Path) -> list[Path]:
    """Zones of packages and of the platform; their parts have a second colon."""
    found = (root / "sys/class/powercap").glob("intel-rapl:*")
    return sorted(zone for zone in found if zone.name.count(":") == 1)


def _readings(root: Path) -> dict[str, EnergyReading]:
    """Readings by zone, without zones that cannot be read."""
    found = {}
    for zone in _zones(root):
        with contextlib.suppress(OSError, ValueError):
            found[zone.name] = EnergyReading(
                domain=(zone / "name").read_text().strip(),
                at_s=time.monotonic(),
                energy_uj=int((zone / "energy_uj").read_text()),
                max_energy_range_uj=int((zone / "max_energy_range_uj").read_text()),
            )
    return found


def _battery(root: Path) -> dict[str, float]:
    """The power that batteries give now; none while they are charged, when the load is not seen."""
    found = {}
    for supply in sorted((root / "sys/class/power_supply").glob("*")):
        with contextlib.suppress(OSError, ValueError):
            if (supply / "type").read_text().strip() != "Battery":
                continue
            if (supply / "status").read_text().strip() != "Discharging":
                continue
            found[f"battery {supply.name}"] = _battery_watts(supply)
    return found


def _battery_watts(supply: Path) -> float:
    if (supply / "power_now").exists():
        return abs(int((supply / "power_now").read_text())) / 1e6
    micro = [int((supply / name).read_text()) for name in ("current_now", "voltage_now")]
    return abs(micro[0]) * micro[1] / 1e12
