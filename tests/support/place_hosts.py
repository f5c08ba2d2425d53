"""Hosts as `vtax-host place threads --json` shows them, with their cores; and made-up predictors.

`kvm_vhost` has the form of a KVM host with two guests, `uml_vde` that of this project's own cheap
machine with a switch; the numbers are made up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from vtax.place import host_advice
from vtax.place import hypothesis as place_hypothesis
from vtax.place.host_advice import HostAdvice, HostThread
from vtax.place.host_cores import Cores, HostCores
from vtax.place.placement import Constraints
from vtax.place.record import Predictor
from vtax.place.sensitivity import Sensitivity
from vtax.place.service_domain import Window
from vtax.place.threads import of_window

DATA = Path(__file__).resolve().parents[1] / "data" / "place"
HYBRID = HostCores(
    (Cores("fast", 100.0, frozenset(range(4))), Cores("slow", 50.0, frozenset(range(4, 8)))),
    dict.fromkeys(range(8), 0),
    "named by --fast and --slow",
)
PAIR = HostCores(
    (Cores("fast", 100.0, frozenset({0})), Cores("slow", 50.0, frozenset({1}))),
    dict.fromkeys(range(2), 0),
    "named by --fast and --slow",
)
ALIKE = HostCores(
    (Cores("fast", 100.0, frozenset(range(8))), Cores("slow", 50.0, frozenset())),
    dict.fromkeys(range(8), 0),
    "all cores are alike",
)


def threads(name: str) -> tuple[HostThread, ...]:
    return of_window(Window.model_validate_json((DATA / f"{name}.json").read_bytes()))


def predictor(
    name: str = "service CPU", elasticity: float = 0.05, most: float = 150.0
) -> Predictor:
    """A predictor from loads whose elasticity is nearly the same whatever the predictor's value."""
    x = np.linspace(0.0, most, 24)
    return place_hypothesis.fit(name, x, elasticity + 0.002 * np.cos(np.arange(24.0)))


def advice(
    found: tuple[HostThread, ...],
    cores: HostCores = HYBRID,
    by: Predictor | Sensitivity | None = None,
    devices: dict[str, float] | None = None,
    **limits: Any,
) -> HostAdvice:
    return host_advice.advice(found, cores, by, Constraints(**limits), devices or {})
