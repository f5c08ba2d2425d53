"""The answer in words, computed from the results: one short list per environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vtax.analysis.results import Comparison, Result, Verdict
from vtax.formats.model import EnvironmentRecord
from vtax.present import verdicts
from vtax.present.families import family_of
from vtax.present.format import one_line, percent, percent_interval, plural

LEAD_FAMILIES = ("HPL", "Whole program", "DGEMM")
"""Whose metric stands for the whole in the headline, the first present one."""

_HYPERVISORS = {
    "kvm": "KVM",
    "qemu": "QEMU (software emulation)",
    "uml": "user-mode Linux",
    "user-mode linux": "user-mode Linux",
    "vmware": "VMware",
    "xen": "Xen",
    "microsoft": "Microsoft Hyper-V",
    "hyperv": "Microsoft Hyper-V",
    "oracle": "VirtualBox",
    "amazon": "Amazon Nitro",
}


@dataclass(frozen=True, slots=True)
class EnvironmentSummary:
    """What the results say about one environment."""

    environment: EnvironmentRecord
    lead: Result | None
    """The metric that stands for the whole; None when nothing was measured."""
    counts: Mapping[Verdict, int]
    slowest: Result | None
    fastest: Result | None

    @property
    def measured(self) -> int:
        """How many metrics have a value."""
        return sum(self.counts.values()) - self.counts.get(Verdict.NOT_MEASURED, 0)


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """What the A/A control shows: how far the baseline is from itself."""

    environment: EnvironmentRecord
    metrics: int
    low: Result
    high: Result
    outside: tuple[str, ...]
    """Metrics whose value is further from 100 % than the margin."""


def results_of(comparison: Comparison, label: str) -> list[Result]:
    """The results of one environment, in the order of the comparison."""
    return [result for result in comparison.results if result.environment == label]


def environments(comparison: Comparison, *roles: str) -> Iterator[EnvironmentRecord]:
    """The environments of the run with one of these roles."""
    return (env for env in comparison.record.environments if env.role in roles)


def summarise(comparison: Comparison) -> list[EnvironmentSummary]:
    """A summary of each measured environment."""
    return [_summary(comparison, env) for env in environments(comparison, "measured")]


def _summary(comparison: Comparison, environment: EnvironmentRecord) -> EnvironmentSummary:
    results = results_of(comparison, environment.label)
    known = [result for result in results if result.percent_of_baseline is not None]
    return EnvironmentSummary(
        environment=environment,
        lead=_lead(known),
        counts=Counter(result.verdict for result in results),
        slowest=min(known, key=_percent, default=None),
        fastest=max(known, key=_percent, default=None),
    )


def _percent(result: Result) -> float:
    return result.percent_of_baseline if result.percent_of_baseline is not None else float("nan")


def _lead(known: Sequence[Result]) -> Result | None:
    for title in LEAD_FAMILIES:
        for result in known:
            if family_of(result.metric).title == title:
                return result
    return known[0] if known else None


def value_phrase(result: Result) -> str:
    """`97.8 % of the baseline (95 % interval 96.9-98.5)`."""
    value = f"{percent(result.percent_of_baseline)} % of the baseline"
    if result.ci_low is None or result.ci_high is None:
        return f"{value} (no interval: {plural(result.n, 'repetition')})"
    return f"{value} (95 % interval {percent_interval(result.ci_low, result.ci_high)})"


def headline(summary: EnvironmentSummary, margin_percent: float) -> str:
    """The environment's answer as one sentence without its name."""
    if summary.lead is None:
        what = "compared with the baseline" if summary.measured else "measured here"
        return f"nothing could be {what}; the reasons are in the results"
    said = verdicts.phrase(summary.lead, margin_percent)
    name = one_line(summary.lead.metric)
    return f"{name} runs at {value_phrase(summary.lead)}: {said}"


def baseline_nature(environment: EnvironmentRecord) -> str:
    """What the baseline really is: "native" in a cloud machine is not bare metal."""
    label = one_line(environment.label)
    virtualization = environment.facts.get("virtualization")
    kind = virtualization.get("kind") if isinstance(virtualization, dict) else None
    if not isinstance(kind, str) or not kind:
        return (
            f"It is not known whether “{label}” is bare metal or itself a virtual machine: "
            "the machine facts do not say."
        )
    if kind.lower() in ("none", "bare-metal", "bare metal", "physical"):
        return f"“{label}” shows no sign of a hypervisor: so it is probably bare metal."
    name = _HYPERVISORS.get(kind.lower(), one_line(kind))
    return (
        f"“{label}” here is itself a virtual machine ({name}), not bare metal. "
        "100 % is the speed of that virtual machine, and what its own hypervisor costs is in "
        "no number of this report."
    )


def noise_floors(comparison: Comparison) -> list[NoiseFloor]:
    """What each A/A control of the run shows."""
    floors = (_noise_floor(comparison, env) for env in environments(comparison, "control"))
    return [floor for floor in floors if floor is not None]


def _noise_floor(comparison: Comparison, environment: EnvironmentRecord) -> NoiseFloor | None:
    known = [
        result
        for result in results_of(comparison, environment.label)
        if result.percent_of_baseline is not None
    ]
    if not known:
        return None
    margin = comparison.record.margin_percent
    return NoiseFloor(
        environment=environment,
        metrics=len(known),
        low=min(known, key=_percent),
        high=max(known, key=_percent),
        outside=tuple(r.metric for r in known if abs(_percent(r) - 100) > margin),
    )


def noise_sentence(floor: NoiseFloor, margin_percent: float) -> str:
    """The noise floor in words."""
    margin = verdicts.margin_text(margin_percent)
    span = f"{percent(floor.low.percent_of_baseline)} % ({one_line(floor.low.metric)})"
    span += f" and {percent(floor.high.percent_of_baseline)} % ({one_line(floor.high.metric)})"
    sentence = (
        f"The baseline measured a second time came out between {span} of itself over "
        f"{plural(floor.metrics, 'metric')}. "
    )
    if not floor.outside:
        return f"{sentence}All of it lies within the margin of {margin}."
    verb = "lies" if len(floor.outside) == 1 else "lie"
    return (
        f"{sentence}{len(floor.outside)} of them {verb} outside the margin of {margin}: for these "
        "a difference of that size elsewhere may be noise."
    )
