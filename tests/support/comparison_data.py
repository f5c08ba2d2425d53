"""Runs of a comparison, made from a few values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from vtax.compare.analysis import compare
from vtax.core.formats.model import Better, ComparisonRecord, EnvironmentRecord, Sample
from vtax.core.statistics.results import Comparison, Flag, Result

FACTS: dict[str, Any] = {"cpu": {"online": 1}}

Role = Literal["baseline", "control", "measured"]


def environment(
    label: str, role: Role = "measured", baseline: str | None = "native", facts: Any = None
) -> EnvironmentRecord:
    return EnvironmentRecord(
        label=label,
        spec=label.partition("#")[0],
        role=role,
        baseline=None if role == "baseline" else baseline,
        description=f"a {label}",
        facts=FACTS if facts is None else facts,
    )


NATIVE = environment("native", "baseline")
CONTROL = environment("native#aa", "control")
UML = environment("uml")


def record(*environments: EnvironmentRecord, **changes: Any) -> ComparisonRecord:
    fields: dict[str, Any] = {
        "vtax_version": "0",
        "command_line": ("vtax",),
        "name": "x",
        "started_utc": "2026-01-01T00:00:00+00:00",
        "state": "complete",
        "workload": "command",
        "workload_parameters": {},
        "repetitions": 5,
        "reboot": "each",
        "budget_s": None,
        "margin_percent": 2.0,
        "seed": 1,
        "order": (),
        "environments": environments or (NATIVE, UML),
    }
    return ComparisonRecord(**(fields | changes))


def sample(label: str, repetition: int, value: float, **changes: Any) -> Sample:
    found = Sample(
        environment=label,
        workload="command",
        metric="wall_s",
        unit="s",
        better="lower",
        value=value,
        repetition=repetition,
        boot=repetition,
        position=repetition,
        wall_s=1.0,
        cpu_s=0.9,
        steal_s=0.0,
        host_wall_s=1.001,
        max_rss_bytes=1,
        minor_faults=0,
        major_faults=0,
        voluntary_switches=0,
        involuntary_switches=0,
    )
    return replace(found, **changes)


def values(label: str, found: Sequence[float], **changes: Any) -> list[Sample]:
    return [sample(label, index, value, **changes) for index, value in enumerate(found)]


def run(
    by_label: Mapping[str, Sequence[float]], better: Better = "lower", **changes: Any
) -> dict[str, Result]:
    """Results of one metric by environment; the first environment is the baseline."""
    first, *others = by_label
    environments = (
        environment(first, "baseline"),
        *(environment(label, baseline=first) for label in others),
    )
    samples = [s for label, v in by_label.items() for s in values(label, v, better=better)]
    found = compare(record(*environments, **changes), samples, "runs/x").results
    return {result.environment: result for result in found}


def kinds(found: Comparison, label: str | None = None) -> list[str]:
    return [flag.kind for flag in found.flags if label is None or flag.environment == label]


def only(found: Comparison, kind: str) -> Flag:
    (flag,) = [flag for flag in found.flags if flag.kind == kind]
    # One sentence or two for the terminal, never a paragraph.
    assert "\n" not in flag.message and flag.message.endswith(".") and len(flag.message) < 400
    return flag


STEADY = [1.00, 1.01, 0.99, 1.005, 0.995]
