"""Instruments by name: what `compare --with` takes. A new instrument is a file here and a line
below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from vtax.core.errors import MisuseError
from vtax.core.runner.instruments.counts import Counts
from vtax.core.runner.instruments.host_cpu import HostCpu
from vtax.core.runner.instruments.host_readings import HostSide
from vtax.core.runner.instruments.kvm_counters import Counting
from vtax.core.runner.instruments.record import Recording
from vtax.core.runner.repetition import Instrument
from vtax.core.specs import unknown
from vtax.environments.base import Environment, offering

INSTRUMENTS: Mapping[str, Callable[[], Instrument]] = {
    "counts": Counts,
    "host-cpu": HostCpu,
    "host-side": HostSide,
    "kvm-counters": Counting,
    "record": Recording,
}
ALWAYS = ("kvm-counters", "host-side")
"""Instruments that cost next to nothing: each is used wherever a machine has what it needs."""


def chosen(names: Sequence[str], environments: Sequence[Environment]) -> tuple[Instrument, ...]:
    """The instruments of these names, and those of ALWAYS.

    Raises MisuseError for an unknown name, and for one that no environment has the means for.
    """
    for name in names:
        if name not in INSTRUMENTS:
            raise unknown("instrument", name, INSTRUMENTS)
        needed = INSTRUMENTS[name]().needs
        if not any(needed in each.offered() for each in environments):
            raise MisuseError(
                f"--with {name}: none of the environments offers '{needed.name}' ({needed.about})",
                f"environments that do: {', '.join(offering(needed)) or 'none'}",
            )
    return tuple(INSTRUMENTS[name]() for name in dict.fromkeys((*ALWAYS, *names)))


def usable(instruments: Sequence[Instrument], environment: Environment) -> tuple[Instrument, ...]:
    """The instruments that an environment has the means for."""
    return tuple(each for each in instruments if each.needs in environment.offered())
