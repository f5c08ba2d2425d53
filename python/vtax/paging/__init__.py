"""What would a workload cost under native, shadow and nested paging, or under a policy?

    import vtax.paging

    result = vtax.paging.simulate("swim", modes=("native", "shadow", "nested", "dav2m"))
    result.modes[["mode", "overhead_percent"]]

It is a model: no hardware and no hypervisor takes part, and every cycle in its results is modelled.
A policy of your own is a class, see `Policy`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vtax.paging.inputs import (
        locality,
        machine_description,
        machines,
        workload_description,
        workloads,
    )
    from vtax.paging.mode import available as modes
    from vtax.paging.policy import Policy, Reading
    from vtax.paging.result import SimulationResult
    from vtax.paging.run import simulate, walk_locality
    from vtax.paging.settings import Settings

__all__ = [
    "Policy",
    "Reading",
    "Settings",
    "SimulationResult",
    "locality",
    "machine_description",
    "machines",
    "modes",
    "simulate",
    "walk_locality",
    "workload_description",
    "workloads",
]
_HOMES = {
    "Policy": "policy:Policy",
    "Reading": "policy:Reading",
    "Settings": "settings:Settings",
    "SimulationResult": "result:SimulationResult",
    "locality": "inputs:locality",
    "machine_description": "inputs:machine_description",
    "machines": "inputs:machines",
    "modes": "mode:available",
    "simulate": "run:simulate",
    "walk_locality": "run:walk_locality",
    "workload_description": "inputs:workload_description",
    "workloads": "inputs:workloads",
}


def __getattr__(name: str) -> Any:
    """What users import, loaded at its first use: `vtax --help` has the command line alone."""
    if name not in _HOMES:
        raise AttributeError(name)
    module, _, own = _HOMES[name].partition(":")
    return getattr(import_module(f"{__name__}.{module}"), own)
