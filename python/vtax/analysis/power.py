"""A model of power: what a core draws, from published numbers. Everything from it says *model*.

A core's power is taken as linear in its utilisation, between idle and busy (Fan, Weber and
Barroso, "Power provisioning for a warehouse-sized computer", ISCA 2007, of whole machines). At
another frequency the dynamic part is C V² f (Chandrakasan, Sheng and Brodersen, "Low-power CMOS
digital design", IEEE JSSC 1992; the Linux kernel's energy model takes the same from a device tree's
`dynamic-power-coefficient`).

Published numbers: the Cortex-A72 and Cortex-A53 of an RK3399 have the coefficients 436 and 100
uW/MHz/V² in Linux (arch/arm64/boot/dts/rockchip/rk3399.dtsi) and their voltages in rk3399-opp.dtsi
of Rockchip's kernel. The eight Golden Cove cores of a Core i9-12900K drew over 168 W in all by
RAPL's core plane (Chips and Cheese, "Alder Lake's Power Efficiency - A Complicated Picture",
2022-01-28). No per-core number of Gracemont was found that separates it from what the cores share,
so there is none here.

Energy counters replace the model where there are some: `EnergyReading` is what a reader of
/sys/class/powercap gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

RK3399_BIG = ((408, 0.8), (600, 0.8), (816, 0.825), (1008, 0.875), (1200, 0.95), (1416, 1.025),
              (1608, 1.1), (1800, 1.2))  # fmt: skip
"""Operating points of the Cortex-A72: MHz and V."""
RK3399_LITTLE = ((408, 0.8), (600, 0.8), (816, 0.85), (1008, 0.925), (1200, 1.0), (1416, 1.125))
"""Operating points of the Cortex-A53: MHz and V."""
GOLDEN_COVE_WATTS = 168.0 / 8


@dataclass(frozen=True, slots=True)
class PowerModel:
    """The power of one core of a class."""

    source: str
    """Says what the numbers are of, for the reader."""
    busy_model_watts: float
    idle_model_watts: float = 0.0
    """0: the source has the dynamic part alone."""

    def model_watts(self, utilisation: float) -> float:
        """Power at a utilisation of 0 to 1; there is none above."""
        share = min(max(utilisation, 0.0), 1.0)
        return self.idle_model_watts + share * self.dynamic_model_watts

    @property
    def dynamic_model_watts(self) -> float:
        """What a busy core draws above an idle one."""
        return self.busy_model_watts - self.idle_model_watts


def operating_points(
    coefficient: float, points: Sequence[tuple[float, float]]
) -> tuple[tuple[float, float], ...]:
    """MHz and modelled watts of one busy core, from uW/MHz/V² and points of MHz and V."""
    return tuple((mhz, coefficient * mhz * volts**2 / 1e6) for mhz, volts in points)


MODELS: Mapping[str, PowerModel] = {
    "cortex-a72": PowerModel(
        "model of an RK3399's Cortex-A72 at 1.8 GHz", operating_points(436, RK3399_BIG)[-1][1]
    ),
    "cortex-a53": PowerModel(
        "model of an RK3399's Cortex-A53 at 1.416 GHz", operating_points(100, RK3399_LITTLE)[-1][1]
    ),
    "golden-cove": PowerModel("model of a Core i9-12900K's P-core at its limit", GOLDEN_COVE_WATTS),
}


def at_speed(full: PowerModel, speed: float) -> PowerModel:
    """The same core slowed by frequency and voltage to that share of its speed, 0 to 1.

    The dynamic part follows the Cortex-A72's operating points; below their slowest, 23 % of the
    fastest, the voltage stays and power falls with frequency alone.
    """
    known = operating_points(436, RK3399_BIG)
    fastest, most = known[-1]
    speeds = [0.0, *(mhz / fastest for mhz, _ in known)]
    shares = [0.0, *(watts / most for _, watts in known)]
    share = float(np.interp(speed, speeds, shares))
    return PowerModel(
        f"{full.source}, at {100 * speed:.3g} % by C V² f",
        full.idle_model_watts + share * full.dynamic_model_watts,
        full.idle_model_watts,
    )


def performance_per_model_watt(relative_percent: float, model_watts: float) -> float | None:
    """Percent of full performance per modelled watt; None: no power."""
    return relative_percent / model_watts if model_watts > 0 else None


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
