"""What would a workload cost under native, shadow and nested paging, or under a policy?

    import vtax.paging

    result = vtax.paging.simulate("swim", modes=("native", "shadow", "nested", "dav2m"))
    result.modes[["mode", "overhead_percent"]]

It is a model: no hardware and no hypervisor takes part, and every cycle in its results is modelled.
A policy of your own is a class, see `Policy`.
"""

from vtax.paging.inputs import (
    locality,
    machine_description,
    machines,
    workload_description,
    workloads,
)
from vtax.paging.modes import available as modes
from vtax.paging.policy import Policy, Reading
from vtax.paging.result import SimulationResult
from vtax.paging.run import simulate
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
    "workload_description",
    "workloads",
]
