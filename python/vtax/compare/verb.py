"""`vtax compare`: one workload in several environments, and how far to believe the difference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.compare import report
from vtax.compare.history import gate
from vtax.compare.history import verb as history
from vtax.compare.submitted import verb as submitted
from vtax.core.command import campaigns
from vtax.core.command.declared import (
    DeclaredWithWorkloads,
    complete_instrument,
    complete_workload,
)
from vtax.core.command.options import (
    RUNS,
    Env,
    Json,
    Notes,
    Out,
    Quiet,
    Seed,
    Share,
    ShownNotes,
    Spec,
    specs,
    takes,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtax.compare.request import ComparisonRequest
    from vtax.compare.sweep.parameters import Values
    from vtax.workloads.base import Workload

EXAMPLES = """\b
Examples:
  vtax compare --in native --in uml:mem=1G --in qemu:accel=tcg -- hpcc --preset small
  vtax compare --in native --in qemu:smp=2,mem=2G --reps 10 --budget 15m -- dgemm --size 2000
  vtax compare --in uml --until 2% --budget 5m -- dgemm
  vtax compare --in native --in uml --param size=500,1000,2000 -- dgemm --size {size}
  vtax compare --in uml --in qemu --baseline none --param seed=random:1..1000 -- ./prog {seed}
  vtax compare --spec runs/20261129T120000Z-dgemm/spec.yaml --reps 20
  vtax compare --in uml --against runs/OLD --fail-over 3% --junit vtax.xml -- ./my-program
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
    """The clocks of `vtax.core.formats.model.Clock`, as an option."""

    WALL = "wall"
    CPU = "cpu"
    TSC = "tsc"
    HOST = "host"


@dataclass(frozen=True)
class ComparisonOptions:
    """The options of verbs that run a comparison."""

    workload: Annotated[
        list[str],
        typer.Argument(
            help="The workload and its options, after --.",
            metavar="WORKLOAD",
            autocompletion=complete_workload,
        ),
    ]
    environments: Annotated[
        list[str] | None,
        specs(
            "An environment; repeat it. Guests such as uml get a baseline that runs natively. "
            "Default: native."
        ),
    ] = None
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
    ] = None
    until: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Then go on until the interval of the program's time (or of the first --metric) "
            "is within ± this, e.g. 2%: what is noisy and cheap runs more often. Ends with "
            "--budget, or after 100 rounds.",
        ),
    ] = None
    reboot: Annotated[
        Reboot, typer.Option(help="Start machines again for each repetition, or never.")
    ] = Reboot.NEVER
    budget: Annotated[
        str | None,
        typer.Option(help="Stop adding repetitions after this time, e.g. 5m.", metavar="TIME"),
    ] = None
    timeout: Annotated[
        str | None,
        typer.Option(help="Limit for one run of the workload, e.g. 10m.", metavar="TIME"),
    ] = None
    max_output: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="Stop a run that writes more into its result folder, e.g. 4G."
        ),
    ] = "1G"
    margin: Annotated[
        float,
        typer.Option(
            min=0.01,
            max=50,
            metavar="PERCENT",
            help="Margin within which environments are equivalent.",
        ),
    ] = 2.0
    clock: Annotated[
        ProgramClock,
        typer.Option(
            help="Whose time of the whole program leads: the machine's wall clock, its CPU time, "
            "the time stamp counter, the host's wall clock."
        ),
    ] = ProgramClock.WALL
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Look at the clocks before and after (vtax audit --quick)."),
    ] = False
    spec: Spec = None
    seed: Seed = None
    warm_up: Annotated[
        bool, typer.Option("--warm-up/--no-warm-up", help="Run once uncounted after each boot.")
    ] = True
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC|none",
            help="What the others are compared with; none: the first --in, and nothing runs "
            "natively. Default: native, as large as each guest.",
        ),
    ] = None
    control: Annotated[
        bool, typer.Option("--control/--no-control", help="Measure the baseline twice (A/A).")
    ] = True
    keep_env: Annotated[
        bool, typer.Option("--keep-env", help="Keep OMP_*, OPENBLAS_*, MKL_* and the like.")
    ] = False
    clean_env: Annotated[
        bool, typer.Option("--clean-env", help="Give commands none of your own variables.")
    ] = False
    env: Env = None
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="A number in a command's output: NAME[:UNIT][:higher|lower]=REGEX; more: "
            "vtax compare -- command --help.",
            metavar="METRIC",
        ),
    ] = None
    param: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare at each of these values, which take the place of {NAME} in the command "
            "and in --in; repeat it for every combination. NAME=random:1..1000, NAME=random:a,b,c: "
            "each round draws one, the same for all environments.",
            metavar="NAME=VALUE,...",
        ),
    ] = None
    workdir: Annotated[
        Path | None,
        typer.Option(help="Run a command line there. Default: the current folder.", metavar="DIR"),
    ] = None
    instruments: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            help="Also use this instrument where possible; repeat it.",
            metavar="NAME",
            autocompletion=complete_instrument,
        ),
    ] = None
    push: Annotated[
        list[Path] | None,
        typer.Option(
            help="Bring this file or folder to where this machine's files are not seen; repeat it.",
            metavar="PATH",
            exists=True,
        ),
    ] = None
    share: Share = None
    commit: Annotated[
        str | None,
        typer.Option(
            help="The commit that is measured. Default: Git's of the current folder or --workdir.",
            metavar="COMMIT",
        ),
    ] = None
    out: Out = RUNS
    notes: ShownNotes = Notes.FEW
    as_json: Json = False
    quiet: Quiet = False


