"""Hosts by tax, what changed since a host's last run, and outliers among hosts.

The numbers of a run are those of its report. Here they are only compared: performance as the log of
what is left of native speed, or of a baseline's own speed, with the error that its interval has.
Outliers: Iglewicz & Hoaglin 1993, "How to detect and handle outliers" (the modified z-score).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from vtax.compare.analysis import compare
from vtax.compare.saved import saved
from vtax.compare.sweep.record import ComparisonSweepRecord, SweepResult
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.folder import read_samples
from vtax.core.formats.model import (
    AuditRecord,
    AuditVerdict,
    ComparisonRecord,
    EnvironmentRecord,
)
from vtax.core.formats.samples import fault_of
from vtax.core.specs import Spec, parse_spec
from vtax.core.statistics.results import Comparison, Flag, Result, Verdict, leading_metric
from vtax.core.statistics.statistics import Estimate, bounded_exp, from_interval, median
from vtax.core.statistics.verdicts import edge, judge
from vtax.environments import registry
from vtax.environments.capabilities import Nodes
from vtax.fleet.runs import Found, Run
from vtax.fleet.separation import Facts, Separation, facts_of, separations

SWEEP_MARGIN = 2.0
"""A sweep keeps no margin; this is that of `vtax compare`."""
LEAST_HOSTS = 3
CUTOFF = 3.5
"""The modified z-score above which Iglewicz & Hoaglin call a value an outlier."""
NORMAL_MAD = 0.6745
"""The median absolute deviation of the normal distribution, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Change:
    """Performance in a host's latest run, in percent of that in the run before."""

    percent: float
    low: float
    high: float
    """The 95 % interval, by the errors of both runs."""
    verdict: Verdict
    since: str
    """The run before."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric of an environment on a host, in the host's latest run of a command."""

    host: str
    command: str
    """What ran, in words."""
    key: str
    """What ran, with all options."""
    environment: str
    result: Result | SweepResult
    lead: bool
    """Whether the metric stands for the whole."""
    baseline: bool
    run: str
    started_utc: str
    margin_percent: float
    facts: Facts
    """Those of the environment and of its baseline."""
    change: Change | None = None

    @property
    def group(self) -> tuple[str, str, str]:
        """What is compared among hosts."""
        return self.key, self.environment, self.result.metric

    @property
    def performance(self) -> Estimate | None:
        """The log of what is left of native speed or, of a baseline, of its own speed; None: there
        is no interval."""
        r = self.result
        own = (r.median, r.median_low, r.median_high)
        found = own if self.baseline else (r.percent_of_baseline, r.ci_low, r.ci_high)
        value, low, high = (each or 0.0 for each in found)
        if not 0 < low <= value <= high < math.inf:
            return None
        log = from_interval(value, low, high, r.n)
        return -log if self.baseline and r.better == "lower" else log


@dataclass(frozen=True, slots=True)
class Outlier:
    """Hosts that are all slower, or all faster, than what is usual among hosts."""

    command: str
    environment: str
    metric: str
    side: Verdict
    percent: Mapping[str, float]
    """The performance of each of these hosts, in percent of the median of all hosts."""
    hosts: int
    """All hosts that were compared."""
    facts: int
    """The facts that were compared: those that are known of each host."""
    separations: tuple[Separation, ...]


@dataclass(frozen=True, slots=True)
class Fleet:
    """Everything that the page and `--json` show."""

    measured: tuple[Measured, ...]
    outliers: tuple[Outlier, ...]
    flags: Mapping[str, Sequence[Flag]]
    """By host, those of its latest run of each command."""
    runs: int
    left_out: int
    """Runs of verbs that neither compare nor audit."""
    unreadable: tuple[str, ...]


def analyse(found: Found) -> Fleet:
    """Read the results of each run, and compare hosts; an unreadable run costs a line."""
    history: dict[tuple[str, ...], list[Measured]] = {}
    flags: dict[tuple[str, str], list[Flag]] = {}
    unreadable, left_out = list(found.unreadable), 0
    for run in sorted(found.runs, key=lambda each: each.record.started_utc):
        try:
            comparison = _compared(run)
        except VtaxError as error:
            unreadable.append(run.said(error))
            continue
        rows = list(_measured(run, comparison))
        for row in rows:
            before = history.get((row.host, *row.group), [])
            history[row.host, *row.group] = [*before[-1:], row]
        own = _flags(run, comparison)
        flags |= {(host, rows[0].key if rows else ""): each for host, each in own.items()}
        left_out += not rows and not own
    latest = [replace(rows[-1], change=_change(rows)) for rows in history.values()]
    by_host: dict[str, list[Flag]] = {}
    for (host, _), each in sorted(flags.items()):
        by_host.setdefault(host, []).extend(each)
    runs = len(found.runs) - left_out - len(unreadable) + len(found.unreadable)
    outliers = tuple(_outliers(latest))
    return Fleet(tuple(latest), outliers, by_host, runs, left_out, tuple(unreadable))


def _compared(run: Run) -> Comparison | None:
    """What the run's comparison found: as it saved it or else computed again; None: the run is no
    plain comparison. Raises VtaxError when its files are damaged."""
    if not isinstance(run.record, ComparisonRecord):
        return None
    edge(run.record.margin_percent)
    kept = saved(run.record, run.path)
    if kept is not None:
        return kept
    samples = read_samples(run.path, fault_of(run.record))
    return compare(run.record, samples, run.name)


