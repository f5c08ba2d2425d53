"""The queueing model against answers that can be worked out by hand."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtax.analysis.queueing import (
    Batching,
    Host,
    batching,
    fitted,
    model_relative_percent,
    model_throughput,
    throughputs,
    validate,
)

seconds = st.floats(1e-6, 1e-1)
WEB = Host(customers=10, service_s=1e-4, link_s=2e-4, guest_s=1.5e-4, client_s=5e-5, delay_s=1e-4)


@given(st.lists(seconds, min_size=1, max_size=5), seconds)
def test_one_customer_takes_the_sum_of_the_demands(demands: list[float], delay: float) -> None:
    assert throughputs(demands, delay, 1)[0] == pytest.approx(1 / (sum(demands) + delay))


@given(seconds, st.integers(1, 6), st.integers(1, 40))
def test_equal_stations_are_shared_evenly(demand: float, stations: int, customers: int) -> None:
    """With K equal stations and N customers, throughput is N / (N + K - 1) of what one station can
    do."""
    found = throughputs([demand] * stations, 0.0, customers)[-1]
    assert found == pytest.approx(customers / (customers + stations - 1) / demand)


def test_the_machine_repair_model() -> None:
    """Three machines, one repairer: the Erlang formula of the M/M/1//N queue."""
    think, repair, machines = 10.0, 2.0, 3
    terms = [
        math.factorial(machines) / math.factorial(machines - n) * (repair / think) ** n
        for n in range(machines + 1)
    ]
    busy = 1 - 1 / sum(terms)
    assert throughputs([repair], think, machines)[-1] == pytest.approx(busy / repair)


@given(st.lists(seconds, min_size=1, max_size=4), seconds, st.integers(1, 30))
def test_throughput_keeps_to_its_bounds(demands: list[float], delay: float, customers: int) -> None:
    """Denning and Buzen's asymptotic bounds, and more customers never hurt."""
    found = throughputs(demands, delay, customers)
    assert found[-1] <= min(1 / max(demands), customers / (sum(demands) + delay)) * (1 + 1e-9)
    assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(found))


@given(st.integers(1, 60), seconds, seconds, seconds, st.floats(0.1, 1.0))
def test_a_rate_that_does_not_depend_on_the_queue_is_a_plain_station(
    customers: int, service: float, guest: float, delay: float, speed: float
) -> None:
    """Both ways of computing agree, so each checks the other."""
    plain = Host(customers, service, guest_s=guest, delay_s=delay)
    constant = dataclasses.replace(plain, batching=Batching(service, 0.0, 1.0))
    assert model_throughput(constant, speed) == pytest.approx(
        model_throughput(plain, speed), rel=1e-9
    )


def test_a_service_alone_loses_all_of_its_speed() -> None:
    assert model_relative_percent(Host(5, 1e-3), 0.5) == pytest.approx(50)
    batches = Host(5, 0.0, batching=Batching(1e-4, 1e-3, 4.0))
    assert model_relative_percent(batches, 0.5) == pytest.approx(50)


def test_one_connection_feels_every_slowdown_and_many_only_the_bottleneck() -> None:
    one = model_relative_percent(dataclasses.replace(WEB, customers=1), 0.5)
    assert one == pytest.approx(100 * 6e-4 / 7e-4)
    many = model_relative_percent(dataclasses.replace(WEB, customers=200), 0.51)
    assert many > 98
    assert model_relative_percent(dataclasses.replace(WEB, customers=200), 0.25) < 52


def test_batching_makes_many_connections_less_sensitive() -> None:
    """Slower service: longer queues, larger batches, less time for each request."""
    link = Host(20, 1e-4, link_s=1.05e-4)
    batches = dataclasses.replace(link, batching=Batching(2e-5, 8e-5, 16.0))
    assert model_relative_percent(batches, 0.5) > model_relative_percent(link, 0.5) + 10


@given(st.floats(1e-6, 1e-3), st.floats(1e-6, 1e-3))
def test_batching_is_found_in_what_follows_it(request: float, wakeup: float) -> None:
    true = Batching(request, wakeup, 8.0)
    found = batching([(batch, true.demand_s(batch)) for batch in (1.0, 2.0, 4.0, 8.0)])
    assert found is not None and found.most == 8
    assert found.per_request_s == pytest.approx(request, rel=1e-6, abs=1e-12)
    assert found.per_wakeup_s == pytest.approx(wakeup, rel=1e-6)
    assert found.demand_s(100) == pytest.approx(true.demand_s(8))


def test_no_batching_is_found_where_there_is_none() -> None:
    assert batching([(1, 1e-4), (2, 1e-4)]) is None
    assert batching([(2, 1e-4), (2, 2e-4), (2, 3e-4)]) is None
    assert batching([(1, 1e-4), (2, 2e-4), (4, 3e-4)]) is None


def test_the_delay_is_what_full_speed_leaves_over() -> None:
    measured = model_throughput(WEB, 1.0)
    found = fitted(dataclasses.replace(WEB, delay_s=0.0), measured)
    assert found is not None and found.delay_s == pytest.approx(WEB.delay_s)
    assert fitted(WEB, 1 / WEB.link_s + 1) is None


def test_the_error_is_that_of_the_worst_and_the_mean_point() -> None:
    points = [(speed, model_relative_percent(WEB, speed / 100)) for speed in (87.0, 61.0, 50.0)]
    exact = validate(WEB, points)
    assert exact is not None and exact.worst_model_error_percent == pytest.approx(0)
    off = validate(WEB, [(points[0][0], points[0][1] + 6), *points[1:]])
    assert off is not None
    assert (off.n, off.worst_model_error_percent) == (3, pytest.approx(6))
    assert off.mean_model_error_percent == pytest.approx(2)
    assert validate(WEB, []) is None
