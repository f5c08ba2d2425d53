"""`vtax compare`: one workload in several environments, and how far to believe the difference."""

from __future__ import annotations

import json
import secrets
import sys
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.cli import options
from vtax.cli.declared import (
    DeclaredWithWorkloads,
    EnvOption,
    ShareOption,
    complete_instrument,
    complete_spec,
    complete_workload,
)

if TYPE_CHECKING:
    from vtax.analysis.results import Comparison
    from vtax.errors import VtaxError
    from vtax.formats.folder import RunFolder
    from vtax.formats.model import ComparisonRecord
    from vtax.runner.execute import ComparisonCampaign, Settings

EXAMPLES = """\b
Examples:
  vtax compare --in native --in uml:mem=1G --in qemu:accel=tcg -- hpcc --preset small
  vtax compare --in native --in qemu:smp=2,mem=2G --reps 10 --budget 15m -- dgemm --size 2000
  vtax compare --in uml --until 2% --budget 5m -- dgemm
  vtax compare --in native --in uml --metric 'rate:MB/s=rate: ([0-9.]+)' -- ./my-program
"""

SETTINGS: dict[str, Any] = {
    "cls": DeclaredWithWorkloads,
    "short_help": "Run a workload in several environments: what each costs.",
    "epilog": EXAMPLES,
    "context_settings": {"allow_interspersed_args": False, "ignore_unknown_options": False},
}


class Reboot(StrEnum):
    """When a machine is started again."""

    EACH = "each"
    NEVER = "never"


class ProgramClock(StrEnum):
    """The clocks of `vtax.formats.model.Clock`, as an option."""

    WALL = "wall"
    CPU = "cpu"
    TSC = "tsc"
    HOST = "host"


class Notes(StrEnum):
    """Which notes stand below the table."""

    FEW = "few"
    ALL = "all"


NotesOption = Annotated[Notes, typer.Option(help="Notes below the table: the first five, or all.")]


