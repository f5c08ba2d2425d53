"""What the kernel of a host says of one guest: totals at a moment, and their differences.

CPU time and run-queue wait of the guest's threads are of /proc/PID/task/TID/schedstat (kernel
document scheduler/sched-stats.rst); a virtual CPU's wait is the steal time that its guest sees. The
host's CPU time is of /proc/stat.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from vtax.core.errors import VtaxError
from vtax.environments import kvm_counters
from vtax.environments.kvm_counters import Counters
from vtax.workloads.base import Metric

LONGEST = 1.2
"""How many times a repetition's own time may pass between the readings around it. What a host did
in more is not the repetition's."""
SCRIPT = """\
head -n 1 /proc/stat
for pid; do grep -sH "" "/proc/$pid"/task/*/schedstat; done
"""
"""A shell's commands that print the totals; its arguments are the processes of the guest."""
HOST_CPU = "host_cpu_s"
"""CPU time of all of the guest's processes, as of instrument `host-cpu`."""
VCPU = "vcpu"
UNKNOWN = "unknown"
"""Roles of threads; crates/host/src/place/role.rs has all roles."""
_SCHEDULE = re.compile(r"/proc/(\d+)/task/(\d+)/schedstat:(\d+) (\d+) \d+")
_USER_HZ = 100
"""Unit of /proc/stat, on every architecture that Linux still has (proc_stat(5))."""
_AGREES, _TICKS_S = 1.1, 0.05
"""By how much the threads' exact time may exceed that of the CPUs, which most kernels sample at
ticks."""
_BUSY = (0, 1, 2, 5, 6)
"""Fields of its first line: user, nice, system, irq, softirq; guest time is in user."""

Thread = tuple[int, int]
"""Process and thread."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Totals at one moment between two of this machine's monotonic clock."""

    begin_s: float
    end_s: float
    absent: tuple[str, ...] = ()
    """Why something is missing, each in a clause."""
    busy_s: float | None = None
    """Time of the host's CPUs, neither idle nor stolen; None: the host was not read."""
    threads: Mapping[Thread, tuple[float, float]] = field(default_factory=dict)
    """CPU time and run-queue wait of the guest's threads, in seconds."""
    roles: Mapping[Thread, str] = field(default_factory=dict)
    """What threads are for. A thread that began later serves the guest."""
    kvm: Counters | None = None

    def vcpus(self) -> Sequence[Thread]:
        return [each for each, role in self.roles.items() if role == VCPU]


def totals(said: str) -> tuple[float, Mapping[Thread, tuple[float, float]]]:
    """`Reading.busy_s` and `Reading.threads`, from what SCRIPT printed.

    Raises VtaxError when it is something else.
    """
    first, *lines = said.splitlines() or [""]
    ticks = first.split()[1:]
    if not first.startswith("cpu ") or len(ticks) < 8 or not all(map(str.isdecimal, ticks)):
        raise VtaxError("the host's /proc/stat is not that of Linux")
    found = filter(None, map(_SCHEDULE.fullmatch, lines))
    threads = {(int(m[1]), int(m[2])): (int(m[3]) / 1e9, int(m[4]) / 1e9) for m in found}
    return sum(int(ticks[at]) for at in _BUSY) / _USER_HZ, threads


def metrics(
    before: Reading, after: Reading, own_s: float
) -> tuple[Sequence[Metric], Iterable[str]]:
    """What the host did between two readings around a repetition of `own_s` seconds, and why
    values are missing."""
    absent = dict.fromkeys((*before.absent, *after.absent))
    if before.busy_s is None or after.busy_s is None:
        return (), absent
    bracket_s = after.end_s - before.begin_s
    if bracket_s > LONGEST * own_s:
        late = f"between the readings passed more than {LONGEST} times the repetition's own time"
        return (), (*absent, late)
    spent = {each: _spent(before, after, each) for each in after.threads}
    values = {"host.bracket_s": bracket_s, "host.busy_s": after.busy_s - before.busy_s}
    vcpus = after.vcpus()
    if vcpus and all(each in before.threads and each in after.threads for each in vcpus):
        values["host.vcpu_s"], values["host.steal_s"] = (
            sum(spent[each][which] for each in vcpus) for which in (0, 1)
        )
    elif vcpus:
        absent["a virtual CPU of the guest has ended there"] = None
    if spent:
        own = (VCPU, UNKNOWN)
        service = [cpu for each, (cpu, _) in spent.items() if after.roles.get(each) not in own]
        values["host.service_s"] = sum(service)
        values[HOST_CPU] = sum(cpu for cpu, _ in spent.values())
        if values[HOST_CPU] <= _AGREES * values["host.busy_s"] + _TICKS_S:
            values["host.others_s"] = max(0.0, values["host.busy_s"] - values[HOST_CPU])
        else:
            absent["the host's CPUs were busy for less time than the guest's threads ran"] = None
    found = [Metric(name, "s", "lower", value) for name, value in values.items()]
    if before.kvm and after.kvm:
        found += kvm_counters.metrics(before.kvm, after.kvm)
    return found, absent


def _spent(before: Reading, after: Reading, thread: Thread) -> tuple[float, float]:
    """CPU time and wait of a thread between two readings; a new thread had none before."""
    now, then = after.threads[thread], before.threads.get(thread, (0.0, 0.0))
    # The number of a thread that has ended may be another thread's by now.
    cpu, wait = then if now[0] >= then[0] else (0.0, 0.0)
    return now[0] - cpu, now[1] - wait