def _place(spec: str, label: str, host: str) -> tuple[str, str]:
    """The host of an environment, and what it is called there: a remote machine is a host itself.

    `ssh:web1,cpus=2` is the environment `ssh:cpus=2` of the host `web1`. Nodes that a scheduler
    chose are no host that comes again: they are an environment of the machine that asked for them.
    """
    try:
        parsed = parse_spec(spec)
    except MisuseError:
        return host, label
    cls = registry().get(parsed.name)
    if cls is None or not cls.is_remote or cls.target_key is None or Nodes in cls.offers:
        return host, label
    own = {key: value for key, value in parsed.options.items() if key != cls.target_key}
    target = parsed.target or parsed.options.get(cls.target_key)
    return (target or host), str(Spec(parsed.name, own))


def _measured(run: Run, comparison: Comparison | None) -> Iterator[Measured]:
    where = {each.label: _place(each.spec, each.label, run.host) for each in run.environments}
    roles = {each.label: each.role for each in run.environments}
    facts = _facts(run.environments, where)
    for command, options, lead, margin, result in _results(run, comparison):
        label = result.environment
        if roles.get(label, "control") == "control" or not result.n:
            continue
        yield Measured(
            host=where[label][0],
            command=command,
            key=json.dumps(options, sort_keys=True),
            environment=where[label][1],
            result=result,
            lead=result.metric == lead,
            baseline=roles[label] == "baseline",
            run=run.name,
            started_utc=run.record.started_utc,
            margin_percent=margin,
            facts=facts[label],
        )


def _results(
    run: Run, comparison: Comparison | None
) -> Iterator[tuple[str, object, str, float, Result | SweepResult]]:
    """Each result with its command in words, all options, the leading metric and the margin."""
    record = run.record
    if comparison is not None and isinstance(record, ComparisonRecord):
        options = (record.workload, record.workload_parameters)
        lead, margin = leading_metric(record), record.margin_percent
        for each in comparison.results:
            yield record.name, options, lead, margin, each
    elif isinstance(record, ComparisonSweepRecord):
        for point in record.points:
            for found in point.results:
                yield point.workload, ("sweep", point.workload), record.lead, SWEEP_MARGIN, found


def _facts(
    environments: Sequence[EnvironmentRecord], where: Mapping[str, tuple[str, str]]
) -> Mapping[str, Facts]:
    """The facts of each environment and of its baseline, each named by where it holds."""
    own = {
        each.label: {f"{where[each.label][1]} {path}": v for path, v in facts_of(each).items()}
        for each in environments
    }
    return {each.label: own[each.label] | own.get(each.baseline or "", {}) for each in environments}


def _flags(run: Run, comparison: Comparison | None) -> dict[str, list[Flag]]:
    """The flags of each host in a run; empty where there is nothing to be said against it."""
    found: dict[str, list[Flag]] = {}
    where = {each.label: _place(each.spec, each.label, run.host)[0] for each in run.environments}
    for host in where.values():
        found[host] = []
    for flag in comparison.flags if comparison else ():
        found.setdefault(where.get(flag.environment, run.host), []).append(flag)
    if isinstance(run.record, AuditRecord):
        for card in run.record.environments:
            own = found.setdefault(_place(card.spec, card.spec, run.host)[0], [])
            bad = {AuditVerdict.FAIL, AuditVerdict.WARN}
            own += [
                Flag(card.spec, None, "audit", f"The audit's {c.name}: {c.verdict}. {c.reason}")
                for c in card.checks
                if c.verdict in bad
            ]
    return found


def _change(rows: Sequence[Measured]) -> Change | None:
    """How the latest of a host's runs differs from the one before; None: nothing can be said."""
    if len(rows) < 2:
        return None
    before, now = rows[-2].performance, rows[-1].performance
    if before is None or now is None:
        return None
    ratio = now - before
    half = ratio.half_width()
    value, low, high = (100 * bounded_exp(ratio.value + each) for each in (0.0, -half, half))
    return Change(value, low, high, judge(ratio, rows[-1].margin_percent), rows[-2].run)


def _outliers(latest: Sequence[Measured]) -> Iterator[Outlier]:
    groups: dict[tuple[str, str, str], dict[str, Measured]] = {}
    for each in latest:
        if each.performance is not None:
            groups.setdefault(each.group, {})[each.host] = each
    for group in groups.values():
        first, outlying = next(iter(group.values())), _outlying(group)
        for side in dict.fromkeys(verdict for verdict, _ in outlying.values()):
            chosen = {host: far for host, (verdict, far) in outlying.items() if verdict is side}
            usual = group.keys() - outlying.keys()
            facts = {host: group[host].facts for host in (*chosen, *usual)}
            yield Outlier(
                command=first.command,
                environment=first.environment,
                metric=first.result.metric,
                side=side,
                percent=chosen,
                hosts=len(group),
                facts=len(set.intersection(*(set(each) for each in facts.values()))),
                separations=tuple(separations(facts, frozenset(chosen))),
            )


def _outlying(group: Mapping[str, Measured]) -> dict[str, tuple[Verdict, float]]:
    """The hosts of a group that are outliers, on which side, and their performance in percent of
    the median host's: by more than the spread among hosts allows, and beyond the margin with all of
    the interval."""
    found = {host: each.performance for host, each in group.items()}
    known = {host: each for host, each in found.items() if each is not None}
    if len(known) < LEAST_HOSTS:
        return {}
    centre = median([each.value for each in known.values()])
    spread = median([abs(each.value - centre) for each in known.values()])
    outlying: dict[str, tuple[Verdict, float]] = {}
    for host, each in known.items():
        apart = replace(each, value=each.value - centre)
        verdict = judge(apart, group[host].margin_percent)
        far = NORMAL_MAD * abs(apart.value) > CUTOFF * spread
        if far and verdict in (Verdict.SLOWER, Verdict.FASTER):
            outlying[host] = verdict, 100 * bounded_exp(apart.value)
    return outlying
