"""What `vtax compare --param` asks for: a comparison at each combination of values.

Environments take parameters too: each combination has its machines, and combinations with the same
text of an environment share one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from vtax.compare.drawing import is_drawn
from vtax.compare.request import ComparisonRequest
from vtax.compare.sweep.analysis import point_seed
from vtax.compare.sweep.parameters import (
    Parameter,
    Values,
    combinations,
    filled,
    parse,
    require_used,
    said,
)
from vtax.compare.verb import CompareOptions, request_of
from vtax.core.command import campaigns
from vtax.core.errors import MisuseError
from vtax.core.runner.campaign import Request
from vtax.core.runner.matching import CONTROL_SUFFIX, ComparedVariant

MOST_MACHINES = 32
"""Machines that are up at the same time; with `--reboot each` only one is."""


@dataclass(frozen=True, slots=True)
class Combination:
    """The comparison at one combination of values."""

    values: Values
    request: ComparisonRequest
    names: Mapping[str, str]
    """By label of an environment, its name in the whole sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest(Request):
    """What `vtax compare --param` is asked for."""

    parameters: tuple[Parameter, ...]
    workload: tuple[str, ...]
    """The command with its placeholders."""
    points: tuple[Combination, ...]


def sweep_of(options: CompareOptions) -> SweepRequest:
    """What the options of a sweep ask for. Raises MisuseError for what cannot be."""
    if options.audit:
        raise MisuseError("--audit looks at the clocks of one comparison", "leave out --param")
    parameters = parse([each for each in options.param or () if not is_drawn(each)])
    specs = tuple(options.environments or ())
    templates = (*specs, *filter(None, [options.baseline]))
    require_used((each.name for each in parameters), (*options.workload, *templates))
    asked = campaigns.asked(options.seed)
    found = []
    for number, values in enumerate(combinations(parameters)):
        texts = filled(templates, values)
        baseline = texts[-1] if options.baseline else None
        seed = point_seed(asked["seed"], number)
        own = replace(options, environments=[*texts[: len(specs)]], baseline=baseline, seed=seed)
        request = request_of(own, values, asked["seed"])
        found.append((values, request, dict(zip(texts, templates, strict=True))))
    labels = [{each.label for each in request.compared_variants} for _, request, _ in found]
    shared = set.intersection(*labels)
    points = tuple(
        Combination(values, request, _names(request.compared_variants, typed, shared))
        for values, request, typed in found
    )
    _require_shareable(points)
    first = points[0].request
    return SweepRequest(
        **campaigns.asked(asked["seed"], first.workdir),
        parameters=parameters,
        workload=tuple(options.workload),
        points=points,
        variables=first.variables,
        budget_s=first.budget_s,
        workdir=first.workdir,
    )


def _names(
    variants: Sequence[ComparedVariant], typed: Mapping[str, str], shared: Collection[str]
) -> Mapping[str, str]:
    """The environments' names by label: what the user typed, where the parameters tell the rest.

    `shared` are labels that all combinations have; a baseline that vtax added is called after what
    is measured against it.
    """
    found: dict[str, str] = {}
    for each in variants:
        against = (typed[own.label] for own in variants if own.baseline == each.label != own.spec)
        if each.label in shared:
            found[each.label] = each.label
        elif each.role == "control":
            found[each.label] = f"{found[each.baseline or '']}{CONTROL_SUFFIX}"
        else:
            added = f"baseline of {next(against, each.label)}"
            found[each.label] = typed.get(each.label, added)
    return found


def _require_shareable(points: Sequence[Combination]) -> None:
    """Raise MisuseError for environments that combinations cannot share a run with."""
    known: dict[str, tuple[ComparedVariant, Values]] = {}
    for point in points:
        for each in point.request.compared_variants:
            other, values = known.setdefault(each.label, (each, point.values))
            if (each.role, each.baseline) != (other.role, other.baseline):
                raise MisuseError(
                    f"'{each.label}' is {_part(other)} at {said(values)}, {_part(each)} at "
                    f"{said(point.values)}",
                    "name one --baseline, or make two runs",
                )
    if len(known) > MOST_MACHINES and points[0].request.reboot == "never":
        raise MisuseError(
            f"{len(known)} machines would be up at once, more than {MOST_MACHINES}",
            "take --reboot each, or fewer values",
        )


def _part(variant: ComparedVariant) -> str:
    """What an environment is in a comparison, in words."""
    return "the baseline" if variant.baseline is None else f"compared with '{variant.baseline}'"