def compare(
    workload: Annotated[
        list[str],
        typer.Argument(
            help="The workload and its options, after --.",
            metavar="WORKLOAD",
            autocompletion=complete_workload,
        ),
    ],
    environments: Annotated[
        list[str] | None,
        typer.Option(
            "--in",
            help="An environment; repeat it. Guests such as uml get a baseline that runs "
            "natively. Default: native.",
            metavar="SPEC",
            autocompletion=complete_spec,
        ),
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option(
            "--reps",
            "--repetitions",
            min=1,
            max=10_000,
            metavar="N",
            help="Repetitions per environment. Default: 5, with --until 3.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Then go on until the interval of the program's time (or of the first --metric) "
            "is within ± this, e.g. 2%: what is noisy and cheap runs more often. Ends with "
            "--budget, or after 100 rounds.",
        ),
    ] = None,
    reboot: Annotated[
        Reboot, typer.Option(help="Start machines again for each repetition, or never.")
    ] = Reboot.NEVER,
    budget: Annotated[
        str | None,
        typer.Option(help="Stop adding repetitions after this time, e.g. 5m.", metavar="TIME"),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(help="Limit for one run of the workload, e.g. 10m.", metavar="TIME"),
    ] = None,
    max_output: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="Stop a run that writes more into its result folder, e.g. 4G."
        ),
    ] = "1G",
    margin: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=50,
            metavar="PERCENT",
            help="Margin within which environments are equivalent.",
        ),
    ] = 2.0,
    clock: Annotated[
        ProgramClock,
        typer.Option(
            help="Whose time of the whole program leads: the machine's wall clock, its CPU time, "
            "the time stamp counter, the host's wall clock."
        ),
    ] = ProgramClock.WALL,
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Look at the clocks before and after (vtax audit --quick)."),
    ] = False,
    seed: options.Seed = None,
    warm_up: Annotated[
        bool, typer.Option("--warm-up/--no-warm-up", help="Run once uncounted after each boot.")
    ] = True,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC|none",
            help="What the others are compared with; none: the first --in, and nothing runs "
            "natively. Default: native, as large as each guest.",
        ),
    ] = None,
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Measure the baseline twice (A/A).")
    ] = True,
    keep_env: Annotated[
        bool, typer.Option("--keep-env", help="Keep OMP_*, OPENBLAS_*, MKL_* and the like.")
    ] = False,
    clean_env: Annotated[
        bool, typer.Option("--clean-env", help="Give commands none of your own variables.")
    ] = False,
    env: EnvOption = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="A number in a command's output: NAME[:UNIT][:higher|lower]=REGEX; more: "
            "vtax compare -- command --help.",
            metavar="METRIC",
        ),
    ] = None,
    workdir: Annotated[
        Path | None,
        typer.Option(help="Run a command line there. Default: the current folder.", metavar="DIR"),
    ] = None,
    instruments: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="Also use this instrument where possible; repeat it.",
            metavar="NAME",
            autocompletion=complete_instrument,
        ),
    ] = None,
    push: Annotated[
        list[Path] | None,
        typer.Option(
            help="Bring this file or folder to where this machine's files are not seen; repeat it.",
            metavar="PATH",
            exists=True,
        ),
    ] = None,
    share: ShareOption = None,
    out: options.Out = options.RUNS,
    notes: NotesOption = Notes.FEW,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Run a workload in several environments and say what each costs, with what confidence.

    Every environment is compared with a native run that has the same CPUs and memory: the workload
    runs on this machine too, even if only guests are named. For a program that must not run here,
    give --baseline none.

    Each repetition of a command gets your standard input (a file or a pipe), your variables without
    secrets and without those that change results, and an empty home (docs/environments.md).
    """
    from vtax.environments import BASELINE
    from vtax.errors import VtaxError
    from vtax.formats.folder import RunFolder
    from vtax.present.terminal.progress import listener
    from vtax.runner.allocation import PILOT_ROUNDS
    from vtax.runner.execute import USUAL_REPETITIONS, ComparisonCampaign
    from vtax.units import parse_percent, parse_size

    settings = _settings(
        tuple(workload),
        environments or [BASELINE],
        tuple(metric or ()),
        instruments=tuple(instruments or ()),
        push=tuple(push or ()),
        share=tuple(share or ()),
        keep_env=keep_env,
        clean_env=clean_env,
        env=tuple(env or ()),
        control=control,
        baseline=baseline,
        repetitions=repetitions or (USUAL_REPETITIONS if until is None else PILOT_ROUNDS),
        until_percent=None if until is None else parse_percent(until),
        warm_up=warm_up,
        reboot=reboot.value,
        budget_s=_duration(budget),
        timeout_s=_duration(timeout),
        max_output_bytes=parse_size(max_output),
        margin_percent=margin,
        clock=clock.value,
        audit=audit,
        seed=secrets.randbits(32) if seed is None else seed,
        workdir=workdir,
    )
    _check(settings)
    folder = RunFolder.create(out, settings.workload.label())
    total = settings.repetitions * len(settings.compared_variants)
    campaign = ComparisonCampaign(settings, folder, listener(total, quiet))
    try:
        record = campaign.run()
    except VtaxError:
        _discard_if_empty(folder, campaign)
        raise
    if campaign.failures and not campaign.samples and record.state != "interrupted":
        raise _nothing_measured(folder, campaign)
    comparison = _analyse(folder, record, campaign)
    show(comparison, folder.path, as_json=as_json, all_notes=notes is Notes.ALL)
    raise typer.Exit(_exit_code(record, campaign))


def _settings(
    argv: tuple[str, ...], specs: list[str], patterns: tuple[str, ...], **options: Any
) -> Settings:
    from vtax import workloads
    from vtax.cli import standard_input
    from vtax.environments.base import working_folder
    from vtax.runner.execute import Settings
    from vtax.runner.given import Wishes, given
    from vtax.runner.instruments import chosen
    from vtax.runner.matching import compared_variants, pushed, showing
    from vtax.workloads.command import CommandLine

    control = options.pop("control")
    wishes = Wishes(
        share=options.pop("share"),
        keep_env=options.pop("keep_env"),
        clean_env=options.pop("clean_env"),
        named=options.pop("env"),
    )
    baseline = options.pop("baseline")
    workload = workloads.parse(argv, patterns)
    variants = pushed(compared_variants(specs, control, baseline), options.pop("push"))
    unread: tuple[str, ...] = ()
    if isinstance(workload, CommandLine):
        alone = not any(each.role == "measured" and each.baseline for each in variants)
        read = standard_input.read()
        workload, unread = replace(workload, compared=not alone, stdin=read.content), read.said
    instruments = chosen(options.pop("instruments"), [each.environment for each in variants])
    machines = {each.label: each.environment for each in variants}
    workdir = working_folder(options.pop("workdir"), machines)
    gets = given(machines, workload.needs(), workdir, wishes)
    return Settings(
        workload=workload,
        compared_variants=showing(variants, gets.shown),
        instruments=instruments,
        workdir=workdir,
        environment=gets.environment,
        recorded_variables=gets.variables.kept,
        scrubbed_variables=gets.variables.scrubbed,
        inputs=(*gets.said, *unread),
        command_line=("vtax", *sys.argv[1:]),
        **options,
    )


def _duration(text: str | None) -> float | None:
    from vtax.units import parse_duration

    return None if text is None else parse_duration(text)


def _check(settings: Settings) -> None:
    """Raise for everything that can be known to be missing before a folder is made or a guest
    booted."""
    from vtax.environments import sharing
    from vtax.runner.matching import common_shape
    from vtax.workloads import programs
    from vtax.workloads.command import CommandLine

    settings.workload.command(common_shape(settings.compared_variants))
    for compared in settings.compared_variants:
        compared.environment.check()
    workload = settings.workload
    own = workload if isinstance(workload, CommandLine) else None
    remedy = "check its name" if own else "run 'vtax doctor' for what is missing"
    machines = {each.label: each.environment for each in settings.compared_variants}
    here = any(each.sees_host_files() for each in machines.values())
    where = (settings.environment["PATH"], settings.workdir or Path())
    arguments = own.argv[1:] if own else ()
    for program in workload.needs() if here else ():
        found = programs.require(program, *where, remedy, arguments)
        sharing.require_seen(machines, found)


def _discard_if_empty(folder: Any, campaign: ComparisonCampaign) -> None:
    """Remove the folder of a run that measured nothing: its error message says it all."""
    import shutil

    if not campaign.samples:
        shutil.rmtree(folder.path, ignore_errors=True)


def _nothing_measured(folder: RunFolder, campaign: ComparisonCampaign) -> VtaxError:
    """The error instead of a result when everything that was run has failed."""
    from vtax.errors import VtaxError

    first = campaign.failures[0]
    return VtaxError(
        f"nothing was measured: {first.environment}: {first.message}",
        f"what it printed is in {folder.raw(first.environment)}",
    )


def _analyse(folder: Any, record: ComparisonRecord, campaign: ComparisonCampaign) -> Comparison:
    from vtax.analysis.compare import compare as analyse
    from vtax.formats.folder import REPORT
    from vtax.present.html.comparison import write_report

    comparison = analyse(record, campaign.samples, str(folder.path))
    write_report(comparison, campaign.samples, folder.path / REPORT)
    return comparison


def show(comparison: Comparison, path: Path, *, as_json: bool, all_notes: bool) -> None:
    """Print the result on standard output: JSON, or the table and the path of the report."""
    from vtax.formats.folder import REPORT

    if as_json:
        from vtax.analysis.compare import to_json

        print(json.dumps(to_json(comparison), indent=1))
        return
    from vtax.present.terminal.comparison import render_table
    from vtax.present.terminal.tables import show as show_parts

    show_parts(render_table(comparison, all_notes=all_notes))
    print(f"report: {path / REPORT}")


def _exit_code(record: ComparisonRecord, campaign: ComparisonCampaign) -> int:
    if record.state == "interrupted":
        return 130
    return 0 if campaign.samples and not campaign.failures else 1
