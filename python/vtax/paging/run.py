"""Running a simulation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vtax.paging import inputs, native
from vtax.paging.modes import Mode, Parameters, choose
from vtax.paging.policy import Policy
from vtax.paging.result import SimulationResult
from vtax.paging.settings import DEFAULT_MEMORY, DEFAULT_WINDOW, Settings, memory_bytes

if TYPE_CHECKING:
    from vtax._native import Machine, Trace, Workload

DEFAULT_MACHINE = "opteron2350"
DEFAULT_MODES = ("native", "shadow", "nested")

Progress = Callable[[float, float | None], None]
"""Told the instructions so far and in all (None: unknown, as of a trace)."""


def simulate(
    workload: str | Path,
    machine: str | Path = DEFAULT_MACHINE,
    modes: str | Sequence[str | Policy | type[Policy]] = DEFAULT_MODES,
    *,
    guest_page: str | None = None,
    host_page: str = "2M",
    guest_levels: int = 4,
    host_levels: int | None = None,
    memory: int | str = DEFAULT_MEMORY,
    isolation: bool = False,
    shadow_style: str = "kvm",
    window: int = DEFAULT_WINDOW,
    instructions: float | None = None,
    whole: bool = False,
    seed: int = 1,
    parameters: Parameters | None = None,
    progress: Progress | None = None,
) -> SimulationResult:
    """Simulate a workload under several paging modes and policies, all in one pass.

    `workload` is the name of a profile (see `workloads`), or the path of a trace or of a TOML
    description; `machine` a name (see `machines`) or the path of a TOML description; `modes` holds
    names (see `modes`; "all" for every one) and policies of your own. `memory` is in bytes, or a
    text such as "2G"; `window` and `instructions` are retired instructions; page sizes are "4K",
    "2M" and "1G". `parameters` gives policies values by name: ``{"dav2m": {"p_factor": 1.2}}``.

    A synthetic workload is sampled, with an error stated in the result, unless `whole`; a trace is
    always followed whole. Other threads run meanwhile, and Ctrl-C ends the simulation.

    Raises MisuseError for what makes no sense (it names the field), VtaxError for a damaged trace
    and for a policy of yours that raises or decides on nonsense (with the cause chained).
    """
    settings = Settings(
        guest_levels=guest_levels,
        host_levels=host_levels,
        guest_page=guest_page,
        host_page=host_page,
        memory_bytes=memory_bytes(memory),
        isolation=isolation,
        shadow_style=shadow_style,
        window_instructions=window,
        instruction_limit=instructions,
        seed=seed,
        whole=whole,
    )
    chosen = choose(modes, parameters or {})
    return execute(inputs.workload(workload), inputs.machine(machine), chosen, settings, progress)


def execute(
    workload: Workload | Trace,
    machine: Machine,
    modes: Sequence[Mode],
    settings: Settings,
    progress: Progress | None = None,
) -> SimulationResult:
    """Simulate what has been looked up and checked: the part of `simulate` that takes time."""
    lengths = [workload.instructions, settings.instruction_limit]
    total = min((length for length in lengths if length is not None), default=None)

    def report(done: float) -> None:
        if progress is not None:
            progress(done if total is None else min(done, total), total)

    with native.translated():
        outcome = native.load().simulate(workload, machine, settings, modes, report)
    return SimulationResult(workload.name, machine.name, settings, tuple(workload.phases), outcome)
