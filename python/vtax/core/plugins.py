"""Environments, workloads, policies and studies of other packages, found by their entry points.

A package declares in its pyproject.toml, for example:

    [project.entry-points."vtax.environments"]
    libkrun = "their_package.libkrun:Libkrun"

The name is what the command line takes. A plugin that cannot be used is named in a warning on
standard error and skipped; everything else works on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Any

ENVIRONMENTS, WORKLOADS, POLICIES = "vtax.environments", "vtax.workloads", "vtax.policies"
STUDIES = "vtax.studies"
_KINDS = {
    ENVIRONMENTS: "environment",
    WORKLOADS: "workload",
    POLICIES: "policy",
    STUDIES: "study",
}


def load(
    group: str, known: Collection[str], fault: Callable[[str, Any], str | None]
) -> dict[str, Any]:
    """The usable plugins of a group by name.

    `known` are names that are taken. `fault` returns what is wrong with a loaded object, or None.
    """
    found: dict[str, Any] = {}
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        try:
            plugin = entry.load()
            taken = entry.name in known or entry.name in found
            wrong = "the name is taken" if taken else fault(entry.name, plugin)
        except Exception as error:  # whatever somebody else's module raises when it is imported
            wrong = f"{type(error).__name__}: {error}"
        if wrong:
            _warn(entry, wrong)
        else:
            found[entry.name] = plugin
    return found


def missing(plugin: Any, names: Collection[str]) -> str | None:
    """The attributes that a class lacks and its kind must have; None when it has all of them."""
    if not isinstance(plugin, type):
        return f"{plugin!r:.60} is not a class"
    lacking = sorted(name for name in names if not hasattr(plugin, name))
    return f"the class has no {', '.join(lacking)}" if lacking else None


def _warn(entry: EntryPoint, reason: str) -> None:
    package = entry.dist.name if entry.dist else "?"
    kind = _KINDS[entry.group]
    first = reason.splitlines()[0]
    print(f"vtax: {kind} '{entry.name}' of package {package} is skipped: {first}", file=sys.stderr)
