"""One point of a sweep: a frozen description, and what is kept of its result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vtax.paging.sweep.axes import Scalar

Row = dict[str, Scalar | None]
"""The metrics of one mode at one point; `mode` names it."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What runs. A description travels as text, a trace as the path of a file."""

    label: str
    kind: Literal["profile", "description", "trace"]
    content: str
    """The profile's name, the description's text, or the trace's absolute path."""
    digest: str = ""
    """Digest of a trace's bytes: the path alone does not say what was simulated."""


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A policy written in Python: its source travels with the point."""

    label: str
    name: str
    """The name of the file, for messages."""
    class_name: str
    source: str


@dataclass(frozen=True, slots=True)
class Point:
    """Everything that a result depends on, and nothing else."""

    workload: Workload
    machine: str
    """The machine's label."""
    machine_json: str
    """The machine's description, with the axes applied."""
    modes: tuple[str, ...]
    simulation: tuple[tuple[str, Scalar], ...]
    parameters: tuple[tuple[str, tuple[tuple[str, Scalar], ...]], ...]
    """Parameters of policies, by the policy's name."""
    policies: tuple[PolicyFile, ...]
    coordinates: tuple[tuple[str, Scalar], ...]
    """The point's place on the axes, by column."""

    @property
    def identity(self) -> str:
        """A text that is the same for the same description, in any process and at any time."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    @property
    def label(self) -> str:
        """A short text for progress and messages."""
        axes = "".join(f", {name}={value}" for name, value in self.coordinates)
        return f"{self.workload.label} on {self.machine}{axes}"

    def settings(self) -> dict[str, Scalar]:
        """The simulation's own arguments."""
        return dict(self.simulation)

    def policy_parameters(self) -> dict[str, dict[str, Scalar]]:
        """Parameters by policy."""
        return {name: dict(values) for name, values in self.parameters}


Evaluate = Callable[[Point], Sequence[Mapping[str, Any]]]
"""The pure function of a sweep: one row per mode, each naming its `mode`."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A point that was evaluated, or the reason why it could not be."""

    rows: tuple[Row, ...]
    error: str | None
    wall_s: float | None
    """Time by the worker's clock; None when the worker died before it could say."""
