"""The modes of a simulation by name: fixed ones, policies with parameters, policies in Python."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vtax.core import plugins
from vtax.core.errors import MisuseError
from vtax.core.specs import unknown
from vtax.paging import native
from vtax.paging.policy import Policy, Steering, name_of, steering

Value = bool | int | float | str
"""The value of a policy's parameter."""
Parameters = Mapping[str, Mapping[str, Value]]
"""Parameters by policy and name."""

ALL = "all"


@dataclass(frozen=True, slots=True)
class Mode:
    """One mode; the compiled model reads it by the names of its fields."""

    name: str
    parameters: Mapping[str, Value] = field(default_factory=dict)
    steering: Steering | None = None
    """Set for a policy in Python."""


def available() -> tuple[str, ...]:
    """The names of all modes: fixed ones, policies, the oracle, and policies of other packages."""
    return (*native.load().mode_names(), *installed())


@functools.cache
def installed() -> Mapping[str, type[Policy]]:
    """Policies of other packages by name (`vtax.core.plugins`)."""
    return plugins.load(plugins.POLICIES, (*native.load().mode_names(), ALL), _fault)


def _fault(name: str, plugin: Any) -> str | None:
    if not (isinstance(plugin, type) and issubclass(plugin, Policy)):
        return "it is not a class derived from vtax.paging.Policy"
    called = plugin.name or plugin.__name__
    return None if called == name else f"its class is called '{called}'"


def policies() -> tuple[str, ...]:
    """The names of the policies, which take parameters."""
    return tuple(native.load().policy_names())


def choose(
    wanted: str | Sequence[str | Policy | type[Policy]], parameters: Parameters
) -> tuple[Mode, ...]:
    """The modes in the order given, each once; "all" stands for every name.

    Raises MisuseError for an unknown name, no mode at all, and parameters of a policy that does not
    run.
    """
    items = (wanted,) if isinstance(wanted, str) else wanted
    chosen: dict[str, Mode] = {}
    for item in items:
        for mode in _modes(item, parameters):
            if mode.steering is not None and mode.name in chosen:
                raise MisuseError(f"two modes are called {mode.name}", "set a policy's 'name'")
            chosen.setdefault(mode.name, mode)
    if not chosen:
        raise MisuseError("no mode to simulate", f"name some of {', '.join(available())}")
    for policy in parameters:
        if policy not in policies():
            raise unknown("policy", policy, policies())
        if policy not in chosen:
            raise MisuseError(f"'{policy}' has parameters but is not among the modes", "add it")
    return tuple(chosen.values())


def _modes(item: str | Policy | type[Policy], parameters: Parameters) -> list[Mode]:
    if isinstance(item, str):
        names = available() if item == ALL else (item,)
        if item not in (ALL, *available()):
            raise unknown("mode", item, (*available(), ALL))
        return [
            mode
            for name in names
            for mode in (
                _modes(installed()[name], parameters)
                if name in installed()
                else [Mode(name, dict(parameters.get(name, {})))]
            )
        ]
    policy = _instance(item) if isinstance(item, type) else item
    name = name_of(policy)
    if name in native.load().mode_names():
        raise MisuseError(f"policy {name} is called as a mode of vtax", "give it another name")
    return [Mode(name, steering=steering(policy))]


def _instance(policy: type[Policy]) -> Policy:
    try:
        return policy()
    except Exception as error:
        message = f"policy {policy.__name__} cannot be made: {type(error).__name__}: {error}"
        raise MisuseError(message, "give simulate an instance") from error
