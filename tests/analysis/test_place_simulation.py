"""The queueing model and its error, from measured runs."""

from __future__ import annotations

import dataclasses

import pytest

import place_data
from vtax.analysis import place, queueing
from vtax.analysis.place import SpeedRun
from vtax.analysis.place_simulation import host, simulated, validated
from vtax.analysis.queueing import Batching, Host

TRUE = Host(customers=4, service_s=1e-4, link_s=2e-4, guest_s=1.5e-4, delay_s=1e-4)
BATCHES = dataclasses.replace(TRUE, batching=Batching(4e-5, 6e-5, 8.0))


def runs(of: Host, backend: str = "quota", off: float = 1.0) -> list[SpeedRun]:
    """The runs of such a host at each speed; below full speed off by a factor."""
    made = []
    for run in place_data.runs(0.0, rounds=2, backend=backend):
        speed = run.speed_asked_percent / 100
        done = queueing.model_throughput(of, speed) * (off if speed < 1 else 1.0)
        made.append(
            dataclasses.replace(
                run,
                throughput=done,
                requests_per_s=done,
                service_cpu=of.service_s * done,
                device_percent=100 * of.link_s * done,
                guest_cpu=of.guest_s * done,
            )
        )
    return made


def test_the_model_finds_the_host_that_made_the_runs() -> None:
    found = host(runs(TRUE), 4)
    assert found is not None
    assert found.service_s == pytest.approx(TRUE.service_s)
    assert found.link_s == pytest.approx(TRUE.link_s)
    assert found.delay_s == pytest.approx(TRUE.delay_s, rel=1e-6)
    (load,) = place.loads(runs(TRUE))
    checked = validated(load, found)
    assert checked is not None and checked.n == 4
    assert checked.worst_model_error_percent == pytest.approx(0, abs=1e-6)


def test_what_the_model_does_not_know_is_its_error() -> None:
    found = host(runs(TRUE), 4)
    (load,) = place.loads(runs(TRUE, off=0.9))
    checked = found and validated(load, found)
    assert checked is not None and 7 < checked.mean_model_error_percent < 10


def test_batching_is_learnt_only_where_cpu_time_is_that_of_a_full_speed_core() -> None:
    def batched(backend: str) -> Host | None:
        return host(
            [
                dataclasses.replace(
                    run,
                    wakeups_per_s=(run.requests_per_s or 0) / batch,
                    service_cpu=(4e-5 + 6e-5 / batch) * (run.requests_per_s or 0),
                )
                for run, batch in zip(runs(BATCHES, backend), (1, 2, 3, 4, 5) * 2, strict=True)
            ],
            4,
        )

    found = batched("hog")
    assert found is not None and found.batching is not None
    assert found.batching.per_wakeup_s == pytest.approx(6e-5)
    assert found.batching.most == 5
    stretched = batched("cpufreq")
    assert stretched is not None and stretched.batching is None


def test_without_requests_or_cpu_time_there_is_no_model() -> None:
    assert host(place_data.runs(0.3), 4) is None
    assert host([dataclasses.replace(run, service_cpu=None) for run in runs(TRUE)], 4) is None
    (load,) = place.loads([run for run in runs(TRUE) if run.is_control])
    assert validated(load, TRUE) is None


def test_a_load_gets_the_error_of_its_own_model() -> None:
    mine = runs(TRUE, off=0.9)
    found = simulated(place.loads(mine + place_data.runs(0.3, load="udp")), mine, {"http": 4})
    assert [load.simulation is not None for load in found] == [True, False]
