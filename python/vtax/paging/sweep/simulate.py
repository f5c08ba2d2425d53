"""Sweeps of the paging model itself: what a design can name, and how a point is simulated."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from vtax.core import foreign_json
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.scratch import scratch
from vtax.core.specs import unknown
from vtax.paging import native, policy
from vtax.paging.inputs import Description, machine_description
from vtax.paging.mode import Parameters, Value, available, policies
from vtax.paging.run import simulate
from vtax.paging.settings import Settings
from vtax.paging.sweep.axes import Scalar
from vtax.paging.sweep.design import Catalog
from vtax.paging.sweep.point import Point, PolicyFile, Workload


def catalog() -> Catalog:
    """Everything that the model has by name."""
    extension = native.load()
    return Catalog(
        workloads=extension.Workload.names(),
        machines=extension.Machine.names(),
        modes=available(),
        policies=policies(),
        machine=machine_description,
        parse_machine=_parsed,
        check_parameter=_check_parameter,
        check_policy=_check_policy,
    )


def evaluate(point: Point) -> list[dict[str, Any]]:
    """Simulate a point: one row per mode with the model's counts and cycles."""
    parameters = cast("Parameters", point.policy_parameters())
    settings = cast("Settings", point.settings())
    result = simulate(
        _workload(point.workload),
        {**foreign_json.parse_object(point.machine_json), "name": point.machine},
        [_mode(name, point.policies, parameters) for name in point.modes],
        parameters={name: values for name, values in parameters.items() if name in policies()},
        **settings,
    )
    if result.cut:
        # A table of points has no place to say that one of them is shorter.
        raise VtaxError(f"{point.workload.content}: {result.cut}")
    return [{"mode": mode, **figures} for mode, figures in result.totals.items()]


def _parsed(text: str) -> Mapping[str, Any]:
    extension = native.load()
    with native.translated():
        return tomllib.loads(extension.machine_description(extension.Machine.parse(text)))


def _check_parameter(name: str, parameter: str) -> None:
    extension = native.load()
    with native.translated(name):
        any_machine = extension.Machine.preset(extension.Machine.names()[0])
        extension.check_parameter(name, parameter, any_machine)


def _check_policy(file: PolicyFile, parameters: Mapping[str, Scalar]) -> None:
    _steered(file, tuple(sorted(parameters.items())))


def _mode(
    name: str, files: tuple[PolicyFile, ...], parameters: Parameters
) -> str | type[policy.Policy]:
    for file in files:
        if file.label == name:
            return _steered(file, tuple(sorted(parameters.get(name, {}).items())))
    return name


@functools.lru_cache(maxsize=64)
def _loaded(file: PolicyFile) -> type[policy.Policy]:
    with scratch("sweep") as folder:
        path = folder / file.name
        path.write_text(file.source)
        return policy.load(f"{path}:{file.class_name}")


def _steered(file: PolicyFile, parameters: tuple[tuple[str, Value], ...]) -> type[policy.Policy]:
    """The user's class with other values for some of its attributes."""
    own = _loaded(file)
    fields = [name for name in dir(own) if not name.startswith("_") and name != "decide"]
    for name, _ in parameters:
        if name not in fields:
            raise unknown(f"attribute of {file.label}", name, fields)
    return type(own.__name__, (own,), dict(parameters))


def _workload(workload: Workload) -> str | Path | Description:
    if workload.kind == "description":
        return tomllib.loads(workload.content)
    if workload.kind == "profile":
        return workload.content
    if not Path(workload.content).is_file():
        raise MisuseError(f"trace {workload.content} is not on this worker")
    return Path(workload.content)
