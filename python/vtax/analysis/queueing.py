"""The simulation of hosts that are not here: a closed queueing network.

A number of customers (connections; for a stream, the segments of its window) go round service
thread, link, guest and client. Each is one server with a queue; what is left of the time of a round
trip is a delay that nobody queues for. Throughput follows by exact mean value analysis (Reiser and
Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks", JACM 1980), which assumes
exponential service or processor sharing. A service thread that batches serves faster the more
requests wait: its rate depends on its queue, and the rest of the network acts on it as one station
with the rest's throughput (Chandy, Herzog and Woo, "Parametric Analysis of Queuing Networks", IBM
Journal 1975), which is exact too.

At a speed s the service thread needs 1 / s of its time for each request, and nothing else changes:
neither caches nor interrupts nor a guest that shares its core are in the model. All that it says
is called *model*.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vtax.analysis.place import FULL
from vtax.analysis.statistics import Floats
from vtax.formats.place import PlaceSimulation

DELAY_STEPS = 60
"""Halvings of the delay when it is fitted: to the last digit of a float."""


@dataclass(frozen=True, slots=True)
class Batching:
    """CPU time of the service thread for a request, by how many are served at one wakeup."""

    per_request_s: float
    per_wakeup_s: float
    most: float
    """Requests per wakeup beyond which nothing was measured."""

    def demand_s(self, batch: float) -> float:
        return self.per_request_s + self.per_wakeup_s / min(max(batch, 1.0), max(self.most, 1.0))


@dataclass(frozen=True, slots=True)
class Host:
    """Seconds that a request takes of each station, at full speed and alone."""

    customers: int
    service_s: float
    link_s: float = 0.0
    guest_s: float = 0.0
    client_s: float = 0.0
    delay_s: float = 0.0
    batching: Batching | None = None
    """None: the service thread takes as long for each of many requests as for one."""


def throughputs(demands_s: Sequence[float], delay_s: float, customers: int) -> Floats:
    """Requests per second with 1, 2, ... customers; shape (customers,).

    Exact mean value analysis of stations with one server each. Infinite where nothing takes time.
    """
    demands = np.asarray(demands_s, dtype=np.float64)
    waiting = np.zeros_like(demands)
    found = np.empty(customers)
    for present in range(1, customers + 1):
        residence = demands * (1.0 + waiting)
        total = float(residence.sum()) + delay_s
        if total <= 0:
            return np.full(customers, np.inf)
        found[present - 1] = present / total
        waiting = found[present - 1] * residence
    return found


def model_throughput(host: Host, speed: float) -> float:
    """Requests per second with the service thread at a speed above 0 and up to 1, full speed."""
    rest = (host.link_s, host.guest_s, host.client_s)
    if host.batching is None:
        every = (host.service_s / speed, *rest)
        return float(throughputs(every, host.delay_s, host.customers)[-1])
    counts = range(1, host.customers + 1)
    rates = np.array([speed / host.batching.demand_s(count) for count in counts])
    return _with_rates(throughputs(rest, host.delay_s, host.customers), rates)


def model_relative_percent(host: Host, speed: float) -> float:
    """Throughput in percent of the throughput at full speed."""
    return FULL * model_throughput(host, speed) / model_throughput(host, 1.0)


def fitted(host: Host, measured: float) -> Host | None:
    """The host with the delay at which the model has the throughput measured at full speed.

    None: the model is slower than that even without any delay. So the stations do not work as the
    model says: there is more than one server, or requests are batched.
    """
    low, high = 0.0, host.customers / measured
    if model_throughput(dataclasses.replace(host, delay_s=0.0), 1.0) < measured:
        return None
    for _ in range(DELAY_STEPS):
        middle = (low + high) / 2.0
        if model_throughput(dataclasses.replace(host, delay_s=middle), 1.0) > measured:
            low = middle
        else:
            high = middle
    return dataclasses.replace(host, delay_s=high)


def batching(samples: Sequence[tuple[float, float]]) -> Batching | None:
    """Fit pairs of requests per wakeup and CPU seconds per request by least squares.

    None: there are fewer than three pairs, all are alike, or a request does not cost less in a
    larger batch.
    """
    if len(samples) < 3:
        return None
    inverse = np.array([1.0 / max(batch, 1.0) for batch, _ in samples])
    cost = np.array([seconds for _, seconds in samples])
    if np.ptp(inverse) == 0:
        return None
    per_wakeup, per_request = np.polyfit(inverse, cost, 1)
    if per_wakeup <= 0 or per_request < 0:
        return None
    return Batching(float(per_request), float(per_wakeup), max(batch for batch, _ in samples))


def validate(host: Host, points: Sequence[tuple[float, float]]) -> PlaceSimulation | None:
    """The model's errors against pairs of speed and measured throughput, in percent of full; None:
    no pair.

    The errors are in percentage points.
    """
    errors = [
        abs(model_relative_percent(host, speed / FULL) - relative) for speed, relative in points
    ]
    if not errors:
        return None
    return PlaceSimulation(
        n=len(errors),
        mean_model_error_percent=statistics.fmean(errors),
        worst_model_error_percent=max(errors),
    )


def _with_rates(rest: Floats, rates: Floats) -> float:
    """Throughput of a station whose rate depends on its queue, with the rest as another station.

    `rates` has the station's with 1, 2, ... customers, `rest` the rest's; requests per second.
    """
    if np.isinf(rest).any():
        return float(rates[-1])
    # Each share: the time with j + 1 customers at the station over that with j; the rest has one
    # less each time.
    steps = np.log(rest[::-1]) - np.log(rates)
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    return float((shares[1:] * rates).sum())
