"""Points, Combined Usage and elasticity, from the runs of `vtax place measure`.

Relative performance is a ratio within a round: each point against the control of the same round,
which ran at full speed (vtax.core.statistics.rounds). Combined Usage is the CPU utilisation of the
service domain plus the utilisation of the device, both in percent (Kumar and Fedorova, "Towards
Better Performance Per Watt in Virtual Environments on Asymmetric Single-ISA Multi-core Systems",
section 3.2); it may go above 100 %.

Elasticity is the percentage of throughput lost per percentage of speed lost, both from full speed:
14 % lost at half speed is 0.28, as the paper's figure 1 reads. It is the slope of a straight line
through the control (no loss of speed, no loss of throughput), by least squares. The points of a
round share their control and so are one observation (repeated measures by summary statistics:
Matthews, Altman, Campbell and Royston, BMJ 1990); a round with one point and a control of its own
is one observation too. Least squares through a fixed point gives the slowest speeds most weight:
placement asks about these, and they are known best. A slope of log ratios would give an exponent
instead (0.22 for the same point), which is constant only where throughput is a power of speed; a
service that saturates at some speed follows neither, and its slope is an average over the speeds
that were measured.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vtax.core.statistics import rounds
from vtax.core.statistics.statistics import Estimate, bounded_exp
from vtax.core.units import plural
from vtax.place.record import PlaceElasticity, PlaceLoad, PlacePoint

FULL = 100.0
"""The speed of a control."""
SATURATED = "the load generator was saturated"
NOT_HONOURED = "the speed asked for was not held"
OF_CONTROL = "the control: "


@dataclass(frozen=True, slots=True)
class SpeedRun:
    """One measurement of a load. None: not measured."""

    environment: str
    load: str
    backend: str
    speed_asked_percent: float
    round: int
    throughput: float
    """Above 0; more is better."""
    unit: str
    boot: int = 0
    speed_obtained_percent: float | None = None
    service_cpu: float | None = None
    """CPU seconds per second."""
    run_delay: float | None = None
    """Time that the service's threads were ready and did not run."""
    device_percent: float | None = None
    wakeups_per_s: float | None = None
    """Wakeups of the service's threads."""
    requests_per_s: float | None = None
    packets_per_s: float | None = None
    watts: float | None = None
    """The host's power."""
    service_instructions_per_s: float | None = None
    """None also where the machine has no PMU."""
    client_saturated: bool = False
    honoured: bool = True

    @property
    def is_control(self) -> bool:
        return self.speed_asked_percent >= FULL

    @property
    def mark(self) -> str | None:
        """Why the run does not count for elasticity."""
        if self.client_saturated:
            return SATURATED
        return None if self.honoured else NOT_HONOURED


def loads(runs: Iterable[SpeedRun]) -> tuple[PlaceLoad, ...]:
    """One record per environment and load, in the order of their first runs."""
    found: dict[tuple[str, str], list[SpeedRun]] = {}
    for run in runs:
        found.setdefault((run.environment, run.load), []).append(run)
    return tuple(_load(own) for own in found.values())