@dataclass(frozen=True)
class CompareOptions(ComparisonOptions):
    """The options of `vtax compare`."""

    duet: Annotated[
        bool,
        typer.Option(
            "--duet",
            help="Run both environments at once, on CPUs that they swap at random: noise from "
            "outside hits both. For exactly two.",
        ),
    ] = False
    against: gate.Against = None
    fail_over: gate.FailOver = None
    junit: gate.Junit = None
    markdown: gate.Markdown = None


@takes(CompareOptions)
def compare(options: CompareOptions) -> None:
    """Run a workload in several environments and say what each costs, with what confidence.

    Every environment is compared with a native run that has the same CPUs and memory: the workload
    runs on this machine too, even if only guests are named. For a program that must not run here,
    give --baseline none.

    Each repetition of a command gets your standard input (a file or a pipe), your variables without
    secrets and without those that change results, and an empty home (docs/environments.md).

    The exit code is 3 when a metric got worse by more than --fail-over and all else went well, 1
    when something failed, 130 after Ctrl-C.
    """
    from vtax.compare.campaign import ComparisonCampaign
    from vtax.compare.history.surroundings import Measured
    from vtax.core.errors import MisuseError
    from vtax.core.formats.folder import RunFolder
    from vtax.core.page.progress import listener

    files = (options.junit, options.markdown)
    held = gate.opened(
        options.against, options.fail_over, *files, beside=options.out, as_json=options.as_json
    )
    if _is_sweep(options):
        if options.duet or not held.is_empty:
            raise MisuseError(
                "--duet, --against and --markdown are for one comparison", "leave out --param"
            )
        sweep(options)
        return
    request = request_of(options)
    if options.duet:
        from vtax.compare.duet import paired

        request = paired(request)
    held.require(Measured.asked(request))
    require(request)
    folder = RunFolder.create(options.out, request.name)
    campaign = ComparisonCampaign(request, folder, listener(options.quiet))
    record = campaign.carry_out()
    # This imports numpy and polars: the first run does not wait for them.
    from vtax.compare.analysis import compare as analyse

    comparison = analyse(record, campaign.samples, str(folder.path))
    found = campaign.samples
    changes = report.show(
        comparison, found, folder.path, options.notes, held, as_json=options.as_json
    )
    held.end(record.state, changes, failed=bool(campaign.failures) or not found)


def sweep(options: CompareOptions) -> None:
    """Compare at every combination of `--param`. Raises MisuseError for what a sweep cannot do."""
    from vtax.compare.sweep.campaign import SweepCampaign
    from vtax.compare.sweep.request import sweep_of
    from vtax.core.formats.folder import RunFolder
    from vtax.core.page.progress import listener

    request = sweep_of(options)
    for each in request.points:
        require(each.request)
    folder = RunFolder.create(options.out, " ".join(request.workload))
    campaign = SweepCampaign(request, folder, listener(options.quiet))
    record = campaign.carry_out()
    campaigns.show(record, folder.path, as_json=options.as_json)
    campaigns.end(record.state, failed=bool(campaign.failures) or not campaign.samples)


def _is_sweep(options: CompareOptions) -> bool:
    """Whether a parameter has several comparisons; one that is drawn has not."""
    from vtax.compare.drawing import is_drawn

    return not all(map(is_drawn, options.param or ()))


