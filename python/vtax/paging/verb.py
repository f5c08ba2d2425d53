"""`vtax paging`: what address translation costs: modelled, counted in the lab, and switched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.core.command import forwarded, options
from vtax.paging import settings_options as paging_settings
from vtax.paging.lab import verb as paging_lab
from vtax.paging.sweep import verb as paging_sweep
from vtax.paging.trace import verb as paging_trace

if TYPE_CHECKING:
    from vtax.core.page.progress import Progress
    from vtax.paging.policy import Policy

PROGRESS_EVERY_S = 10.0
"""Seconds between lines of a log."""

EXAMPLES = """\b
Examples:
  vtax paging simulate swim
  vtax paging simulate gcc --machine zen4 --mode all --memory 8G
  vtax paging simulate mytrace.champsim.xz --pages guest=4K,host=4K --mode native,nested,shadow
  vtax paging simulate swim --mode dav2m,oracle --param dav2m.p_factor=1.2 --out swim-dav2m
  vtax paging simulate mcf --mode dav2m --policy mine.py:Mine --json

\b
Modes:    native  shadow  nested  agile
Policies: dav2m  vtax  rpms  naive; oracle is the best plan, found afterwards
          yours is a class in a file: 'python3 -m pydoc vtax.paging.Policy' says how
"""

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    short_help="Model, count and switch how guests' addresses are translated.",
    help="What address translation costs under virtualization: by a model (simulate, sweep), by\n"
    "real KVM in the lab (lab), and moving running guests to the other mode (switch, recover).",
)


def _machine_names(incomplete: str) -> list[tuple[str, str]]:
    from vtax.paging import machines

    return [item for item in machines().items() if item[0].startswith(incomplete)]


def _workload_names(incomplete: str) -> list[tuple[str, str]]:
    from vtax.paging import workloads

    return [item for item in workloads().items() if item[0].startswith(incomplete)]


def _mode_names(incomplete: str) -> list[str]:
    """Names that may follow the last comma, with the text before it."""
    from vtax.paging import modes

    before, comma, last = incomplete.rpartition(",")
    names = [name for name in (*modes(), "all") if name.startswith(last)]
    return [f"{before}{comma}{name}" for name in names]


@group.command(short_help="Simulate a workload under several paging modes.", epilog=EXAMPLES)
@paging_settings.added(before="out")
def simulate(
    workload: Annotated[
        str,
        typer.Argument(
            help="A name (vtax paging workloads), a trace, or a description in TOML.",
            metavar="WORKLOAD",
            autocompletion=_workload_names,
        ),
    ],
    machine: Annotated[
        str,
        typer.Option(
            help="A name (vtax paging machines) or a description in TOML.",
            metavar="NAME|FILE",
            autocompletion=_machine_names,
        ),
    ] = "opteron2350",
    mode: Annotated[
        list[str] | None,
        typer.Option(
            help="Modes, separated by commas, or all. Default: native,shadow,nested.",
            metavar="MODES",
            autocompletion=_mode_names,
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="A policy in Python; repeat it.", metavar="FILE.py:CLASS"),
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(help="A parameter of a policy; repeat it.", metavar="POLICY.NAME=VALUE"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write windows, exits and switches as Parquet here.", metavar="DIR"),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
    **settings: Any,
) -> None:
    """Simulate a workload under several paging modes and policies, in one pass.

    Everything it prints is modelled: no hardware and no hypervisor takes part. A synthetic
    workload is sampled, with the error stated, unless --whole; a trace is followed whole,
    and estimated, with the error stated, where only samples were recorded.
    """
    from vtax.core.page import render_terminal
    from vtax.core.page.progress import progress
    from vtax.core.page.tables import UNFOLDED
    from vtax.paging import files
    from vtax.paging import page as simulation
    from vtax.paging.arguments import parameters
    from vtax.paging.inputs import find_machine, find_workload
    from vtax.paging.mode import choose
    from vtax.paging.run import DEFAULT_MODES, execute

    complete = paging_settings.complete(settings)
    modes = choose(_wanted(mode or DEFAULT_MODES, policy or ()), parameters(param or ()))
    subject, target = find_workload(workload), find_machine(machine)
    if out is not None:
        files.prepare(out)
    with progress(quiet, every_s=PROGRESS_EVERY_S) as shown:
        result = execute(subject, target, modes, complete, _reported(shown, subject.name))
    if out is not None:
        files.write(result, out)
    if as_json:
        print(json.dumps(files.to_json(result), indent=1))
    else:
        render_terminal.show(simulation.page(result), UNFOLDED)
    if out is not None and not as_json:
        print(f"written: {out}")


def _reported(shown: Progress, workload: str) -> Callable[[float, float | None], None]:
    def report(done: float, total: float | None) -> None:
        shown.flow(done, total, f"simulating {workload}", f"{done / 1e6:,.0f} M instructions")

    return report


def _wanted(modes: Iterable[str], policies: Iterable[str]) -> list[str | type[Policy]]:
    from vtax.paging.policy import load

    names = [name.strip() for text in modes for name in text.split(",")]
    return [*filter(None, names), *(load(spec) for spec in policies)]


group.command(**paging_sweep.SETTINGS)(paging_sweep.sweep)
group.command(**paging_lab.SETTINGS)(paging_lab.lab)
group.command(**paging_trace.SETTINGS)(paging_trace.trace)
forwarded.add(group, "switch", "Move this host's running KVM guests to the other paging mode.")
forwarded.add(group, "recover", "Bring guests back after a switch that was killed.")
forwarded.add(
    group, "control", "Let a policy choose this KVM host's paging mode, by live counters."
)
forwarded.add(group, "watch", "Show the controller live: mode, rates, decision, why.")


@group.command(short_help="List the machines that can be named.")
def machines(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the machines that vtax carries. Another one is a TOML file of the same form."""
    from vtax.paging import machines

    _print_list("machine", machines(), as_json)


@group.command(short_help="List the workloads that can be named.")
def workloads(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the synthetic workloads that vtax carries. Another one is a TOML file, or a trace."""
    from vtax.paging import workloads

    _print_list("workload", workloads(), as_json)


def _print_list(kind: str, titles: dict[str, str], as_json: bool) -> None:
    if as_json:
        print(
            json.dumps([{kind: name, "title": title} for name, title in titles.items()], indent=1)
        )
        return
    width = max(map(len, titles))
    for name, title in titles.items():
        print(f"{name:{width}}  {title}")


def add(app: typer.Typer) -> None:
    """Make its verbs a group of `app`."""
    app.add_typer(group, name="paging")
