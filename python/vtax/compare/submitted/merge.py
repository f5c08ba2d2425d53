"""Parts of a comparison as one: rounds, repetitions and starts of machines are counted on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from vtax.compare.submitted.folder import Part
from vtax.core.errors import VtaxError
from vtax.core.formats.model import ComparisonRecord, EnvironmentRecord, MetricReading, Sample


def merged(parts: Sequence[Part], repetitions: int, *, ended: bool) -> Part:
    """One comparison of all parts, of which there is at least one.

    A round stays in its part, and so on its node and in its job. Raises VtaxError when the parts
    are of different comparisons.
    """
    first = parts[0].record
    samples: list[Sample] = []
    order: list[tuple[str, int]] = []
    failures = []
    counts: Counter[str] = Counter()
    boots: Counter[str] = Counter()
    rounds = 0
    for part in parts:
        _require_same(first, part)
        planned = Counter(label for label, _ in part.record.order)
        for each in part.samples:
            samples.append(
                replace(
                    each,
                    node=each.node or part.node,
                    repetition=each.repetition + counts[each.environment],
                    boot=each.boot + boots[each.environment],
                    position=each.position + len(order),
                    round=_round(each) + rounds,
                    run_id=first.run_id,
                )
            )
        failures += [
            each.model_copy(update={"repetition": each.repetition + counts[each.environment]})
            for each in part.record.failures
        ]
        order += [(label, number + counts[label]) for label, number in part.record.order]
        counts += planned
        boots += Counter({each.label: len(each.boot_s) for each in part.record.environments})
        rounds += max(planned.values(), default=0)
    record = first.model_copy(
        update={
            "state": _state(parts, repetitions, ended=ended),
            "repetitions": repetitions,
            "finished_utc": max((p.record.finished_utc or "" for p in parts), default="") or None,
            "order": tuple(order),
            "failures": tuple(failures),
            "readings": _readings(parts),
            "environments": tuple(_environment(each, parts) for each in first.environments),
            "budget_s": None,
        }
    )
    return Part("", "", record, tuple(samples))


def _round(sample: Sample) -> int:
    return sample.repetition if sample.round is None else sample.round


def _require_same(first: ComparisonRecord, part: Part) -> None:
    labels = [[each.label for each in record.environments] for record in (first, part.record)]
    if labels[0] != labels[1] or first.workload != part.record.workload:
        raise VtaxError(
            f"the part on {part.node} of {part.record.started_utc} is of another comparison",
            "move its folder away",
        )


def _state(parts: Sequence[Part], repetitions: int, *, ended: bool) -> str:
    if sum(each.rounds for each in parts) >= repetitions:
        return "complete"
    if not ended:
        return "running"
    states = {each.record.state for each in parts} - {"complete", "running"}
    return states.pop() if len(states) == 1 else "interrupted"


def _readings(parts: Sequence[Part]) -> tuple[MetricReading, ...]:
    found: dict[tuple[str, str], MetricReading] = {}
    for part in parts:
        for each in part.record.readings:
            key = each.environment, each.metric
            before = found.get(key)
            found[key] = each if before is None else each.model_copy(
                update={
                    "matches": (*before.matches, *each.matches),
                    "units": tuple(dict.fromkeys((*before.units, *each.units))),
                }
            )  # fmt: skip
    return tuple(found.values())


def _environment(own: EnvironmentRecord, parts: Sequence[Part]) -> EnvironmentRecord:
    """The first part's machine, with the starts, the notes and the differences of all."""
    alike = [each for part in parts for each in part.record.environments if each.label == own.label]
    nodes = ", ".join(dict.fromkeys(part.node for part in parts))
    return own.model_copy(
        update={
            "boot_s": tuple(each for one in alike for each in one.boot_s),
            "notes": (*dict.fromkeys(n for one in alike for n in one.notes), f"Nodes: {nodes}."),
            "differences": tuple(dict.fromkeys(d for one in alike for d in one.differences)),
            "left_processes": max(each.left_processes for each in alike),
            "absent": dict(sum((Counter(each.absent) for each in alike), Counter[str]())),
        }
    )
