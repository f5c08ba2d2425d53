"""Compare like with like: each shape of guest has a baseline with the same CPUs and memory.

What cannot be made the same is said in words beside the numbers (`differences`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vtax.core.errors import MisuseError
from vtax.core.foreign_json import at
from vtax.core.units import format_bytes
from vtax.environments import BASELINE, Environment, build
from vtax.environments.hiding import Shown
from vtax.workloads.base import MachineShape

CONTROL_SUFFIX = "#aa"

FEATURES = ("amx_tile", "avx512f", "avx2", "avx", "fma", "sse4_2")
"""CPU features, widest first, that choose the code path of a BLAS, an FFT or memcpy."""


@dataclass(frozen=True, slots=True)
class ComparedVariant:
    """One environment of the campaign under its label."""

    label: str
    spec: str
    role: Literal["baseline", "control", "measured"]
    baseline: str | None
    environment: Environment
    note: str | None = None
    """What the report says about it."""


NO_BASELINE = "none"
FIRST_IS_REFERENCE = (
    "This environment is the reference of all others (--baseline none): "
    "nothing ran natively as a baseline."
)


def compared_variants(
    specs: Sequence[str], control: bool = True, baseline: str | None = None
) -> tuple[ComparedVariant, ...]:
    """The environments to run: the baselines, their A/A controls, and the measured ones.

    Each guest is compared with a native environment of its own shape: one that `specs` names,
    otherwise one that vtax adds (a bare `native` stands for all of these). A native with options
    that is no guest's baseline is measured against the bare native, and so is a machine elsewhere.
    With `baseline` all are compared with that environment, or, if it is `none`, with the first of
    `specs`, which is the default where all are machines elsewhere.

    Raises MisuseError when nothing is asked for or an environment is given twice.
    """
    if not specs:
        raise MisuseError("no environment is given", "for example --in native --in uml:mem=1G")
    for spec in specs:
        if specs.count(spec) > 1:
            raise MisuseError(
                f"environment '{spec}' is given twice", "the A/A control is automatic"
            )
    asked = {text: build(text) for text in specs}
    if baseline is None and len(asked) > 1 and all(each.is_remote for each in asked.values()):
        baseline = NO_BASELINE
    if baseline is not None:
        return _against(asked, baseline, control)
    baselines = _baselines(asked)
    found: list[ComparedVariant] = []
    for label, native in baselines.items():
        found.append(ComparedVariant(label, label, "baseline", None, native))
        if control:
            found.append(ComparedVariant(label + CONTROL_SUFFIX, label, "control", label, native))
    for text, environment in asked.items():
        if text not in baselines and environment != build(BASELINE):
            against = _baseline_of(environment, baselines)
            found.append(ComparedVariant(text, text, "measured", against, environment))
    return tuple(found)


def pushed(found: Sequence[ComparedVariant], paths: Sequence[Path]) -> tuple[ComparedVariant, ...]:
    """The same environments, with these files brought to those that do not see this machine's.

    Raises MisuseError when all environments see them.
    """
    if paths and all(each.environment.sees_host_files() for each in found):
        raise MisuseError("--push: every environment sees this machine's files", "leave it out")
    return tuple(
        dataclasses.replace(each, environment=each.environment.with_pushed(paths)) for each in found
    )


def showing(found: Sequence[ComparedVariant], shown: Shown) -> tuple[ComparedVariant, ...]:
    """The same environments, whose guests see these files of this machine that are hidden by
    default."""
    return tuple(
        dataclasses.replace(each, environment=each.environment.with_shown(shown)) for each in found
    )


def _against(
    asked: Mapping[str, Environment], baseline: str, control: bool
) -> tuple[ComparedVariant, ...]:
    """The environments with the baseline that the user asked for."""
    label = next(iter(asked)) if baseline == NO_BASELINE else baseline
    note = FIRST_IS_REFERENCE if baseline == NO_BASELINE else None
    reference = asked[label] if label in asked else build(label)
    found = [ComparedVariant(label, label, "baseline", None, reference, note)]
    if control:
        found.append(ComparedVariant(label + CONTROL_SUFFIX, label, "control", label, reference))
    measured = (each for each in asked.items() if each[0] != label)
    found += [ComparedVariant(text, text, "measured", label, machine) for text, machine in measured]
    return tuple(found)


def _baselines(asked: Mapping[str, Environment]) -> dict[str, Environment]:
    """Baselines by label: one for each shape of guest, and the bare one where something needs
    it."""
    bare = build(BASELINE)
    guests = {each.shape(): each for each in asked.values() if each.is_guest}
    natives = {text: each for text, each in asked.items() if type(each) is type(bare)}
    remote = any(each.is_remote for each in asked.values())
    found: dict[str, Environment] = {}
    for guest in guests.values():
        spec = _matched(guest)
        matched = build(spec)
        given = next((text for text, native in natives.items() if native == matched), spec)
        found[given] = matched
    others = [text for text, native in natives.items() if text not in found and native != bare]
    if others or remote or not guests:
        found[BASELINE] = bare
    return found


def _matched(guest: Environment) -> str:
    """The spec of a native with a guest's CPUs and limit; bare where the guest has all CPUs and
    memory."""
    cpus, limit = guest.shape().cpus, guest.memory_limit()
    if limit is not None:
        return f"{BASELINE}:cpus={cpus},mem={_size(limit)}"
    return BASELINE if cpus == build(BASELINE).shape().cpus else f"{BASELINE}:cpus={cpus}"


def _baseline_of(environment: Environment, baselines: Mapping[str, Environment]) -> str:
    shape = environment.shape()
    same = (label for label, native in baselines.items() if native.shape() == shape)
    return next(same) if environment.is_guest else BASELINE


def _size(size: int) -> str:
    """Bytes in the form that a spec takes."""
    for shift, letter in ((30, "G"), (20, "M")):
        if size % (1 << shift) == 0:
            return f"{size >> shift}{letter}"
    return str(size)


def common_shape(environments: Iterable[Environment]) -> MachineShape:
    """The least CPUs and memory of all environments: what a workload may use everywhere."""
    shapes = [each.shape() for each in environments]
    return MachineShape(
        min(shape.cpus for shape in shapes), min(shape.memory_bytes for shape in shapes)
    )


@dataclass(frozen=True, slots=True)
class Observed:
    """What a machine turned out to be."""

    facts: Mapping[str, Any]
    libraries: Mapping[str, str] = dataclasses.field(default_factory=dict)
    memory_limit_error: str | None = None
    is_guest: bool = False


def differences(baseline: Observed, other: Observed) -> tuple[str, ...]:
    """What still differs between two machines, one sentence each; only facts that both report."""
    found = [
        *_features(baseline, other),
        *_libraries(baseline, other),
        *_memory(baseline, other),
        *_plain(baseline, other),
    ]
    return tuple(found)


def _features(baseline: Observed, other: Observed) -> list[str]:
    ours, theirs = (set(at(each.facts, "cpu.flags") or ()) for each in (baseline, other))
    if not ours or not theirs:
        return []
    missing = [name for name in FEATURES if name in ours and name not in theirs]
    if not missing:
        return []
    return [
        f"The CPU offers {', '.join(missing)} to the baseline and not here, "
        "so libraries may choose slower code."
    ]


def _libraries(baseline: Observed, other: Observed) -> list[str]:
    return [
        f"{name} is {other.libraries[name]} here and {baseline.libraries[name]} in the baseline."
        for name in baseline.libraries
        if name in other.libraries and other.libraries[name] != baseline.libraries[name]
    ]


def _memory(baseline: Observed, other: Observed) -> list[str]:
    found = []
    if baseline.memory_limit_error:
        found.append(f"The baseline's memory is not capped: {baseline.memory_limit_error}.")
    total = at(other.facts, "memory.total_bytes")
    if baseline.is_guest:
        ours = at(baseline.facts, "memory.total_bytes")
        if isinstance(ours, int) and isinstance(total, int) and ours != total:
            found.append(
                f"The kernel leaves {format_bytes(total)} of memory to programs here, "
                f"{format_bytes(ours)} in the baseline."
            )
        return found
    limit = at(other.facts, "virtualization.kind") != at(baseline.facts, "virtualization.kind")
    if limit and isinstance(total, int):
        found.append(
            f"The guest's kernel leaves {format_bytes(total)} of its memory to programs; "
            "the baseline's kernel is not counted against its cap."
        )
    return found


_PLAIN = {
    "kernel.release": "Kernel",
    "clock.clocksource": "Clock source",
    "memory.transparent_hugepages": "Transparent huge pages",
    "memory.numa_nodes": "NUMA nodes",
}


def _plain(baseline: Observed, other: Observed) -> list[str]:
    found = []
    for path, name in _PLAIN.items():
        ours, theirs = at(baseline.facts, path), at(other.facts, path)
        if ours is not None and theirs is not None and ours != theirs:
            found.append(f"{name}: {theirs} here, {ours} in the baseline.")
    weaker = _mitigations(baseline.facts, other.facts)
    if weaker:
        found.append(f"CPU mitigations differ: {', '.join(weaker)}.")
    return found


def _mitigations(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    left, right = at(ours, "mitigations") or {}, at(theirs, "mitigations") or {}
    if not isinstance(left, Mapping) or not isinstance(right, Mapping):
        return []
    return sorted(name for name in left if name in right and left[name] != right[name])
