"""The threads and interrupts of this host that work for guests, as advice takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vtax.place import energy, interrupts, links, memory, service_domain
from vtax.place.host_advice import HostThread
from vtax.place.interrupt_advice import HostInterrupt
from vtax.place.plan import cpu_numbers
from vtax.place.service_domain import Thread, Window


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen during a window."""

    window_s: float
    threads: tuple[HostThread, ...]
    interrupts: tuple[HostInterrupt, ...]
    devices: Mapping[str, float]
    """Utilisation of links in percent, by service domain."""
    drawn: energy.Drawn
    notes: tuple[str, ...]


def look(pids: Sequence[int], seconds: float, rate_bits: float | None) -> Look:
    """Watch these processes and what they started; all guests when no process is given.

    Raises VtaxError when watching fails.
    """
    first = of_window(service_domain.look(pids)) if rate_bits else ()
    with energy.metered() as drawn, links.used(first, rate_bits) as devices:
        window = service_domain.look(pids, seconds)
    # After the window: the kernel's walk over a guest's memory is not part of the guest's work.
    threads = memory.located(of_window(window))
    own = interrupts.found(threads, theirs=bool(pids))
    return Look(window.window_s, threads, own, devices, drawn, window.notes)


def of_window(window: Window) -> tuple[HostThread, ...]:
    """The threads as the program prints them, sorted by guest and thread."""
    found = [_thread(each, window.window_s) for each in window.threads]
    return tuple(sorted(found, key=lambda each: (each.guest or "", each.pid, each.tid)))


def _thread(each: Thread, seconds: float) -> HostThread:
    def per_second(value: float | None) -> float | None:
        return None if value is None else value / seconds

    return HostThread(
        pid=each.pid,
        tid=each.tid,
        start_ticks=each.start_ticks,
        name=each.name,
        role=each.role,
        service=each.service,
        guest=each.guest,
        cpu=per_second(each.cpu_s),
        run_delay=per_second(each.run_delay_s),
        cpus=_cpus(each.cpus),
        last_cpu=each.last_cpu,
        cpuset=_cpus(each.cpuset),
    )


def _cpus(text: str | None) -> tuple[int, ...]:
    """CPU numbers; empty where nothing states them."""
    try:
        return cpu_numbers(text) if text else ()
    except ValueError:
        return ()