def request_of(
    options: ComparisonOptions, at: Values | None = None, draws: int | None = None
) -> ComparisonRequest:
    """What the options ask for, of this machine as it is, at these values of a sweep's parameters.

    `draws` is the seed of what rounds draw; None: that of the order. Raises MisuseError for what
    cannot be.
    """
    from vtax.compare.drawing import Drawing, parse
    from vtax.compare.request import ComparisonRequest
    from vtax.compare.sweep.parameters import filled
    from vtax.core.command import standard_input
    from vtax.core.commit import commit_of
    from vtax.core.runner.given import Wishes, given
    from vtax.core.runner.instruments import chosen
    from vtax.core.runner.matching import compared_variants, pushed, showing
    from vtax.core.units import parse_percent, parse_size
    from vtax.environments import BASELINE
    from vtax.environments.base import working_folder
    from vtax.workloads.command import CommandLine

    until_percent = None if options.until is None else parse_percent(options.until)
    budget_s, timeout_s = map(campaigns.seconds, (options.budget, options.timeout))
    max_output_bytes = parse_size(options.max_output)
    wishes = Wishes(options.share or (), options.keep_env, options.clean_env, options.env or ())
    specs, words, fixed = options.environments or [BASELINE], tuple(options.workload), at or {}
    drawn = parse(options.param or (), words, [*specs, options.baseline or ""])
    variants = compared_variants(specs, options.control, options.baseline)
    variants = pushed(variants, options.push or ())
    instruments = chosen(options.instruments or (), [each.environment for each in variants])
    machines = {each.label: each.environment for each in variants}
    workdir = working_folder(options.workdir, machines)
    asked = campaigns.asked(options.seed, workdir)
    alone = not any(each.role == "measured" and each.baseline for each in variants)
    made = partial(_workload, patterns=tuple(options.metric or ()), compared=not alone)
    own_seed = asked["seed"] if draws is None else draws
    drawing = Drawing(drawn, own_seed, words, fixed, made) if drawn else None
    workload = drawing.of_round(0) if drawing else made(filled(words, fixed))
    unread = standard_input.read().said if isinstance(workload, CommandLine) else ()
    gets = given(machines, workload.needs(), workdir, wishes)
    return ComparisonRequest(
        workload=workload,
        drawing=drawing,
        compared_variants=showing(variants, gets.shown),
        variables=gets.environment,
        commit=options.commit or commit_of(workdir or Path()),
        recorded_variables=gets.variables.kept,
        scrubbed_variables=gets.variables.scrubbed,
        **asked,
        inputs=(*gets.said, *unread),
        repetitions=options.repetitions or _usual_repetitions(until_percent),
        until_percent=until_percent,
        warm_up=options.warm_up,
        reboot=options.reboot.value,
        budget_s=budget_s,
        timeout_s=timeout_s,
        max_output_bytes=max_output_bytes,
        margin_percent=options.margin,
        clock=options.clock.value,
        audit=options.audit,
        workdir=workdir,
        instruments=instruments,
    )


def _workload(words: Sequence[str], patterns: tuple[str, ...], *, compared: bool) -> Workload:
    """The workload of a command; a command line gets the user's standard input."""
    from vtax import workloads
    from vtax.core.command import standard_input
    from vtax.workloads.command import CommandLine

    workload = workloads.parse(words, patterns)
    if isinstance(workload, CommandLine):
        return replace(workload, compared=compared, stdin=standard_input.read().content)
    return workload


def _usual_repetitions(until_percent: float | None) -> int:
    if until_percent is None:
        from vtax.compare.request import USUAL_REPETITIONS

        return USUAL_REPETITIONS
    from vtax.compare.allocation import PILOT_ROUNDS

    return PILOT_ROUNDS


def require(request: ComparisonRequest) -> None:
    """Raise for everything that can be known to be missing before a folder is made or a guest
    booted."""
    from vtax.environments import sharing
    from vtax.workloads import programs
    from vtax.workloads.command import CommandLine

    for compared in request.compared_variants:
        compared.environment.check()
    workload = request.workload
    own = workload if isinstance(workload, CommandLine) else None
    remedy = "check its name" if own else "run 'vtax doctor' for what is missing"
    machines = {each.label: each.environment for each in request.compared_variants}
    here = any(each.sees_host_files() for each in machines.values())
    where = (request.variables["PATH"], request.workdir or Path())
    arguments = own.argv[1:] if own else ()
    for program in workload.needs() if here else ():
        found = programs.require(program, *where, remedy, arguments)
        sharing.require_seen(machines, found)


def add(app: typer.Typer) -> None:
    """Make it a verb of `app`, with `report`, `history`, `submit` and `collect`."""
    app.command(**SETTINGS)(compare)
    app.command(short_help="Write the report of a run again.")(report.report)
    app.command(**history.SETTINGS)(history.history)
    submitted.add(app)
