"""Whether two runs measured the same, and what was unlike around it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Self

from vtax.core import foreign_json
from vtax.core.errors import MisuseError
from vtax.core.foreign_json import at
from vtax.core.formats.model import ComparisonRecord, EnvironmentRecord
from vtax.core.page.format import listing

if TYPE_CHECKING:
    from vtax.compare.request import ComparisonRequest

_FACTS: Mapping[str, str] = {
    "CPU model": "cpu.model",
    "kernel": "kernel.release",
    "hypervisor": "virtualization.kind",
    "clock source": "clock.clocksource",
}
_METRIC = "metric "
_AGAIN = "measure the earlier run again with this command"


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run measures, before or after it has run."""

    workload: str
    parameters: Mapping[str, Any]
    labels: tuple[str, ...]
    """Those of its environments, without A/A controls."""

    @classmethod
    def by(cls, record: ComparisonRecord) -> Self:
        """What a run has measured."""
        duet = {"--duet": True} if record.duet else {}
        return cls(record.workload, record.workload_parameters | duet, tuple(environments(record)))

    @classmethod
    def asked(cls, request: ComparisonRequest) -> Self:
        """What a run is going to measure."""
        own = (each.label for each in request.compared_variants if each.role != "control")
        duet = {"--duet": True} if request.places else {}
        return cls(request.workload.name, request.workload.parameters() | duet, tuple(own))


def environments(record: ComparisonRecord) -> dict[str, EnvironmentRecord]:
    """The environments of a run by their labels, without A/A controls, which are their baselines
    once more."""
    return {each.label: each for each in record.environments if each.role != "control"}


def require_same_command(now: Measured, then: Measured, run: str) -> None:
    """Raise MisuseError where the numbers of `run`, which measured `then`, are of something else.

    Only the folder of a user's program may change: every build of CI may have its own.
    """
    if now.workload != then.workload:
        raise MisuseError(f"{run} measured {then.workload}, not {now.workload}", _AGAIN)
    ours, theirs = _parts(now), _parts(then)
    for name in ours | theirs:
        one_sided = name not in ours or name not in theirs
        if ours.get(name) != theirs.get(name) and not (one_sided and name.startswith(_METRIC)):
            said = f"its {name} is {_said(theirs.get(name))}, not {_said(ours.get(name))}"
            raise MisuseError(f"{run} measured another command: {said}", _AGAIN)


def require_shared_environment(now: Measured, then: Measured, run: str) -> None:
    """Raise MisuseError where no environment of `run`, which measured `then`, is measured now."""
    if not set(now.labels) & set(then.labels):
        said = f"{run} has none of these environments, but {listing(then.labels)}"
        raise MisuseError(said, f"for example --in {then.labels[0]}" if then.labels else None)


def _parts(measured: Measured) -> dict[str, Any]:
    """What makes numbers of a workload, by name."""
    parts = foreign_json.parse_object(json.dumps(dict(measured.parameters)))
    for metric in parts.pop("metrics", ()):
        parts[f"{_METRIC}{metric['name']}"] = metric
    # Where rounds draw parameters, "argv" is what the first round ran.
    argv, words = parts.pop("argv", None), parts.pop("words", None)
    if argv := words or argv:
        parts["command line"] = [PurePath(argv[0]).name, *argv[1:]]
    return parts


def _said(part: Any) -> str:
    return "absent" if part is None else json.dumps(part, ensure_ascii=False)


def unlike(now: ComparisonRecord, then: ComparisonRecord) -> tuple[str, ...]:
    """What was otherwise in the earlier run, in a phrase each: `kernel 6.2, was 6.1 (native)`."""
    found: dict[str, list[str]] = {}
    for label, ours in environments(now).items():
        if (theirs := environments(then).get(label)) is not None:
            for name, new, old in _pairs(ours, theirs):
                if new is not None and old is not None and new != old:
                    found.setdefault(f"{name} {new}, was {old}", []).append(label)
    return (
        *(f"{name} {new}, was {old}" for name, new, old in _of_runs(now, then) if new != old),
        *(f"{said} ({listing(labels)})" for said, labels in found.items()),
    )


def _of_runs(now: ComparisonRecord, then: ComparisonRecord) -> Iterator[tuple[str, Any, Any]]:
    yield "vtax", now.vtax_version, then.vtax_version
    commands = (each.workload_parameters.get("argv", ()) for each in (now, then))
    new, old = map(shlex.join, commands)
    yield "command", new, old
    yield "--reboot", now.reboot, then.reboot


def _pairs(now: EnvironmentRecord, then: EnvironmentRecord) -> Iterator[tuple[str, object, object]]:
    for name, path in _FACTS.items():
        yield name, at(now.facts, path), at(then.facts, path)
    yield "CPUs", _cpus(now), _cpus(then)
    for name, library in now.libraries.items():
        yield name, library, then.libraries.get(name)


def _cpus(environment: EnvironmentRecord) -> object:
    return environment.cpus or at(environment.facts, "cpu.online")
