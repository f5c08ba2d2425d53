"""`vtax paging lab`: one workload under nested and under shadow paging, counted by real KVM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from vtax.core.command import options

EXAMPLES = """\b
Examples:
  vtax paging lab -- random-touch --mem 64M
  vtax paging lab --reps 5 -- fork-exec-storm --count 200
  vtax paging lab --json -- gzip-like
  vtax paging lab -- gzip -kc /usr/bin/python3

\b
Built-in workloads: vtax paging lab --list. They run in one guest that is switched between the
modes while it runs. Anything else is a command of this machine and runs in a guest that sees
this machine's files read-only, on one emulated host for each mode.
"""

SETTINGS: dict[str, Any] = {
    "short_help": "Count what nested and shadow paging do, on real KVM in the lab.",
    "epilog": EXAMPLES,
    "context_settings": {"allow_interspersed_args": False, "ignore_unknown_options": False},
}


def lab(
    workload: Annotated[
        list[str] | None,
        typer.Argument(help="The workload and its options, after --.", metavar="WORKLOAD"),
    ] = None,
    repetitions: Annotated[
        int,
        typer.Option(
            "--reps",
            "--repetitions",
            min=1,
            max=1000,
            metavar="N",
            help="Runs under each mode, in alternating order.",
        ),
    ] = 1,
    memory: Annotated[
        str, typer.Option("--guest-mem", help="The guest's memory.", metavar="SIZE")
    ] = "256M",
    smp: Annotated[int, typer.Option(min=1, help="CPUs of the emulated host.", metavar="N")] = 1,
    icount: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=10,
            metavar="N",
            help="Let each instruction take 2^N ns of the emulated clock. Does not always boot.",
        ),
    ] = None,
    kernel: Annotated[
        Path | None,
        typer.Option(help="A vmlinuz-RELEASE with KVM. Default: found or fetched.", metavar="FILE"),
    ] = None,
    timeout: Annotated[
        str, typer.Option(help="Limit for one run of the workload, e.g. 10m.", metavar="TIME")
    ] = "10m",
    warm_up: Annotated[
        bool, typer.Option("--warm-up/--no-warm-up", help="Run once uncounted after each change.")
    ] = True,
    as_list: Annotated[
        bool, typer.Option("--list", help="List the built-in workloads and leave.")
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a workload under nested and under shadow paging and show what KVM counted.

    The lab is an emulated AMD machine with a stock kernel and stock KVM, and a guest in it: it
    needs x86-64 and no KVM. With QEMU 10 (Debian 13) guests do not boot under shadow paging.
    Counts are real; times are those of the emulated clock.
    """
    from vtax.core.page.progress import listener
    from vtax.core.page.render_terminal import show
    from vtax.core.page.tables import UNFOLDED
    from vtax.core.units import parse_duration
    from vtax.paging.lab import page as found
    from vtax.paging.lab.campaign import measure
    from vtax.workloads.builtin import builtin_workloads

    if as_list:
        return _show_list(builtin_workloads(), as_json)
    if not workload:
        from vtax.core.errors import MisuseError

        raise MisuseError("no workload", "name one after --, or see 'vtax paging lab --list'")
    wanted = _environment(memory, smp, icount, kernel)
    wanted.check()
    modes = 1 if wanted.paging_obstacle("shadow") else 2
    result = measure(
        workload,
        wanted,
        _variables(),
        repetitions,
        parse_duration(timeout),
        warm_up,
        listener(quiet, modes * repetitions),
    )
    if as_json:
        print(json.dumps(found.to_json(result), indent=1))
    else:
        show(found.page(result), UNFOLDED)
    return None


def _environment(memory: str, smp: int, icount: int | None, kernel: Path | None) -> Any:
    from vtax.environments.base import with_paging_modes

    options = {"guest_mem": memory, "smp": str(smp)}
    options |= {"icount": str(icount)} if icount is not None else {}
    options |= {"kernel": str(kernel)} if kernel else {}
    return with_paging_modes().from_options(options)


def _variables() -> dict[str, str]:
    import os

    from vtax.workloads.variables import base_environment

    return dict(base_environment(os.environ))


def _show_list(workloads: dict[str, str], as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"workload": k, "summary": v} for k, v in workloads.items()], indent=1))
        return
    width = max(map(len, workloads))
    for name, summary in workloads.items():
        print(f"{name:{width}}  {summary}")
