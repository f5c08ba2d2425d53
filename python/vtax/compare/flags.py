"""Reasons not to take a number at face value, each said in a sentence with its numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vtax.compare.duet import duet_flags
from vtax.compare.readings import reading_flags
from vtax.core.clocks import least_s
from vtax.core.formats.model import (
    WORKING_SET,
    AuditCheck,
    AuditVerdict,
    ComparisonRecord,
    EnvironmentRecord,
    Sample,
)
from vtax.core.statistics.clocks import fact, shortest_duration_s
from vtax.core.statistics.results import Control, Flag, Result
from vtax.core.statistics.statistics import trend
from vtax.core.units import format_bytes, format_seconds

CLOCK_RESOLUTION_S = 0.02
"""Two ticks of a kernel that accounts CPU time by a 100 Hz tick: no smaller inversion counts."""
STEAL_SHARE = 0.01
CLOCK_SHARE = 0.01
CLOCK_LEAST_S = 0.02
"""The least disagreement with the host that counts: the host's figure includes the channel's round
trip, which is a few milliseconds."""
TREND_P = 0.05
"""With five repetitions only a strictly rising or falling order has a smaller p (p = 1/60)."""
FEW = 3
SHORT_KERNEL_S = 1.0

Grouped = Mapping[tuple[str, str], Sequence[Sample]]
"""(environment label, metric) to samples in the order they were taken."""

_STATES = {
    "running": "vtax was ended before the run was",
    "interrupted": "the run was interrupted",
    "budget": "the time budget was used up",
    "failed": "the run failed",
}


def flags(
    record: ComparisonRecord, grouped: Grouped, results: Sequence[Result]
) -> tuple[Flag, ...]:
    """Everything there is to say about a run, environment by environment."""
    found: list[Flag] = []
    for environment in record.environments:
        runs = repetitions(grouped, environment.label)
        own = [result for result in results if result.environment == environment.label]
        found += _failures(record, environment)
        found += _cut_short(record, environment, len(runs))
        found += _few(own, environment, len(runs))
        found += _timer_inversion(environment, runs)
        found += _too_short(environment, runs)
        found += _steal(environment, runs)
        found += _left_processes(environment)
        found += _absent(environment, len(runs))
        found += _clock_disagreement(environment, runs)
        found += _host_time(environment, runs)
        found += _drift(record, environment, grouped)
        found += _control(record, environment, own)
        found += _coarse(record, environment, own)
        found += _audited(record, environment)
        found += reading_flags(record, environment.label)
    found += duet_flags(
        record, [r for e in record.environments for r in repetitions(grouped, e.label)]
    )
    found += _one_boot(record, grouped)
    found += _one_node(record, grouped)
    found += _fits_cache(record)
    found += _short_kernels(record, grouped)
    return tuple(found)


def repetitions(grouped: Grouped, label: str) -> list[Sample]:
    """One sample of each finished repetition: all its samples have what describes the whole run."""
    each = {
        sample.repetition: sample
        for (environment, _), samples in grouped.items()
        if environment == label
        for sample in samples
    }
    return sorted(each.values(), key=lambda sample: sample.position)


def cpu_count(facts: Mapping[str, Any]) -> int | None:
    """The CPUs that the machine's programs could use, from `vtax-agent facts`; None: unknown."""
    cpu = facts.get("cpu")
    if not isinstance(cpu, Mapping):
        return None
    for key in ("allowed", "online", "count"):
        value = cpu.get(key)
        if isinstance(value, list):
            value = len(value)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _failures(record: ComparisonRecord, environment: EnvironmentRecord) -> Iterator[Flag]:
    own = [each for each in record.failures if each.environment == environment.label]
    doubted = [each for each in own if not each.believed]
    if doubted:
        yield Flag(
            environment.label,
            None,
            "not-believed",
            f"In {len(doubted)} of {_times(record.repetitions, 'repetition')} this machine "
            f"contradicts what the host saw (the first: {doubted[0].message}). Believe none of its "
            "numbers until you know why.",
        )
    failed = [each for each in own if each.believed]
    if failed:
        yield Flag(
            environment.label,
            None,
            "failures",
            f"{_times(len(failed), 'repetition')} of {record.repetitions} gave no result "
            f"(the first: {failed[0].message}); what is left may be the luckier part, so find "
            "the cause and run it again.",
        )


def _cut_short(record: ComparisonRecord, environment: EnvironmentRecord, n: int) -> Iterator[Flag]:
    if record.state == "complete":
        return
    failed = sum(each.environment == environment.label for each in record.failures)
    missing = record.repetitions - n - failed
    # A run that lacks no repetition was stopped at its very end: the reader need not know.
    if missing > 0:
        yield Flag(
            environment.label,
            None,
            "cut-short",
            f"{n} of {record.repetitions} planned repetitions finished, because "
            f"{_STATES[record.state]}; they are complete and count, but are fewer than planned.",
        )


