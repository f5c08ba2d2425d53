"""Running a simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from vtax.core.errors import MisuseError
from vtax.paging import native
from vtax.paging.inputs import Description, find_machine, find_workload
from vtax.paging.mode import Mode, Parameters, choose
from vtax.paging.policy import Policy
from vtax.paging.result import SimulationResult
from vtax.paging.settings import Settings, checked, signature_of

if TYPE_CHECKING:
    from vtax._native import Machine, Trace, Workload

DEFAULT_MACHINE = "opteron2350"
DEFAULT_MODES = ("native", "shadow", "nested")

Progress = Callable[[float, float | None], None]
"""Called with the instructions so far and in all (None: unknown, as for a trace)."""


def simulate(
    workload: str | Path | Description,
    machine: str | Path | Description = DEFAULT_MACHINE,
    modes: str | Sequence[str | Policy | type[Policy]] = DEFAULT_MODES,
    *,
    parameters: Parameters | None = None,
    progress: Progress | None = None,
    **settings: Unpack[Settings],
) -> SimulationResult:
    """Simulate a workload under several paging modes and policies, all in one pass.

    `workload` is the name of a profile (see `workloads`), the path of a trace or of a TOML
    description, or a description (see `workload_description`); `machine` a name (see `machines`),
    the path of a TOML description, or a description; `modes` holds names (see `modes`; "all" for
    every mode) and policies of your own. `parameters` gives policies values by name: ``{"dav2m":
    {"p_factor": 1.2}}``. The other arguments are those of `Settings`: `memory` is in bytes, or a
    text such as "2G"; `window` and `instructions` are retired instructions, or a text such as "1M";
    page sizes are "4K", "2M" and "1G".

    A synthetic workload is sampled, with an error stated in the result, unless `whole`; a trace is
    followed whole, as far as its references were recorded. Other threads can run meanwhile, and
    Ctrl-C ends the simulation.

    Raises MisuseError, naming the field, for an invalid argument; VtaxError for a damaged trace,
    and for a policy of yours that raises or returns an invalid mode (with the cause chained).
    """
    complete = checked(settings)
    chosen = choose(modes, parameters or {})
    return execute(find_workload(workload), find_machine(machine), chosen, complete, progress)


simulate.__signature__ = signature_of(simulate)  # type: ignore[attr-defined]


def walk_locality(
    trace: str | Path, machine: str | Path | Description, **settings: Unpack[Settings]
) -> tuple[list[int], list[int]]:
    """How a trace's TLB misses and the reads of its walks spread over the page tables, natively.

    The first list has walks (TLB misses) by the last entry that they read, which maps the page; the
    second reads of entries of every level that the machine's page-walk caches do not save. Both are
    of user addresses, most frequent first; a table whose memory became another table keeps its
    counts. The arguments are those of `simulate`. Raises MisuseError when `trace` is none, and
    VtaxError when it is damaged.
    """
    found, chosen = find_workload(trace), find_machine(machine)
    if not isinstance(found, native.load().Trace):
        raise MisuseError(f"{trace} is no trace")
    complete = checked(settings)
    with native.translated():
        counts: tuple[list[int], list[int]] = found.walk_locality(chosen, complete)
    return counts


def execute(
    workload: Workload | Trace,
    machine: Machine,
    modes: Sequence[Mode],
    settings: Mapping[str, Any],
    progress: Progress | None = None,
) -> SimulationResult:
    """Simulate what has been looked up and checked: the part of `simulate` that takes time.

    `settings` are as `vtax.paging.settings.checked` returns them.
    """
    lengths = [workload.instructions, settings["instruction_limit"]]
    total = min((length for length in lengths if length is not None), default=None)

    def report(done: float) -> None:
        if progress is not None:
            progress(done if total is None else min(done, total), total)

    with native.translated():
        outcome = native.load().simulate(workload, machine, settings, modes, report)
    return SimulationResult(workload.name, machine.name, settings, tuple(workload.phases), outcome)
