"""What the service threads of a machine do while a command runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from vtax.core.runner.repetition import Repetition
from vtax.environments.capabilities import Capability, Link
from vtax.place.service_domain import RUNS_A_GUEST, Service, Window, watched
from vtax.workloads.base import Metric

CPU = "service_cpu_percent"
RUN_DELAY = "service_run_delay_percent"
WAKEUPS = "service_wakeups_per_s"
SWITCHES = "service_switches_per_s"
SOFTIRQ = "service_softirq_percent"
GUEST = "guest_cpu_percent"


@dataclass(frozen=True, slots=True)
class ServiceThreads:
    """CPU time, run delay, wakeups and softirq time of the machine's service threads, for each
    second of the load.

    They are watched from before the load's client starts until it has ended: under emulation a
    client takes seconds to start, in which the service has next to nothing to do.
    """

    name: ClassVar[str] = "service-threads"

    service: Service
    seconds: float | None
    """How long the load's client works; None: a load without a client works the whole window."""

    @property
    def needs(self) -> type[Capability]:
        return Link

    @contextmanager
    def around(self, repetition: Repetition) -> Iterator[None]:
        with watched(self.service.pids, self.service.on) as found:
            yield
        (window,) = found
        self.service.seen(window)
        repetition.metrics += metrics(self.service, window, self.seconds)


def metrics(service: Service, window: Window, works_s: float | None) -> list[Metric]:
    """Sums over the service's threads, for each second of `works_s`, or else of the window; a value
    that a thread lacks has no sum.

    Without threads the kernel serves the machine: the CPU time is that of softirqs on all CPUs. A
    host around the machine serves it with all that it does, in the whole window.
    """
    threads, seconds = service.threads, works_s or window.window_s
    work = [each.cpu_s for each in threads]
    if service.around:
        work, seconds = [each.busy_s for each in window.cpus], window.window_s
    found: Mapping[str, tuple[str, float, Sequence[float | None]]] = {
        CPU: ("%", 100.0, work or [each.softirq_s for each in window.cpus]),
        GUEST: ("%", 100.0, [each.cpu_s for each in window.threads if each.role in RUNS_A_GUEST]),
        RUN_DELAY: ("%", 100.0, [each.run_delay_s for each in threads]),
        SOFTIRQ: ("%", 100.0, [each.softirq_s for each in threads]),
        SWITCHES: ("1/s", 1.0, [each.switches for each in threads]),
        WAKEUPS: ("1/s", 1.0, [each.wakeups for each in threads]),
    }
    return [
        Metric(name, unit, "lower", factor * sum(known) / seconds)
        for name, (unit, factor, values) in found.items()
        if (known := [each for each in values if each is not None]) and len(known) == len(values)
    ]