def _few(own: Sequence[Result], environment: EnvironmentRecord, n: int) -> Iterator[Flag]:
    if 0 < n < FEW:
        yield Flag(environment.label, None, "few-repetitions", _few_message(n))
    elif n >= FEW:
        for result in own:
            if 0 < result.n < FEW:
                yield Flag(
                    environment.label, result.metric, "few-repetitions", _few_message(result.n)
                )


def _few_message(n: int) -> str:
    if n == 1:
        text = "One value alone says nothing about its own spread, so there is no interval"
    else:
        text = f"{n} values say little about their own spread, so the interval is very wide"
    return f"{text}; run at least {FEW} repetitions, better 5 or more."


def _left_processes(environment: EnvironmentRecord) -> Iterator[Flag]:
    if count := environment.left_processes:
        yield Flag(
            environment.label,
            None,
            "left-processes",
            f"When the command ended, {count} process{'' if count == 1 else 'es'} that it had "
            "started went on, until vtax ended them; what was left to do is in no time here. Let "
            "the command wait, as with sh's wait.",
        )


def _absent(environment: EnvironmentRecord, n: int) -> Iterator[Flag]:
    for why, count in environment.absent.items():
        said = f"In {count} of {_times(n, 'repetition')} some values are absent: {why}."
        yield Flag(environment.label, None, "absent-values", said)


def _timer_inversion(environment: EnvironmentRecord, runs: Sequence[Sample]) -> Iterator[Flag]:
    cpus = environment.cpus or cpu_count(environment.facts)
    if cpus is None:
        return
    excess = {run: run.cpu_s - run.wall_s * cpus for run in runs}
    bad = [run for run in runs if excess[run] > CLOCK_RESOLUTION_S]
    if bad:
        worst = max(bad, key=lambda run: excess[run])
        possible = f" on {cpus} CPUs" if cpus > 1 else ""
        yield Flag(
            environment.label,
            None,
            "timer-inversion",
            f"In {len(bad)} of {_times(len(runs), 'repetition')} the program used more CPU time "
            f"than there was: at worst {format_seconds(worst.cpu_s)} within "
            f"{format_seconds(worst.wall_s)}{possible}. One of this machine's clocks is wrong, so "
            "do not trust times and rates from here; compare them with the host's clock.",
        )


def _too_short(environment: EnvironmentRecord, runs: Sequence[Sample]) -> Iterator[Flag]:
    step, reading = (fact(environment.facts, name) for name in ("step_ns", "reading_ns"))
    shortest_s = shortest_duration_s(step, reading)
    if shortest_s is None:
        return
    short = [run.wall_s for run in runs if run.wall_s < shortest_s]
    if short:
        yield Flag(
            environment.label,
            None,
            "too-short",
            f"{len(short)} of {_times(len(runs), 'repetition')} took as little as "
            f"{format_seconds(min(short))}, and this machine's clock times "
            f"{format_seconds(shortest_s)} and more to 1 %. Give the program more to do.",
        )


def _steal(environment: EnvironmentRecord, runs: Sequence[Sample]) -> Iterator[Flag]:
    unknown = sum(run.steal_s is None for run in runs)
    if unknown:
        yield Flag(
            environment.label,
            None,
            "steal-unknown",
            "This machine has no steal clock, so it is unknown whether a hypervisor gave its "
            "CPU to others meanwhile; judge by the spread and by the A/A control.",
        )
    cpus = environment.cpus or cpu_count(environment.facts) or 1
    shares = [
        run.steal_s / (run.wall_s * cpus)
        for run in runs
        if run.steal_s is not None and run.wall_s > 0
    ]
    high = [share for share in shares if share > STEAL_SHARE]
    if high:
        yield Flag(
            environment.label,
            None,
            "steal",
            f"In {len(high)} of {_times(len(runs), 'repetition')} the hypervisor gave more than "
            f"1 % of this machine's CPU time to others (at worst {_percent(max(high))}): part of a "
            "slowdown is a busy host. Repeat on a quiet host.",
        )


