"""What the study measured, and the numbers that claims, tables and figures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import polars as pl

from vtax import __version__
from vtax.audit.order_drift import Observation, Order, OrderDrift, order_drift
from vtax.compare.analysis import compare
from vtax.core.formats.model import ComparisonRecord, EnvironmentRecord, Sample
from vtax.core.statistics.cpu_wall import CpuWall, Share, cpu_wall
from vtax.core.statistics.results import Result
from vtax_studies.hpcc.setup import CPU, HPL_TIME, MESSAGE_SPECS, NATIVE, TABLE, TCG, WALL
from vtax_studies.hpcc.updates import PerUpdate
from vtax_studies.model import StudyData
from vtax_studies.rule import Missing, some


@dataclass(frozen=True, slots=True)
class Place:
    """An environment that was measured."""

    spec: str
    description: str
    is_guest: bool
    steps_s: float
    """The sum of a step and a reading of its clocks of wall time and of CPU time."""


@dataclass(frozen=True, eq=False)
class Data(StudyData):
    """Every run of HPCC by environment; `samples` are the same runs by size, as campaigns keep
    them."""

    places: Mapping[str, Place]
    observations: Mapping[str, Sequence[Observation]]
    samples: Mapping[int, Sequence[Sample]]
    failures: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Runs without a result."""
    messages: Sequence[Sample] = ()
    """Runs of HPCC as two processes on two CPUs."""
    updates: Sequence[PerUpdate] = ()
    """What an update of RandomAccess pays for."""

    def frames(self) -> Mapping[str, pl.DataFrame]:
        """A row for each run of HPCC."""
        rows = [
            {
                "environment": name,
                "round": each.round,
                "boot": each.boot,
                "order": each.order.value,
                "size": each.size,
                "place": each.place,
                **each.values,
            }
            for name, own in self.observations.items()
            for each in own
        ]
        return {"runs": pl.DataFrame(rows, infer_schema_length=None)}

    def guests(self) -> list[str]:
        """Guests with results. Raises Missing without any."""
        found = [
            name for name, each in self.places.items() if each.is_guest and self.observations[name]
        ]
        reasons = "; ".join(self.left_out.values()) or "none"
        return some(found, f"no guest was measured: {reasons}")

    def without_emulation(self) -> Data | None:
        """The data without the emulated guest; None where no guest is emulated."""
        if TCG not in self.places:
            return None
        return replace(
            self,
            places={name: each for name, each in self.places.items() if name != TCG},
            samples={
                size: [each for each in own if each.environment != TCG]
                for size, own in self.samples.items()
            },
            messages=[each for each in self.messages if each.environment != TCG],
        )

    def sizes(self, name: str) -> list[int]:
        """Sizes with results, ascending. Raises Missing without any."""
        found = sorted({each.size for each in self.observations.get(name, ())})
        return some(found, f"{name}: {self.left_out.get(name, 'not measured')}")


def clocks(data: Data, name: str) -> Mapping[int, CpuWall]:
    """Comparison of both clocks of MPIRandomAccess, by the words of its table."""
    runs: dict[int, list[tuple[float, float]]] = {}
    for each in data.observations[name]:
        if each.values[WALL] > 0:
            pair = (each.values[CPU], each.values[WALL])
            runs.setdefault(int(each.values[TABLE]), []).append(pair)
    some(runs, f"{name}: {data.left_out.get(name, 'not measured')}")
    return {table: cpu_wall(own, data.places[name].steps_s) for table, own in sorted(runs.items())}


def inversions(data: Data, names: Sequence[str]) -> tuple[Share, Share]:
    """How often CPU time is above wall time over all sizes, and how often by more than the clocks'
    steps."""
    every = [each for name in names for each in clocks(data, name).values()]
    both = ([each.inverted for each in every], [each.unexplained for each in every])
    first, second = (
        Share(sum(part.count for part in parts), sum(part.total for part in parts))
        for parts in both
    )
    return first, second


@cache
def drift(data: Data, name: str) -> OrderDrift:
    """Equation 2 for the time of HPL."""
    data.sizes(name)
    return order_drift(data.observations[name], HPL_TIME, reboots=data.places[name].is_guest)


@cache
def compared(data: Data, size: int) -> Mapping[tuple[str, str], Result]:
    """The results of `vtax compare` for a size's runs against native, by environment and metric."""
    specs = {name: each.spec for name, each in data.places.items() if data.observations[name]}
    rounds = {each.round for own in data.observations.values() for each in own}
    return _compared(specs, len(rounds) * len(Order), data.samples[size], f"hpcc N={size}")


@cache
def exchanged(data: Data) -> Mapping[tuple[str, str], Result]:
    """The results of the runs that exchange messages, by environment and metric. Raises Missing
    where none were made natively and in a guest."""
    own = {each.environment for each in data.messages}
    specs = {name: spec for name, spec in MESSAGE_SPECS.items() if name in own}
    if NATIVE not in specs or len(specs) < 2:
        raise Missing("HPCC did not run as two processes on two CPUs natively and in a guest")
    runs = {each.position for each in data.messages if each.environment == NATIVE}
    return _compared(specs, len(runs), data.messages, "hpcc of two processes")


def _compared(
    specs: Mapping[str, str], repetitions: int, samples: Sequence[Sample], title: str
) -> Mapping[tuple[str, str], Result]:
    record = ComparisonRecord(
        vtax_version=__version__,
        command_line=(),
        name=title,
        started_utc="",
        state="complete",
        workload="hpcc",
        workload_parameters={},
        repetitions=repetitions,
        reboot="never",
        budget_s=None,
        margin_percent=2.0,
        seed=1,
        order=(),
        environments=tuple(
            EnvironmentRecord(
                label=name,
                spec=spec,
                role="baseline" if name == NATIVE else "measured",
                baseline=None if name == NATIVE else NATIVE,
                description="",
                facts={},
            )
            for name, spec in specs.items()
        ),
    )
    found = compare(record, samples, "")
    return {(each.environment, each.metric): each for each in found.results}


def result(data: Data, name: str, size: int, metric: str) -> Result:
    """A result in percent of native. Raises Missing when there is none."""
    found = compared(data, size).get((name, metric))
    if found is None or found.percent_of_baseline is None:
        raise Missing(f"{name}: no {metric} at N = {size}")
    return found


def spread(found: Result) -> float:
    """The standard deviation in percent of the median. Raises Missing for a single value."""
    if found.stdev is None or not found.median:
        raise Missing(f"{found.environment}: one value of {found.metric}")
    return 100.0 * found.stdev / found.median
