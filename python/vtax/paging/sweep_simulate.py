"""Sweeps of the paging model itself: what a study can name, and how a point is simulated."""

from __future__ import annotations

import functools
import json
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from vtax.errors import MisuseError
from vtax.paging import inputs, native, policy
from vtax.paging.modes import Parameters, Value, available, choose, policies
from vtax.paging.run import execute
from vtax.paging.settings import DEFAULT_WINDOW, Settings, memory_bytes
from vtax.paging.sweep_axes import Scalar
from vtax.paging.sweep_point import Point, PolicyFile, Workload
from vtax.paging.sweep_study import Catalog
from vtax.specs import unknown


def catalog() -> Catalog:
    """Everything that the model has by name."""
    extension = native.load()
    return Catalog(
        workloads=extension.Workload.names(),
        machines=extension.Machine.names(),
        modes=available(),
        policies=policies(),
        machine=_preset,
        parse_machine=_described,
        check_parameter=_check_parameter,
        check_policy=_check_policy,
    )


def evaluate(point: Point) -> list[dict[str, Any]]:
    """Simulate a point: one row per mode with the model's counts and cycles."""
    with native.translated(point.machine):
        machine = native.load().Machine.parse(toml_text(json.loads(point.machine_json)))
    parameters = cast("Parameters", point.policy_parameters())
    chosen = choose(
        [_mode(name, point.policies, parameters) for name in point.modes],
        {name: values for name, values in parameters.items() if name in policies()},
    )
    result = execute(_workload(point.workload), machine, chosen, _settings(point.settings()))
    return [{"mode": mode, **figures} for mode, figures in result.totals.items()]


def toml_text(description: Mapping[str, Any]) -> str:
    """A description as TOML: one line for each top-level field."""
    return "".join(f"{_key(key)} = {_toml(value)}\n" for key, value in description.items())


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        fields = (f"{_key(key)} = {_toml(each)}" for key, each in value.items())
        return f"{{{', '.join(fields)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    # JSON's texts, numbers and booleans are TOML's as well.
    return json.dumps(value)


def _key(key: str) -> str:
    return json.dumps(key)


def _preset(name: str) -> Mapping[str, Any]:
    return tomllib.loads(_text(native.load().Machine.preset(name)))


def _described(text: str) -> Mapping[str, Any]:
    with native.translated():
        return tomllib.loads(_text(native.load().Machine.parse(text)))


def _text(machine: Any) -> str:
    text: str = native.load().machine_description(machine)
    return text


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
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, file.name)
        path.write_text(file.source)
        return policy.load(f"{path}:{file.class_name}")


def _steered(file: PolicyFile, parameters: tuple[tuple[str, Value], ...]) -> type[policy.Policy]:
    """The class of the user with other values for some of its attributes."""
    own = _loaded(file)
    fields = [name for name in dir(own) if not name.startswith("_") and name != "decide"]
    for name, _ in parameters:
        if name not in fields:
            raise unknown(f"attribute of {file.label}", name, fields)
    return type(own.__name__, (own,), dict(parameters))


def _workload(workload: Workload) -> Any:
    extension = native.load()
    if workload.kind == "description":
        with native.translated(workload.label):
            return extension.Workload.parse(workload.content)
    if workload.kind == "profile":
        return inputs.workload(workload.content)
    if not Path(workload.content).is_file():
        raise MisuseError(f"trace {workload.content} is not on this worker")
    return inputs.workload(Path(workload.content))


def _settings(given: dict[str, Any]) -> Settings:
    """The arguments of `simulate` in the model's own form."""
    window = given.get("window", DEFAULT_WINDOW)
    own: dict[str, Any] = {"window_instructions": _whole("window", window)}
    if "memory" in given:
        own["memory_bytes"] = memory_bytes(given["memory"])
    if "instructions" in given:
        own["instruction_limit"] = float(given["instructions"])
    rest = {name: given[name] for name in given.keys() - {"window", "memory", "instructions"}}
    return Settings(**own, **rest)


def _whole(name: str, value: float) -> int:
    if value != int(value):
        raise MisuseError(f"{name}: {value} must be a whole number")
    return int(value)