def _clock_disagreement(environment: EnvironmentRecord, runs: Sequence[Sample]) -> Iterator[Flag]:
    if environment.emulated_clock:
        return
    told = {run: run.wall_s if run.told_wall_s is None else run.told_wall_s for run in runs}
    gaps = {run: abs(told[run] - run.host_wall_s) for run in runs}
    bad = [
        run for run in runs if gaps[run] > max(CLOCK_LEAST_S, CLOCK_SHARE * abs(run.host_wall_s))
    ]
    # The host's figure includes whatever kept vtax waiting. A delay is in some repetitions and a
    # slow clock in all; a machine whose clock is the host's has no other to be slow.
    late = [run for run in bad if told[run] < run.host_wall_s]
    if environment.host_clock or len(late) < len(runs):
        bad = [run for run in bad if told[run] > run.host_wall_s]
    if bad:
        worst = max(bad, key=lambda run: gaps[run])
        yield Flag(
            environment.label,
            None,
            "clock-disagreement",
            f"In {len(bad)} of {_times(len(runs), 'repetition')} this machine's clock and the "
            f"host's disagree: at worst {format_seconds(told[worst])} here were "
            f"{format_seconds(worst.host_wall_s)} there. Rates that the program took with its own "
            "clock are wrong by as much; try another clock source.",
        )


def _host_time(environment: EnvironmentRecord, runs: Sequence[Sample]) -> Iterator[Flag]:
    """Flags where the host's time was taken, and where it could not be because an emulator's clock
    lags."""
    taken = {run: run.told_wall_s for run in runs if run.told_wall_s is not None}
    lagging = {
        run: run.wall_s
        for run in runs
        if run not in taken and run.wall_s < least_s(run.host_wall_s)
    }
    if environment.emulated_clock or environment.host_clock:
        lagging = {}
    for kind, found, remedy in (
        (
            "host-time",
            taken,
            "The host's time is taken, whether the machine's clock is wrong or the host was busy. "
            "Repeat on a quiet host where it matters.",
        ),
        (
            "emulator-time",
            lagging,
            "An emulator's clock lags where its host is busy: use what it counts, not its times.",
        ),
    ):
        if found:
            worst = max(found, key=lambda run: run.host_wall_s - found[run])
            yield Flag(
                environment.label,
                None,
                kind,
                f"In {len(found)} of {_times(len(runs), 'repetition')} this machine says less time "
                f"than passed on the host: at worst {format_seconds(found[worst])} of "
                f"{format_seconds(worst.host_wall_s)}. {remedy}",
            )


