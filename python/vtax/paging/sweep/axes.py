"""Axes of a sweep: which field they change, and to what.

An axis of a machine names a field by its path in the description: `costs.exit`,
`tlb.l2[0].entries`; `*` stands for every element (`caches[*].latency`, `costs.*`). It lists values
or factors by which the machine's own value is multiplied.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vtax.core.errors import MisuseError

Scalar = str | int | float | bool
Root = Literal["machine", "simulation", "policy"]

_SEGMENT = re.compile(r"([^.\[\]]+)((?:\[(?:\d+|\*)\])*)")


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the product."""

    name: str
    """The dotted field as the user wrote it."""
    root: Root
    values: tuple[Scalar, ...]
    scaled: bool = False
    """Whether the values are factors of the machine's own value."""

    @property
    def column(self) -> str:
        """The name in tables; that of a factor differs from that of a value."""
        return f"{self.name}.scale" if self.scaled else self.name


def flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The axes of a TOML table, whether their names were quoted or not.

    `costs.exit = [...]` is read as a table in a table; a table that has `scale` is an axis.
    """
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and "scale" not in value and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, value


def parse_axis(name: str, root: Root, given: Any) -> Axis:
    """One axis from its value in TOML; raises MisuseError that names the axis."""
    scaled = isinstance(given, Mapping)
    if isinstance(given, Mapping):
        if extra := sorted(given.keys() - {"scale"}):
            raise MisuseError(f"axes.{name}: unknown key '{extra[0]}'", "write {scale = [...]}")
        if root != "machine":
            raise MisuseError(
                f"axes.{name}: only a field of a machine can be scaled", "list its values"
            )
        given = given.get("scale")
    if not isinstance(given, list):
        raise MisuseError(f"axes.{name}: must be a list of values", "write [1, 2] or {scale = [1]}")
    if not given:
        raise MisuseError(f"axes.{name}: is empty", "give at least one value or remove it")
    for value in given:
        _check_value(name, value, scaled)
    values = _one_type(name, given)
    if len(set(values)) != len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise MisuseError(f"axes.{name}: {twice!r} is there twice")
    return Axis(name, root, values, scaled)


def _check_value(name: str, value: object, scaled: bool) -> None:
    if not isinstance(value, str | int | float):
        kind = type(value).__name__
        raise MisuseError(f"axes.{name}: a value must be text, a number or a boolean, not {kind}")
    if isinstance(value, float) and not math.isfinite(value):
        raise MisuseError(f"axes.{name}: {value} is not a finite number")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if scaled and not (number and float(value) > 0):
        raise MisuseError(f"axes.{name}: the factor {value!r} is not a number above 0")


def _one_type(name: str, values: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """The values with one type: whole numbers beside fractions become fractions; any other mixture
    is refused."""
    kinds = {type(value) for value in values}
    if kinds == {int, float}:
        return tuple(float(value) for value in values)
    if len(kinds) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in kinds))
        raise MisuseError(f"axes.{name}: values of one type only, not {names}")
    return tuple(values)


def segments(path: str) -> tuple[str | int, ...]:
    """`tlb.l1[0].ways` as its steps; raises MisuseError for text that is no path."""
    steps: list[str | int] = []
    for part in path.split("."):
        match = _SEGMENT.fullmatch(part)
        if not match:
            raise MisuseError(
                f"axes.{path}: '{part}' is not a field", "write for example costs.exit"
            )
        steps.append(match[1])
        for index in re.findall(r"\[(\d+|\*)\]", match[2]):
            steps.append("*" if index == "*" else int(index))
    return tuple(steps)


def leaves(tree: Any, prefix: str = "") -> Iterator[str]:
    """The paths of all values in a description, with list positions as `[*]`."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from leaves(value, f"{prefix}.{key}" if prefix else key)
    elif isinstance(tree, list) and any(isinstance(item, Mapping) for item in tree):
        for item in tree:
            yield from leaves(item, f"{prefix}[*]")
    else:
        yield prefix


def pattern(path: str) -> str:
    """The path with every list position as `[*]`, to look it up among `leaves`."""
    return re.sub(r"\[\d+\]", "[*]", path)


def known(path: str, fields: Sequence[str]) -> bool:
    """Whether a description with these leaves can have the field."""
    wanted = pattern(path)
    if wanted in fields:
        return True
    if "*" not in wanted.replace("[*]", ""):
        return False
    parts = [re.escape(part) if part != "*" else r"[^.\[\]]+" for part in wanted.split(".")]
    glob = re.compile(r"\.".join(parts))
    return any(glob.fullmatch(field) for field in fields)


def changed(machine: Mapping[str, Any], axis: Axis, value: Scalar) -> dict[str, Any]:
    """A copy of the machine with the axis at `value`; raises MisuseError without such a field."""
    tree: dict[str, Any] = copy.deepcopy(dict(machine))
    for container, key in _places(tree, segments(axis.name), axis.name):
        container[key] = _scaled(container, key, axis, value) if axis.scaled else value
    return tree


def _scaled(container: Any, key: str | int, axis: Axis, factor: Scalar) -> int | float:
    try:
        own = container[key]
    except (KeyError, IndexError):
        own = None
    if not isinstance(own, int | float) or isinstance(own, bool):
        raise MisuseError(f"axes.{axis.name}: the machine has no number there to scale")
    product = own * float(factor)
    return round(product) if isinstance(own, int) else product


def _places(tree: Any, steps: Sequence[str | int], path: str) -> Iterator[tuple[Any, str | int]]:
    """Every container and key that the steps lead to."""
    step, rest = steps[0], steps[1:]
    for key in _keys(tree, step, path, last=not rest):
        if rest:
            yield from _places(tree[key], rest, path)
        else:
            yield tree, key


def _keys(tree: Any, step: str | int, path: str, last: bool) -> list[str | int]:
    if isinstance(tree, list):
        if step == "*" and tree:
            return list(range(len(tree)))
        if isinstance(step, int) and step < len(tree):
            return [step]
        raise MisuseError(f"axes.{path}: the machine has {len(tree)} there, not [{step}]")
    if isinstance(tree, dict):
        if step == "*":
            # This takes every number of the table, but not the names and lists beside them.
            return [key for key, value in tree.items() if isinstance(value, int | float)]
        if step in tree or (last and isinstance(step, str)):
            return [step]
    raise MisuseError(f"axes.{path}: the machine has no '{step}' there")
