"""The description of a sweep: read from TOML, checked as a whole before anything runs."""

from __future__ import annotations

import difflib
import functools
import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.specs import unknown
from vtax.paging.settings import described
from vtax.paging.sweep.axes import (
    Axis,
    Root,
    Scalar,
    changed,
    flatten,
    known,
    leaves,
    parse_axis,
    segments,
)
from vtax.paging.sweep.point import Point, PolicyFile, Workload

MOST_POINTS = 100_000
MAX_BYTES = 1 << 20
KEYS = ("name", "workloads", "machines", "modes", "simulation", "parameters", "axes")


@dataclass(frozen=True, slots=True)
class Catalog:
    """What a design can name: the model's own workloads, machines, modes and policies."""

    workloads: Sequence[str]
    machines: Sequence[str]
    modes: Sequence[str]
    policies: Sequence[str]
    """The modes that take parameters."""
    machine: Callable[[str], Mapping[str, Any]]
    """Gives the description of a machine by name."""
    parse_machine: Callable[[str], Mapping[str, Any]]
    """Gives the description in a text; raises VtaxError when no such machine can exist."""
    check_parameter: Callable[[str, str], None]
    """Raises VtaxError when a policy has no parameter of that name."""
    check_policy: Callable[[PolicyFile, Mapping[str, Scalar]], None]
    """Raises VtaxError when a file has no such policy, or the policy no such attribute."""


@dataclass(frozen=True, slots=True)
class Design:
    """A checked description of a sweep. The points are the full product of its axes."""

    name: str
    text: str
    workloads: tuple[Workload, ...]
    machines: Mapping[str, Mapping[str, Any]]
    modes: tuple[str, ...]
    policies: tuple[PolicyFile, ...]
    simulation: Mapping[str, Scalar]
    parameters: Mapping[str, Mapping[str, Scalar]]
    axes: tuple[Axis, ...]

    @property
    def size(self) -> int:
        """The number of points."""
        lengths = (len(axis.values) for axis in self.axes)
        return len(self.workloads) * len(self.machines) * math.prod(lengths)

    def points(self) -> Iterator[Point]:
        """All points, the last axis fastest."""
        values = [axis.values for axis in self.axes]
        describe = functools.lru_cache(maxsize=1024)(self._machine)
        for name, at in itertools.product(self.machines, itertools.product(*values)):
            machine = describe(name, self._of("machine", at))
            for workload in self.workloads:
                yield self._point(workload, name, machine, at)

    def _of(self, root: Root, at: tuple[Scalar, ...]) -> tuple[tuple[Axis, Scalar], ...]:
        pairs = zip(self.axes, at, strict=True)
        return tuple((axis, value) for axis, value in pairs if axis.root == root)

    def _machine(self, name: str, at: tuple[tuple[Axis, Scalar], ...]) -> str:
        machine = self.machines[name]
        for axis, value in at:
            machine = changed(machine, axis, value)
        return json.dumps(machine, sort_keys=True)

    def _point(
        self, workload: Workload, machine: str, machine_json: str, at: tuple[Scalar, ...]
    ) -> Point:
        simulation = dict(self.simulation)
        simulation |= {axis.name: value for axis, value in self._of("simulation", at)}
        parameters = {name: dict(values) for name, values in self.parameters.items()}
        for axis, value in self._of("policy", at):
            policy, _, field = axis.name.partition(".")
            parameters.setdefault(policy, {})[field] = value
        columns = (axis.column for axis in self.axes)
        return Point(
            workload=workload,
            machine=machine,
            machine_json=machine_json,
            modes=self.modes,
            simulation=tuple(sorted(simulation.items())),
            parameters=tuple(
                (name, tuple(sorted(values.items()))) for name, values in sorted(parameters.items())
            ),
            policies=self.policies,
            coordinates=tuple(zip(columns, at, strict=True)),
        )


