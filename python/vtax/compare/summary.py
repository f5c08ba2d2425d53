"""The answer in words, computed from the results: one short list per environment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vtax.compare import verdicts
from vtax.compare.families import counted_once
from vtax.core.formats.model import EnvironmentRecord
from vtax.core.page.format import (
    listing,
    one_line,
    percent,
    percent_interval,
    plural,
    seconds_text,
    significant,
)
from vtax.core.statistics.detection import MOST
from vtax.core.statistics.results import (
    Comparison,
    Control,
    Detection,
    Result,
    Verdict,
    leading_metric,
)

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
    """What the A/A control shows: whether the baseline is equal to itself."""

    environment: EnvironmentRecord
    judged: Mapping[Control, Sequence[Result]]
    """Controls with their results, the most precise first."""

    @property
    def metrics(self) -> int:
        return sum(map(len, self.judged.values()))


def results_of(comparison: Comparison, label: str) -> list[Result]:
    """The results of one environment, in the order of the comparison."""
    return [result for result in comparison.results if result.environment == label]


def environments(comparison: Comparison, *roles: str) -> Iterator[EnvironmentRecord]:
    """The environments of the run that have one of these roles."""
    return (env for env in comparison.record.environments if env.role in roles)


def summarise(comparison: Comparison) -> list[EnvironmentSummary]:
    """A summary of each measured environment."""
    return [_summary(comparison, env) for env in environments(comparison, "measured")]


def _summary(comparison: Comparison, environment: EnvironmentRecord) -> EnvironmentSummary:
    results = results_of(comparison, environment.label)
    known = [result for result in results if result.percent_of_baseline is not None]
    once = counted_once([result.metric for result in results], processes(comparison, environment))
    return EnvironmentSummary(
        environment=environment,
        lead=_lead(comparison, known),
        counts=Counter(result.verdict for result in results if result.metric in once),
        slowest=min(known, key=_percent, default=None),
        fastest=max(known, key=_percent, default=None),
    )


def _percent(result: Result) -> float:
    return result.percent_of_baseline if result.percent_of_baseline is not None else float("nan")


def processes(comparison: Comparison, environment: EnvironmentRecord) -> int | None:
    """How many processes of the workload ran in an environment; None: not known."""
    asked = comparison.record.workload_parameters.get("np")
    return asked if isinstance(asked, int) else environment.cpus


def _lead(comparison: Comparison, known: Sequence[Result]) -> Result | None:
    lead = leading_metric(comparison.record)
    return next((result for result in known if result.metric == lead), next(iter(known), None))


def value_phrase(result: Result) -> str:
    """`97.8 % of the baseline (95 % interval 96.9-98.5)`."""
    value = f"{percent(result.percent_of_baseline)} % of the baseline"
    if result.ci_low is None or result.ci_high is None:
        return f"{value} (no interval: {plural(result.n, 'repetition')})"
    return f"{value} (95 % interval {percent_interval(result.ci_low, result.ci_high)})"


def mean_phrase(result: Result) -> str:
    """`, its mean at 97.1 % (95.0-99.2)`; "" where there is no mean."""
    mean = result.mean
    if mean is None:
        return ""
    return f", its mean at {percent(mean.percent)} % ({percent_interval(mean.low, mean.high)})"


def headline(summary: EnvironmentSummary, margin_percent: float) -> str:
    """The environment's answer as one sentence, without its name."""
    if summary.lead is None:
        what = "compared with the baseline" if summary.measured else "measured here"
        return f"nothing could be {what}; the reasons are in the results"
    said = verdicts.phrase(summary.lead, margin_percent)
    name = one_line(summary.lead.metric)
    return f"{name} runs at {value_phrase(summary.lead)}{mean_phrase(summary.lead)}: {said}"


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
    judged: dict[Control, list[Result]] = {}
    for result in sorted(results_of(comparison, environment.label), key=_detectable):
        if result.control is not None:
            judged.setdefault(result.control, []).append(result)
    return NoiseFloor(environment, judged) if judged else None


def _detectable(result: Result) -> float:
    found = result.smallest_detectable_percent
    return math.inf if found is None else found


def noise_sentence(floor: NoiseFloor, margin_percent: float) -> str:
    """The noise floor in words."""
    margin = verdicts.margin_text(margin_percent)
    equal, noisy, different = (
        floor.judged.get(each, ()) for each in (Control.EQUAL, Control.TOO_NOISY, Control.DIFFERS)
    )
    said = [f"{len(equal)} of {plural(floor.metrics, 'metric')} equal within {margin}"]
    if noisy:
        said.append(f"{len(noisy)} too noisy to tell below {_detectables(noisy)}")
    if different:
        names = listing([one_line(result.metric) for result in different])
        said.append(f"{len(different)} different ({names}): something is wrong")
    return f"The baseline against itself: {', '.join(said)}."


def _detectables(noisy: Sequence[Result]) -> str:
    first, last = noisy[0], noisy[-1]
    text = f"{_rounded(first)} % ({one_line(first.metric)})"
    return text if first is last else f"{text} to {_rounded(last)} % ({one_line(last.metric)})"


def _rounded(result: Result) -> str:
    return significant(result.smallest_detectable_percent, 2)


def detection(comparison: Comparison) -> Iterator[tuple[EnvironmentRecord, str]]:
    """How long it takes to see small slowdowns, a sentence for each environment."""
    for env in comparison.record.environments:
        if found := [each for each in comparison.detection if each.environment == env.label]:
            said = "; of ".join(map(_detected, found))
            metric = one_line(found[0].metric)
            yield env, f"A slowdown in {metric} would be seen with a power of 80 %: of {said}."


def _detected(found: Detection) -> str:
    """`1 % after about 45 rounds (24 to 170), 2 min of runs`."""
    if found.rounds is None or found.low is None or found.seconds is None:
        return f"{found.percent:g} % not within {MOST} rounds"
    most = "more" if found.high is None else str(found.high)
    span = f"{found.low} {'or' if found.high is None else 'to'} {most}"
    took = seconds_text(found.seconds)
    return f"{found.percent:g} % after about {found.rounds} rounds ({span}), {took} of runs"
