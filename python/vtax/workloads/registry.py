"""Workloads by name, and the workload of a command line."""

from __future__ import annotations

import difflib
import functools
import shutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar, Protocol, Self, TypeVar

from vtax.core import plugins
from vtax.core.checks.model import Check
from vtax.core.errors import MisuseError
from vtax.workloads.base import Workload

BUILT_IN = ("hpcc", "dgemm", "stream", "command")
"""The modules of vtax's own workloads, in the order in which they are shown."""

IMPLICIT = "command"
"""The workload of a command line that does not begin with a workload's name."""

_EXAMPLE = "write for example 'vtax compare --in native -- hpcc --preset small'"


class WorkloadClass(Workload, Protocol):
    """A class that can be registered. The first line of its docstring says what it is."""

    checks: ClassVar[Sequence[type[Check]]] = ()
    """What `vtax doctor` looks for."""

    @classmethod
    def from_args(cls, args: Sequence[str], metric_patterns: Sequence[str]) -> Self:
        """The workload of the words after its name.

        `metric_patterns` are the values of ``--metric``. Raises MisuseError for options that are
        wrong; ``--help`` prints help and exits with code 0.
        """
        ...


_REGISTERED: dict[str, type[WorkloadClass]] = {}


Registered = TypeVar("Registered", bound=type[WorkloadClass])


def register(cls: Registered) -> Registered:
    """Class decorator: make the workload known by its name."""
    _REGISTERED[cls.name] = cls
    return cls


@functools.cache
def registry() -> Mapping[str, type[WorkloadClass]]:
    """All workloads by name: vtax's own, then those of other packages (`vtax.core.plugins`)."""
    for module in BUILT_IN:
        import_module(f"vtax.workloads.{module}")
    own = {module: _REGISTERED[module] for module in BUILT_IN}
    return own | plugins.load(plugins.WORKLOADS, own, _fault)


_NEEDED = (
    *("name", "checks", "from_args", "parameters", "label", "command", "metrics", "needs"),
    *("libraries", "expected_metrics"),
)


def _fault(name: str, plugin: Any) -> str | None:
    if wrong := plugins.missing(plugin, _NEEDED):
        return wrong
    return None if plugin.name == name else f"its class is called '{plugin.name}'"


def names() -> list[str]:
    """The names of all workloads, sorted."""
    return sorted(registry())


def parse(argv: Sequence[str], metric_patterns: Sequence[str] = ()) -> Workload:
    """The workload of a command line: ``hpcc --preset small``, ``command sleep 1``, ``sleep 1``.

    A first word that names no workload begins a `command`, unless no such program exists here and
    the word is close to a workload's name: that is a typing error, and raises MisuseError.
    """
    if not argv:
        raise MisuseError("there is nothing to run", _EXAMPLE)
    first, rest = argv[0], argv[1:]
    cls = registry().get(first)
    if cls is None:
        _refuse_slip(first)
        cls, rest = registry()[IMPLICIT], argv
        # An option in this place is more likely vtax's own, written behind the "--" by mistake.
        if first.startswith("-"):
            raise MisuseError(f"a command cannot begin with '{first}'", _EXAMPLE)
    return cls.from_args(rest, metric_patterns)


def _refuse_slip(word: str) -> None:
    if "/" in word or shutil.which(word):
        return
    nearest = difflib.get_close_matches(word, names(), n=1, cutoff=0.6)
    if nearest:
        raise MisuseError(
            f"there is no workload and no program '{word}'", f"did you mean '{nearest[0]}'?"
        )