def _drift(
    record: ComparisonRecord, environment: EnvironmentRecord, grouped: Grouped
) -> Iterator[Flag]:
    for (label, metric), samples in grouped.items():
        if label != environment.label or len(samples) < FEW:
            continue
        values = [sample.value for sample in samples]
        middle = sorted(values)[len(values) // 2]
        found = trend(values)
        share = found.change / abs(middle) if middle else 0.0
        if found.p <= TREND_P and 100 * abs(share) > record.margin_percent:
            way = "rises" if found.change > 0 else "falls"
            yield Flag(
                label,
                metric,
                "drift",
                f"{metric} {way} with time, by {_percent(abs(share))} from the first to the "
                f"last of {len(values)} repetitions; in a random order so clear a trend comes in "
                f"{_percent(found.p)} of cases. Its median mixes different states of the machine: "
                "warm up longer, or boot afresh with --reboot each.",
            )


def _control(
    record: ComparisonRecord, environment: EnvironmentRecord, own: Sequence[Result]
) -> Iterator[Flag]:
    for result in own:
        if result.control is Control.DIFFERS:
            yield Flag(
                environment.label,
                result.metric,
                "aa-control",
                f"The baseline measured against itself is at {result.percent_of_baseline:.1f} % "
                f"(95 % interval {result.ci_low:.1f} to {result.ci_high:.1f} %): something besides "
                f"the environment changes {result.metric}. Find out what differs between the runs "
                "before you believe any ratio of it.",
            )
    noisy = [result for result in own if result.control is Control.TOO_NOISY]
    if noisy:
        worst = max(noisy, key=lambda result: result.smallest_detectable_percent or 0.0)
        yield Flag(
            environment.label,
            None,
            "noise-floor",
            f"{_times(len(noisy), 'metric')} cannot be told from equal at a margin of "
            f"{record.margin_percent:g} %: the noise of the baseline hides differences of less "
            f"than {worst.smallest_detectable_percent:.2g} % ({worst.metric}). Add repetitions or "
            "quieten the host.",
        )


def _coarse(
    record: ComparisonRecord, environment: EnvironmentRecord, own: Sequence[Result]
) -> Iterator[Flag]:
    """A flag for an environment where rounding is no small part of the margin."""
    coarse = [each for each in own if (each.step_percent or 0.0) > record.margin_percent / 4]
    if coarse and environment.role == "measured":
        worst = max(coarse, key=lambda each: each.step_percent or 0.0)
        yield Flag(
            environment.label,
            worst.metric,
            "coarse-values",
            f"{_times(len(coarse), 'metric')} in steps larger than the noise: rounding alone may "
            f"move {worst.metric} by {worst.step_percent:.3g} %, and more repetitions do not "
            "average it away. Print more digits, use a finer clock or give the program more to do.",
        )


def _audited(record: ComparisonRecord, environment: EnvironmentRecord) -> Iterator[Flag]:
    """What the audits before and after say of the metrics: for each check the worse of the two."""
    doubtful: dict[str, AuditCheck] = {}
    for card in (*record.audit_before, *record.audit_after):
        for check in card.checks if card.spec == environment.label else ():
            if check.verdict in (AuditVerdict.WARN, AuditVerdict.FAIL) and check.metrics:
                known = doubtful.get(check.name)
                if known is None or known.verdict is AuditVerdict.WARN:
                    doubtful[check.name] = check
    if doubtful:
        named = ", ".join(f"{name} ({each.verdict.value})" for name, each in doubtful.items())
        metrics = sorted({metric for each in doubtful.values() for metric in each.metrics})
        yield Flag(
            environment.label,
            None,
            "audit",
            f"The audit doubts {' and '.join(metrics)} of this machine: {named}. The reasons and "
            "what to do are in run.json, and vtax audit prints them.",
        )


def _one_boot(record: ComparisonRecord, grouped: Grouped) -> Iterator[Flag]:
    """A flag for the run: where a machine was started once, its interval lacks a source of
    spread."""
    once = []
    for environment in record.environments:
        runs = repetitions(grouped, environment.label)
        if environment.role == "measured" and len(runs) > 1 and len({r.boot for r in runs}) == 1:
            once.append(environment.label)
    if once:
        yield Flag(
            once[0],
            None,
            "one-boot",
            f"All repetitions ran in one boot ({', '.join(once)}), so the intervals do not "
            "include how much results change from boot to boot; use --reboot each to include it.",
        )


def _one_node(record: ComparisonRecord, grouped: Grouped) -> Iterator[Flag]:
    """A flag for the run: what was found on one node of a cluster may not hold on another."""
    for environment in record.environments:
        nodes = {run.node for run in repetitions(grouped, environment.label)} - {None}
        if environment.role != "control" and len(nodes) == 1:
            yield Flag(
                environment.label,
                None,
                "one-node",
                f"All repetitions ran on one node ({nodes.pop()}), so the intervals do not include "
                "how much results change from node to node; use nodes= to include it.",
            )
            return


def _fits_cache(record: ComparisonRecord) -> Iterator[Flag]:
    """A flag for the run: kernels that stay in the cache say nothing about memory."""
    size = record.workload_parameters.get(WORKING_SET)
    if not isinstance(size, int):
        return
    for environment in record.environments:
        cache = last_level_cache_bytes(environment.facts)
        if environment.role == "baseline" and cache is not None and size <= cache:
            yield Flag(
                environment.label,
                None,
                "fits-cache",
                f"The workload goes over {format_bytes(size)} and the last-level cache has "
                f"{format_bytes(cache)}: its bandwidths and latencies are those of the cache. "
                "Choose a larger problem to measure memory.",
            )


def _short_kernels(record: ComparisonRecord, grouped: Grouped) -> Iterator[Flag]:
    """A flag for the run, by the baseline: in short kernels, starting and page faults count."""
    for environment in record.environments:
        ran = {
            metric: statistics.median(times)
            for (label, metric), samples in grouped.items()
            if label == environment.label
            and (times := [each.ran_s for each in samples if each.ran_s is not None])
        }
        short = [metric for metric, seconds in ran.items() if seconds < SHORT_KERNEL_S]
        if environment.role == "baseline" and short:
            least, most = min(short, key=ran.__getitem__), max(short, key=ran.__getitem__)
            yield Flag(
                environment.label,
                None,
                "short-kernel",
                f"{len(short)} of {_times(len(ran), 'kernel')} ran for less than a second, from "
                f"{format_seconds(ran[least])} ({least}) to {format_seconds(ran[most])} ({most}): "
                "page faults and the first touch of memory are part of their rates. Choose a "
                "larger problem.",
            )


def last_level_cache_bytes(facts: Mapping[str, Any]) -> int | None:
    """The size of the largest cache in the facts of a machine; None: not known."""
    cpu = facts.get("cpu")
    caches = cpu.get("caches") if isinstance(cpu, Mapping) else None
    sizes = [
        size
        for each in (caches if isinstance(caches, list) else [])
        if isinstance(each, Mapping) and isinstance(size := each.get("size_bytes"), int)
    ]
    return max(sizes, default=None)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