def findings(found: Iterable[PlaceLoad]) -> tuple[str, ...]:
    """What must be said beside the numbers: backends that disagree, points that are kept apart."""
    said: list[str] = []
    for load in found:
        where = f"{load.environment}, {load.load}"
        for a, b in itertools.combinations(load.by_backend, 2):
            if _apart(a, b):
                said.append(
                    f"{where}: {a.backend} and {b.backend} disagree, {_words(a)} against"
                    f" {_words(b)} % of throughput per % of speed; how the core is slowed decides"
                )
        left_out = sum(point.left_out for point in load.points)
        if left_out:
            said.append(
                f"{where}: {plural(left_out, 'run')} left out: {SATURATED}, or {NOT_HONOURED}"
            )
        apart = [point for point in load.points if point.marks]
        for mark in dict.fromkeys(mark for point in apart for mark in point.marks):
            at = [point for point in apart if mark in point.marks]
            speeds = ", ".join(f"{each.speed_asked_percent:g} % ({each.backend})" for each in at)
            said.append(f"{where}: kept apart at {speeds}: {mark}")
    return tuple(said)


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Elasticity from pairs of speed and throughput in percent of full; None: no speed is below
    full."""
    lost = [(FULL - speed, FULL - throughput) for speed, throughput in points]
    squares = _squares(points)
    return sum(speed * loss for speed, loss in lost) / squares if squares > 0 else None


def elasticity(runs: Sequence[SpeedRun], controls: Sequence[SpeedRun]) -> Estimate | None:
    """Elasticity from runs whose speed was measured, and their controls, of one load and backend.

    A boot is one observation where there are several boots, otherwise a round is. None: no round
    has both. The error is infinite where there is one observation, because nothing says how good it
    is.
    """
    levels = _levels(controls)
    by_round: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for run in runs:
        level = levels.get(run.round)
        if level is not None and run.speed_obtained_percent is not None:
            pair = (run.speed_obtained_percent, FULL * run.throughput / level)
            by_round.setdefault((run.boot, run.round), []).append(pair)
    several = len({boot for boot, _ in by_round}) > 1
    observed: dict[int, list[tuple[float, float]]] = {}
    for (boot, number), points in by_round.items():
        observed.setdefault(boot if several else number, []).extend(points)
    return _over(list(observed.values()))


def _over(observed: Sequence[Sequence[tuple[float, float]]]) -> Estimate | None:
    """Least squares over all points; the error is how much the observations' slopes disagree."""
    weighted = [
        (own, _squares(points)) for points in observed if (own := slope(points)) is not None
    ]
    if not weighted:
        return None
    whole = sum(weight for _, weight in weighted)
    value = sum(own * weight for own, weight in weighted) / whole
    freedom = len(weighted) - 1
    if freedom == 0:
        return Estimate(value, math.inf, 1.0)
    square = sum(weight * (own - value) ** 2 for own, weight in weighted) / freedom / whole
    return Estimate(value, math.sqrt(square), freedom)


def _squares(points: Sequence[tuple[float, float]]) -> float:
    """The weight of a slope through the control."""
    return sum((FULL - speed) ** 2 for speed, _ in points)


def at_full_speed(controls: Sequence[SpeedRun]) -> dict[str, float | None]:
    """The values that may predict elasticity, each the mean over the controls.

    Batching is packets per wakeup or, where packets were not counted, requests per wakeup.
    """
    cpu = _mean(controls, lambda run: run.service_cpu)
    device = _mean(controls, lambda run: run.device_percent)
    delay = _mean(controls, lambda run: run.run_delay)
    return {
        "combined usage": None if cpu is None or device is None else FULL * cpu + device,
        "service CPU": None if cpu is None else FULL * cpu,
        "run delay": None if delay is None else FULL * delay,
        "batching": _mean(controls, _batching),
        "instructions per packet": _mean(
            controls, lambda run: _ratio(run.service_instructions_per_s, run.packets_per_s)
        ),
    }


def _load(runs: Sequence[SpeedRun]) -> PlaceLoad:
    points: list[PlacePoint] = []
    estimates: dict[str, Estimate] = {}
    for backend in dict.fromkeys(run.backend for run in runs):
        own = [run for run in runs if run.backend == backend]
        controls, marks = _counted(_controls(own, runs))
        speeds = sorted({run.speed_asked_percent for run in own}, reverse=True)
        counted = []
        for speed in speeds:
            here = [run for run in own if run.speed_asked_percent == speed]
            chosen, why = _counted(here)
            if speed < FULL:
                why += tuple(OF_CONTROL + mark for mark in marks)
                counted += [] if why else chosen
            points.append(_point(chosen, controls, why, len(here) - len(chosen)))
        if found := elasticity(counted, controls):
            estimates[backend] = found
    by_backend = tuple(_one_backend(name, found) for name, found in estimates.items())
    lows, highs = [each.low for each in by_backend], [each.high for each in by_backend]
    full, _ = _counted([run for run in runs if run.is_control])
    return PlaceLoad(
        environment=runs[0].environment,
        load=runs[0].load,
        points=tuple(points),
        elasticity=statistics.fmean(e.elasticity for e in by_backend) if by_backend else None,
        low=_every(min, lows),
        high=_every(max, highs),
        by_backend=by_backend,
        at_full_speed=at_full_speed(full),
    )


def _controls(own: Sequence[SpeedRun], every: Sequence[SpeedRun]) -> list[SpeedRun]:
    """A backend's own controls, or those of any backend: at full speed none slows anything."""
    return [run for run in own if run.is_control] or [run for run in every if run.is_control]


