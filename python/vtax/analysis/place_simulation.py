"""The queueing model of a load that was measured, and how well it predicts its points.

What a request takes of a station is the station's utilisation by the throughput (the utilisation
law: Denning and Buzen, "The Operational Analysis of Queueing Network Models", ACM Computing Surveys
1978), both from the controls. The delay is fitted to the throughput at full speed, so the points
below full speed test the model.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from vtax.analysis import queueing
from vtax.analysis.place import FULL, SpeedRun
from vtax.analysis.queueing import Host
from vtax.formats.place import PlaceLoad, PlaceSimulation

STRETCHED = ("cpufreq", "core-type")
"""Backends on which the same work takes more CPU seconds: their runs say nothing about batching."""


def host(runs: Sequence[SpeedRun], customers: int) -> Host | None:
    """The model of one load with `customers` connections or segments in its window, from runs that
    count.

    None: the controls have no throughput in requests or packets, or no CPU time, or no delay
    explains them (`vtax.analysis.queueing.fitted`).
    """
    clean = [run for run in runs if run.mark is None]
    controls = [run for run in clean if run.is_control and _done(run)]
    service = _demand(controls, lambda run: run.service_cpu)
    if service is None:
        return None
    found = Host(
        customers=customers,
        service_s=service,
        link_s=_demand(controls, lambda run: _share(run.device_percent)) or 0.0,
        guest_s=_demand(controls, lambda run: run.guest_cpu) or 0.0,
        client_s=_demand(controls, lambda run: run.client_cpu) or 0.0,
        batching=queueing.batching(_batches(clean)),
    )
    return queueing.fitted(found, statistics.fmean(map(_done, controls)))


def validated(load: PlaceLoad, host: Host) -> PlaceSimulation | None:
    """The model's error at the load's points below full speed that count; None: there are none."""
    return queueing.validate(
        host,
        [
            (point.speed_obtained_percent, point.relative_percent)
            for point in load.points
            if point.speed_asked_percent < FULL
            and not point.marks
            and point.speed_obtained_percent
            and point.relative_percent is not None
        ],
    )


def simulated(
    loads: Iterable[PlaceLoad], runs: Sequence[SpeedRun], customers: Mapping[str, int]
) -> tuple[PlaceLoad, ...]:
    """The loads with the model's error; `customers` by the name of a load that has any."""
    found = []
    for load in loads:
        own = [run for run in runs if (run.environment, run.load) == (load.environment, load.load)]
        model = host(own, customers[load.load]) if load.load in customers else None
        checked = validated(load, model) if model else None
        found.append(load.model_copy(update={"simulation": checked}))
    return tuple(found)


def _done(run: SpeedRun) -> float:
    """Requests per second; for a stream, packets; 0: not known."""
    return run.requests_per_s or run.packets_per_s or 0.0


def _demand(controls: Sequence[SpeedRun], busy: Callable[[SpeedRun], float | None]) -> float | None:
    """Seconds for each request; None: not measured."""
    known = [each / _done(run) for run in controls if (each := busy(run)) is not None]
    return statistics.fmean(known) if known else None


def _share(percent: float | None) -> float | None:
    return None if percent is None else percent / FULL


def _batches(runs: Sequence[SpeedRun]) -> list[tuple[float, float]]:
    """Pairs of requests per wakeup and CPU seconds per request."""
    return [
        (_done(run) / run.wakeups_per_s, run.service_cpu / _done(run))
        for run in runs
        if run.wakeups_per_s
        and run.service_cpu is not None
        and _done(run)
        and (run.is_control or run.backend not in STRETCHED)
    ]