def read_design(path: Path, catalog: Catalog) -> Design:
    """Read the design in a file.

    Raises MisuseError, naming the field, for anything that cannot be run.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise MisuseError(f"cannot read the design {path}: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise MisuseError(f"the design {path} is larger than {MAX_BYTES} bytes: refused")
    try:
        text = content.decode()
        table = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MisuseError(f"the design {path} is not TOML: {error}") from None
    return _Reader(table, text, path, catalog).design()


class _Reader:
    """Reads one table; its methods are the fields."""

    def __init__(self, table: Mapping[str, Any], text: str, path: Path, catalog: Catalog) -> None:
        self._table = table
        self._text = text
        self._path = path
        self._folder = path.parent
        self._catalog = catalog

    def design(self) -> Design:
        for key in self._table:
            if key not in KEYS:
                raise unknown("field of the design", key, KEYS)
        machines = self._machines()
        modes, policies = self._modes()
        steered = {*(mode for mode in modes if mode in self._catalog.policies)}
        steered |= {policy.label for policy in policies}
        design = Design(
            name=self._name(),
            text=self._text,
            workloads=self._workloads(),
            machines=machines,
            modes=modes,
            policies=policies,
            simulation=self._simulation(),
            parameters=self._parameters(steered),
            axes=self._axes(machines, steered),
        )
        self._check_parameters(design)
        if design.size > MOST_POINTS:
            raise MisuseError(
                f"the sweep has {design.size:,} points, more than {MOST_POINTS:,}",
                "shorten an axis or split the sweep",
            )
        return design

    def _name(self) -> str:
        name = self._table.get("name", self._path.stem)
        if not isinstance(name, str) or not name:
            raise MisuseError("name: must be text")
        return name

    def _list(self, field: str) -> list[str]:
        given = self._table.get(field)
        if given is None:
            raise MisuseError(f"{field}: is missing", f"write {field} = [...]")
        words = [given] if isinstance(given, str) else given
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise MisuseError(f"{field}: must be a list of names or files")
        if not words:
            raise MisuseError(f"{field}: is empty", "give at least one")
        return words

    def _file(self, kind: str, word: str, names: Sequence[str]) -> Path:
        """The file that a word stands for when it is not a name."""
        path = self._folder / word
        if not path.is_file():
            if "/" in word or path.suffix:
                raise MisuseError(f"{kind} {word}: there is no such file in {self._folder}")
            raise unknown(kind, word, names)
        return path

    def _workloads(self) -> tuple[Workload, ...]:
        found = [self._workload(word) for word in self._list("workloads")]
        _check_labels("workloads", [each.label for each in found])
        return tuple(found)

    def _workload(self, word: str) -> Workload:
        if word in self._catalog.workloads:
            return Workload(word, "profile", word)
        path = self._file("workload", word, self._catalog.workloads)
        if path.suffix == ".toml":
            return Workload(path.stem, "description", _read_text(path))
        label = path.name.partition(".")[0]
        return Workload(label, "trace", str(path.resolve()), _digest(path))

    def _machines(self) -> dict[str, Mapping[str, Any]]:
        found: list[tuple[str, Mapping[str, Any]]] = []
        for word in self._list("machines"):
            if word in self._catalog.machines:
                found.append((word, self._catalog.machine(word)))
                continue
            path = self._file("machine", word, self._catalog.machines)
            try:
                found.append((path.stem, self._catalog.parse_machine(_read_text(path))))
            except VtaxError as error:
                raise MisuseError(f"machine {word}: {error}") from None
        _check_labels("machines", [label for label, _ in found])
        return dict(found)

    def _modes(self) -> tuple[tuple[str, ...], tuple[PolicyFile, ...]]:
        given = self._list("modes")
        if given == ["all"]:
            given = list(self._catalog.modes)
        labels, policies = [], []
        for word in given:
            if word in self._catalog.modes:
                labels.append(word)
                continue
            file, colon, class_name = word.rpartition(":")
            if not colon or not class_name.isidentifier():
                raise unknown("mode", word, [*self._catalog.modes, "all"])
            path = self._file("policy", file, self._catalog.policies)
            policy = PolicyFile(class_name, path.name, class_name, _read_text(path))
            try:
                self._catalog.check_policy(policy, {})
            except VtaxError as error:
                raise MisuseError(f"modes: {error}") from None
            labels.append(class_name)
            policies.append(policy)
        _check_labels("modes", labels)
        return tuple(labels), tuple(policies)

    def _simulation(self) -> dict[str, Scalar]:
        table = _table("simulation", self._table.get("simulation", {}))
        for name, value in table.items():
            if name not in described():
                raise unknown("field of simulation", name, described())
            described()[name].check(f"simulation.{name}", value)
        return table

    def _parameters(self, steered: set[str]) -> dict[str, dict[str, Scalar]]:
        given = _table("parameters", self._table.get("parameters", {}))
        for policy in given:
            if policy not in steered:
                raise unknown("policy among the modes", policy, steered or {"none"})
        return {
            policy: _scalars(f"parameters.{policy}", values) for policy, values in given.items()
        }

    def _axes(
        self, machines: Mapping[str, Mapping[str, Any]], steered: set[str]
    ) -> tuple[Axis, ...]:
        fields = sorted({field for machine in machines.values() for field in leaves(machine)})
        presets = (self._catalog.machine(name) for name in self._catalog.machines)
        fields = sorted({*fields, *(field for machine in presets for field in leaves(machine))})
        fields = [field for field in fields if not field.startswith(("sources.", "name", "title"))]
        axes = []
        for name, given in flatten(_table("axes", self._table.get("axes", {}))):
            root = self._root(name, fields, steered)
            axis = parse_axis(name, root, given)
            if root == "simulation":
                for value in axis.values:
                    described()[name].check(f"axes.{name}", value)
            axes.append(axis)
        _check_labels("axes", [axis.name for axis in axes])
        self._check_overlap(axes)
        _check_places(axes, machines)
        return tuple(axes)

    def _root(self, name: str, fields: Sequence[str], steered: set[str]) -> Root:
        policy, dot, parameter = name.partition(".")
        if name in described():
            return "simulation"
        if dot and parameter and policy in steered:
            return "policy"
        if dot and policy in self._catalog.policies:
            raise MisuseError(
                f"axes.{name}: '{policy}' is not among the modes", "add it or remove the axis"
            )
        segments(name)
        if not known(name, fields):
            raise self._unknown_axis(name, [*fields, *described()])
        return "machine"

    def _unknown_axis(self, name: str, known: Sequence[str]) -> MisuseError:
        """The error for an unknown axis. All names would be a hundred: only near ones help."""
        nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        if nearest:
            words = " or ".join(f"'{word}'" for word in nearest)
            return MisuseError(f"unknown axis '{name}'", f"did you mean {words}?")
        return MisuseError(
            f"unknown axis '{name}'",
            "name a field of the machines, an argument of the simulation, "
            "or a parameter of a policy among the modes",
        )

    def _check_parameters(self, design: Design) -> None:
        """Check names only: whether a value makes sense may depend on the other values of its
        point."""
        given = {name: dict(values) for name, values in design.parameters.items()}
        for axis in design.axes:
            if axis.root == "policy":
                policy, _, field = axis.name.partition(".")
                given.setdefault(policy, {})[field] = axis.values[0]
        try:
            for file in design.policies:
                self._catalog.check_policy(file, given.pop(file.label, {}))
            for policy, values in given.items():
                for name in values:
                    self._catalog.check_parameter(policy, name)
        except VtaxError as error:
            raise MisuseError(str(error)) from None

    def _check_overlap(self, axes: Sequence[Axis]) -> None:
        """Refuse a fixed value beside an axis of the same name, which would be ignored."""
        fixed = {*self._table.get("simulation", {})}
        for policy, values in self._table.get("parameters", {}).items():
            fixed |= {f"{policy}.{name}" for name in values}
        for axis in axes:
            if axis.name in fixed:
                raise MisuseError(f"axes.{axis.name}: has a fixed value too", "remove one of them")


def _check_places(axes: Sequence[Axis], machines: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that every machine has every field that is to be changed, also after the other
    changes."""
    for label, description in machines.items():
        machine = description
        for axis in axes:
            if axis.root == "machine":
                try:
                    machine = changed(machine, axis, axis.values[0])
                except MisuseError as error:
                    raise MisuseError(f"machine {label}: {error}") from None


def _table(field: str, given: object) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise MisuseError(f"{field}: must be a table", f"write [{field}]")
    return given


def _scalars(field: str, given: object) -> dict[str, Scalar]:
    table = _table(field, given)
    for name, value in table.items():
        if not isinstance(value, str | int | float):
            raise MisuseError(f"{field}.{name}: must be text, a number or a boolean")
    return table


def _check_labels(field: str, labels: Sequence[str]) -> None:
    for label in labels:
        if labels.count(label) > 1:
            raise MisuseError(f"{field}: '{label}' is there twice")


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise MisuseError(f"{path} is larger than {MAX_BYTES} bytes: refused")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise MisuseError(f"cannot read {path}: {reason}") from None


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:20]
    except OSError as error:
        raise MisuseError(f"cannot read {path}: {error.strerror}") from None