def _counted(runs: Sequence[SpeedRun]) -> tuple[list[SpeedRun], tuple[str, ...]]:
    """The runs that count; where fewer than half do, all runs with the reasons."""
    clean = [run for run in runs if run.mark is None]
    if not runs or 2 * len(clean) >= len(runs):
        return clean, ()
    return list(runs), tuple(dict.fromkeys(run.mark for run in runs if run.mark is not None))


def _point(
    runs: Sequence[SpeedRun],
    controls: Sequence[SpeedRun],
    marks: tuple[str, ...],
    left_out: int,
) -> PlacePoint:
    relative, low, high = _relative(runs, controls)
    cpu = _mean(runs, lambda run: run.service_cpu)
    device = _mean(runs, lambda run: run.device_percent)
    cpu_low, cpu_high = _interval([run.service_cpu for run in runs])
    return PlacePoint(
        speed_asked_percent=runs[0].speed_asked_percent,
        speed_obtained_percent=_mean(runs, lambda run: run.speed_obtained_percent),
        backend=runs[0].backend,
        relative_percent=relative,
        low=low,
        high=high,
        service_cpu_percent=None if cpu is None else FULL * cpu,
        device_percent=device,
        combined_usage_percent=None if cpu is None or device is None else FULL * cpu + device,
        service_cpu_low=cpu_low,
        service_cpu_high=cpu_high,
        watts=_mean(runs, lambda run: run.watts),
        n=len(runs),
        throughput=statistics.median(run.throughput for run in runs),
        unit=runs[0].unit,
        left_out=left_out,
        marks=marks,
    )


def _interval(shares: Sequence[float | None]) -> tuple[float | None, float | None]:
    """The 95 % interval of the mean, in percent; None where fewer than two runs have a value, or
    one lacks it."""
    known = [FULL * each for each in shares if each is not None]
    if len(known) < 2 or len(known) < len(shares):
        return None, None
    error = statistics.stdev(known) / math.sqrt(len(known))
    mean, half = statistics.fmean(known), Estimate(0.0, error, len(known) - 1).half_width()
    return mean - half, mean + half


def _relative(
    runs: Sequence[SpeedRun], controls: Sequence[SpeedRun]
) -> tuple[float | None, float | None, float | None]:
    """Throughput in percent of the controls', with the interval."""
    if runs[0].is_control:
        return FULL, FULL, FULL
    own, base = _rounds(runs), _rounds(controls)
    if ratio := rounds.log_ratio(own, base):
        half = ratio.half_width()
        low, high = (FULL * bounded_exp(ratio.value + each) for each in (-half, half))
        return FULL * bounded_exp(ratio.value), low, high
    levels = _levels(controls)
    known = [run.throughput / levels[run.round] for run in runs if run.round in levels]
    return (FULL * known[0] if known else None), None, None


def _rounds(runs: Sequence[SpeedRun]) -> list[rounds.Run]:
    return [rounds.Run(run.round, run.boot, run.throughput) for run in runs]


def _levels(controls: Sequence[SpeedRun]) -> dict[int, float]:
    """Throughput at full speed by round."""
    found: dict[int, list[float]] = {}
    for run in controls:
        found.setdefault(run.round, []).append(run.throughput)
    return {number: statistics.geometric_mean(values) for number, values in found.items()}


def _one_backend(name: str, found: Estimate) -> PlaceElasticity:
    half = found.half_width()
    known = math.isfinite(half)
    return PlaceElasticity(
        backend=name,
        elasticity=found.value,
        low=found.value - half if known else None,
        high=found.value + half if known else None,
    )


def _apart(a: PlaceElasticity, b: PlaceElasticity) -> bool:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.high < b.low or b.high < a.low


def _words(each: PlaceElasticity) -> str:
    return f"{each.elasticity:.2f} [{each.low:.2f}, {each.high:.2f}]"


def _every(choose: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    """The chosen value of all runs; None where a run lacks it."""
    known = [value for value in values if value is not None]
    return choose(known) if known and len(known) == len(values) else None


def _mean(runs: Sequence[SpeedRun], value: Callable[[SpeedRun], float | None]) -> float | None:
    known = [each for run in runs if (each := value(run)) is not None]
    return statistics.fmean(known) if known else None


def _batching(run: SpeedRun) -> float | None:
    done = run.requests_per_s if run.packets_per_s is None else run.packets_per_s
    return _ratio(done, run.wakeups_per_s)


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below
