"""The thresholds of an audit's checks, each with its reason; docs/audit.md has the thresholds."""

from __future__ import annotations

from dataclasses import dataclass

from vtax.audit.order_drift import LIMIT_PERCENT

WALL, CPU = "wall_s", "cpu_s"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a check: it passes up to `warn`, fails beyond `fail`, and warns between."""

    warn: float
    fail: float
    why: str
    metrics: tuple[str, ...]
    remedy: str


STEP = Limits(
    1e3, 1e6, "1 us is 0.1 % of a millisecond, 1 ms is 1 % of a tenth of a second", (WALL,),
    "use a finer clock source, or time longer runs",
)  # fmt: skip
COST = Limits(
    200.0, 1e4, "a reading by the vDSO takes 20 to 60 ns, one that leaves the guest 1 us and more",
    (WALL,), "use the clock source tsc or the hypervisor's paravirtual one",
)  # fmt: skip
BACKWARD = Limits(
    0.0, 0.0, "CLOCK_MONOTONIC never steps back", (WALL, CPU),
    "do not measure here: the kernel's clock is broken; try another clock source",
)  # fmt: skip
CPU_STEP = Limits(
    1e6, 1e7, "a kernel that accounts CPU time by its tick has steps of 1 to 10 ms", (CPU,),
    "trust CPU times of long runs only: 100 steps for 1 %",
)  # fmt: skip
CPU_WALL = Limits(
    2.0, 10.0, "a program that only computes uses as much CPU time as wall time passes (equation 1 "
    "of the paper on HPC Challenge in virtualized environments); that paper saw up to 50 %",
    (CPU,), "trust wall time, and look for a busy host where CPU time is the smaller one",
)  # fmt: skip
INVERSION = Limits(
    0.0, 5.0, "CPU time above wall time, beyond both clocks' steps, cannot be", (WALL, CPU),
    "compare with the host's clock: one of the machine's two is wrong",
)  # fmt: skip
RATE = Limits(
    500.0, 5000.0, "NTP slews a clock by at most 500 ppm; ten times that is a wrong clock", (WALL,),
    "set the guest's clock source, or take the host's time (host_wall_s)",
)  # fmt: skip
RTC_RATE = Limits(
    RATE.warn, RATE.fail, "another clock of the same machine, judged as the host's is",
    (WALL,), "set the clock source; where a host emulates the real-time clock, ask host-rate",
)  # fmt: skip
TIMER_STEP = Limits(
    1e3, 1e7, "without high-resolution timers a sleep or a timeout ends at a tick, 1 to 10 ms late",
    (WALL,), "boot without highres=off, on a machine with a one-shot clock event device",
)  # fmt: skip
STEAL = Limits(
    0.0, 1.0, "without a steal clock nobody knows whether the CPU was taken away", (),
    "judge by the A/A control of vtax compare",
)  # fmt: skip
NOISE = Limits(
    1.0, 5.0, "the time that a loop loses to interrupts, other tasks and other guests is in every "
    "result; 1 % is what most comparisons are about", (WALL,),
    "quieten the host, or pin the machine to CPUs of its own",
)  # fmt: skip
ORDER = Limits(
    LIMIT_PERCENT, 15.0, "the order in which sizes run had no noticeable impact on bare metal and "
    "15 to 50 % in guests (equation 2 of the paper on HPC Challenge in virtualized environments)",
    (WALL, CPU), "look for a busy or hot host, and compare in rounds: a reboot does not help",
)  # fmt: skip
ORDER_OF_GUEST = "start the guest again for each run (--reboot each)"
BESIDE = Limits(
    55.0, 75.0, "two on one CPU get half each; more is what taking turns costs", (WALL,),
    "give the machine CPUs of its own",
)  # fmt: skip
UNSEEN = Limits(
    10.0, 50.0, "CPU time is what the machine had: it falls behind wall time by what others took",
    (CPU,), "do not compare CPU times from here unless the host is idle",
)  # fmt: skip
PAUSE = Limits(
    10.0, 1000.0, "a clock that stands still while its machine does makes times around a pause too "
    "short; 10 ms is 1 % of a second", (WALL,),
    "take the host's time (--clock host) where machines are paused or switched",
)  # fmt: skip
