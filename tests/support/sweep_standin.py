"""A stand-in for the model: quick, deterministic, and able to fail in every possible way."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from vtax.core.errors import VtaxError
from vtax.paging.sweep.design import Catalog
from vtax.paging.sweep.point import Point

MACHINE: dict[str, Any] = {
    "name": "toy",
    "title": "A toy",
    "clock_hz": 1e9,
    "tlb": {"tagged": True, "l1": [{"entries": 48, "ways": 48}], "l2": [{"entries": 512}]},
    "caches": [{"latency": 4}, {"latency": 14}],
    "costs": {"exit": 1000, "zap": 300, "other": 7},
    "sources": {"costs.exit": "assumed"},
}


def parse(text: str) -> dict[str, Any]:
    machine: dict[str, Any] = json.loads(text)
    if machine.get("clock_hz", 0) <= 0:
        raise VtaxError("clock_hz: must be a positive number")
    return machine


def check_parameter(policy: str, parameter: str) -> None:
    if parameter != "p_factor":
        raise VtaxError(f"{policy}: unknown field {parameter}")


CATALOG = Catalog(
    workloads=("swim", "gcc", "gzip"),
    machines=("toy",),
    modes=("native", "shadow", "nested", "dav2m", "oracle"),
    policies=("dav2m",),
    machine=lambda _name: MACHINE,
    parse_machine=parse,
    check_parameter=check_parameter,
    check_policy=lambda _file, _parameters: None,
)


def evaluate(point: Point) -> list[dict[str, Any]]:
    """Quickly made figures that depend on the whole description."""
    machine = json.loads(point.machine_json)
    seed = int(point.settings().get("seed", 0))
    base = 1e6 + seed + len(point.workload.content)
    costs = {"native": 0.0, "shadow": 10.0 * machine["costs"]["exit"], "nested": 12_000.0}
    factor = float(point.policy_parameters().get("dav2m", {}).get("p_factor", 1.0))
    return [
        {
            "mode": mode,
            "cycles": base + (cost := costs.get(mode, 5_000.0 * factor)),
            "overhead_percent": 100.0 * cost / base,
        }
        for mode in point.modes
    ]


def slow(point: Point) -> list[dict[str, Any]]:
    time.sleep(0.2)
    return evaluate(point)


def endless(point: Point) -> list[dict[str, Any]]:
    time.sleep(600)
    return evaluate(point)


def failing(point: Point) -> list[dict[str, Any]]:
    """An impossible machine at one value, an exception with several lines at another."""
    exit_cost = json.loads(point.machine_json)["costs"]["exit"]
    if exit_cost == 2000:
        raise VtaxError("costs.exit: must be something else")
    if exit_cost == 3000:
        raise ValueError("first line\nsecond line")
    if exit_cost == 4000:
        raise BaseException("panicked")
    return evaluate(point)


def dying(point: Point) -> list[dict[str, Any]]:
    """Ends its worker at one value, always; at another only the first time."""
    machine = json.loads(point.machine_json)
    marker = Path(machine["name"])
    if machine["costs"]["exit"] == 2000:
        with marker.open("a") as file:
            file.write("died\n")
        os._exit(3)
    if machine["costs"]["exit"] == 3000:
        again = marker.with_suffix(".once")
        if not again.exists():
            again.touch()
            os._exit(3)
    return evaluate(point)
