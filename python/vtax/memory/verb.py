"""`vtax memory`: where a program falls off the edge of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.core.command import campaigns
from vtax.core.command.declared import Declared
from vtax.core.command.options import RunOptions, Share, reps, specs, takes

if TYPE_CHECKING:
    from vtax.environments.base import Environment
    from vtax.memory.campaign import MemoryRequest

EXAMPLES = """\b
Examples:
  vtax memory --in native:mem=256M,swap=1G --in uml:mem=256M,swap=1G
  vtax memory --in native:mem=64M --sizes 1000-2000:200 --reps 3 --json
  vtax memory --in uml:mem=128M --sizes 10,20,40,80 -- ./my-program {size}
"""

SETTINGS: dict[str, Any] = {
    "cls": Declared,
    "short_help": "Find the size past which a program runs out of memory.",
    "epilog": EXAMPLES,
    "context_settings": {"allow_interspersed_args": False, "ignore_unknown_options": False},
}
ROOM_BYTES = 256 << 20
"""Available memory that the machine keeps beside the largest limit."""


@dataclass(frozen=True)
class MemoryOptions(RunOptions):
    """The options of `vtax memory`."""

    program: Annotated[
        list[str] | None,
        typer.Argument(
            help="A command, after --, with {size} in a word. Default: vtax-dgemm, one product of "
            "square matrices.",
            metavar="COMMAND",
        ),
    ] = None
    environments: Annotated[
        list[str] | None,
        specs(
            "An environment with a memory limit, such as native:mem=256M; repeat it. With "
            "swap=SIZE it can swap; without, the program is killed at the limit."
        ),
    ] = None
    sizes: Annotated[
        str, typer.Option(metavar="SIZES", help="FIRST-LAST:STEP, or sizes with commas between.")
    ] = "100-4000:100"
    repetitions: Annotated[int, reps("Repetitions of each size in each environment.")] = 5
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="Metric of a command, instead of its wall time: NAME[:UNIT[:higher]]=REGEX.",
            metavar="METRIC",
        ),
    ] = None
    timeout: Annotated[str, typer.Option(help="Limit for one run, e.g. 10m.", metavar="TIME")] = (
        "10m"
    )
    budget: Annotated[
        str | None, typer.Option(help="Begin no run after this time, e.g. 30m.", metavar="TIME")
    ] = None
    working_set: Annotated[
        bool,
        typer.Option(
            "--working-set",
            help="Find how much memory the program uses within a second, too. The kernel reclaims "
            "pages less well meanwhile.",
        ),
    ] = False
    workdir: Annotated[
        Path | None,
        typer.Option(help="Run a command there. Default: the current folder.", metavar="DIR"),
    ] = None
    share: Share = None


@takes(MemoryOptions)
def memory(options: MemoryOptions) -> None:
    """Run a program at growing sizes under a memory limit and find where its performance falls.

    Each run is a fresh process; sizes and environments take turns in a random order. Says where
    the cliff is, how sure that is, what memory was left to the program, and whether environments
    differ (docs/memory.md).
    """
    from vtax.core.formats.folder import RunFolder
    from vtax.core.page.progress import listener
    from vtax.memory.campaign import MemoryCampaign

    request = _request(options)
    folder = RunFolder.create(options.out, "memory")
    record = MemoryCampaign(request, folder, listener(options.quiet)).carry_out()
    campaigns.show(record, folder.path, as_json=options.as_json)
    failed = any(point.failed for each in record.environments for point in each.points)
    campaigns.end(record.state, failed=failed)


def _request(options: MemoryOptions) -> MemoryRequest:
    """What the options ask for, of this machine as it is. Raises VtaxError for what it lacks."""
    from vtax.core.errors import MisuseError
    from vtax.core.units import parse_duration
    from vtax.environments import build, sharing
    from vtax.environments.base import working_folder
    from vtax.environments.hiding import Shown
    from vtax.memory import sized
    from vtax.memory.campaign import MemoryRequest

    timeout_s, budget_s = parse_duration(options.timeout), campaigns.seconds(options.budget)
    argv = options.program or []
    program = sized.parse(argv, options.metric or [])
    chosen = sized.parse_sizes(options.sizes)
    if not argv and chosen[-1] > sized.LARGEST:
        raise MisuseError(
            f"--sizes {options.sizes}: vtax-dgemm multiplies up to {sized.LARGEST} rows"
        )
    if not options.environments:
        raise MisuseError("no environment is named", "write for example --in native:mem=256M")
    built = {spec: build(spec) for spec in options.environments}
    _check(built)
    folder = working_folder(options.workdir, built)
    shown = Shown(folder, sharing.shown(built, options.share or []))
    built = {spec: each.with_shown(shown) for spec, each in built.items()}
    own = campaigns.variables()
    _require_programs(program.needs(), built, own["PATH"], folder)
    return MemoryRequest(
        environments=built,
        program=program,
        sizes=chosen,
        runs=options.repetitions,
        **campaigns.asked(options.seed, folder),
        variables=own,
        timeout_s=timeout_s,
        budget_s=budget_s,
        working_set=options.working_set,
        workdir=folder,
    )


def _check(built: dict[str, Environment]) -> None:
    """Raise for everything that can be known to be missing before a machine starts."""
    from vtax.core.errors import MisuseError, VtaxError
    from vtax.core.units import format_bytes
    from vtax.environments.host_facts import available_bytes

    for spec, each in built.items():
        limit = each.memory_limit()
        if limit is None:
            raise MisuseError(
                f"{spec} has no memory limit: the program would take all of the machine's",
                f"write for example --in {each.name}:mem=256M",
            )
        each.check()
        free = available_bytes()
        if not each.is_remote and free is not None and limit + ROOM_BYTES > free:
            raise VtaxError(
                f"{spec}: {format_bytes(limit)} is more than this machine can spare of the "
                f"{format_bytes(free)} that are free",
                "give a smaller mem=, or end what uses its memory",
            )


def _require_programs(
    names: Sequence[str], built: dict[str, Environment], path: str, folder: Path | None
) -> None:
    from vtax.environments import sharing
    from vtax.workloads import programs

    if not any(each.sees_host_files() for each in built.values()):
        return
    for name in names:
        found = programs.require(name, path, folder or Path(), "check its name")
        sharing.require_seen(built, found)


def add(app: typer.Typer) -> None:
    """Make it a verb of `app`."""
    app.command(**SETTINGS)(memory)
