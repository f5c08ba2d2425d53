"""`vtax place advise`: which threads of this host may go to slow cores."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from vtax.place.host_advice import HostAdvice, HostThread
    from vtax.place.interrupt_advice import AdvisedInterrupt
    from vtax.place.record import Predictor
    from vtax.place.sensitivity import Sensitivity

EXAMPLES = """\b
Examples:
  vtax place advise
  vtax place advise --fast 0-3 --slow 4-7 --slow-speed 40 --plan plan.toml --explain
  vtax place advise --like http --loss 10%
  vtax place advise --loss 5% --guest-loss db=1% --from runs/20261123T090000Z-place --json
  vtax place advise --fast 0-3 --slow 4-7 --format libvirt
"""

SETTINGS: dict[str, Any] = {
    "name": "advise",
    "short_help": "Say which threads may go to slow cores, and write a plan.",
    "epilog": EXAMPLES,
}
SHORTEST_S = 0.1


class Format(StrEnum):
    """How the answer is printed."""

    TABLE = "table"
    LIBVIRT = "libvirt"


Run = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="A run of 'vtax place measure', for its predictor. Default: the newest in --runs.",
        metavar="RUN",
    ),
]
Runs = Annotated[Path, typer.Option(help="Folder of run folders.", metavar="DIR")]
PredictorFile = Annotated[
    Path | None,
    typer.Option("--predictor", help="A predictor as JSON instead of a run's.", metavar="FILE"),
]
Fast = Annotated[
    str | None,
    typer.Option(
        help="Fast CPUs. Default: those that are not slow; by the kernel, where cores differ.",
        metavar="CPUS",
    ),
]
Slow = Annotated[str | None, typer.Option(help="Slow CPUs, likewise.", metavar="CPUS")]
Pids = Annotated[
    list[int] | None,
    typer.Option(
        "--pid", min=1, help="Only this process and what it started; repeat it.", metavar="PID"
    ),
]
Rate = Annotated[
    str | None,
    typer.Option(
        help="What the link of a guest carries, in bit/s, e.g. 10G: without it Combined Usage is "
        "not known.",
        metavar="RATE",
    ),
]


def advise(
    run: Run = None,
    runs: Runs = Path("runs"),
    predictor: PredictorFile = None,
    like: Annotated[
        str | None,
        typer.Option(
            help="Suppose that every guest is as sensitive as this load of the run.",
            metavar="LOAD",
        ),
    ] = None,
    pid: Pids = None,
    seconds: Annotated[
        str, typer.Option("--for", help="How long to watch the threads.", metavar="TIME")
    ] = "5s",
    fast: Fast = None,
    slow: Slow = None,
    slow_speed: Annotated[
        str | None,
        typer.Option(
            help="Speed of slow cores. Default: by the kernel, otherwise 50 %.", metavar="PERCENT"
        ),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="What each guest may lose of its throughput.", metavar="PERCENT")
    ] = "5%",
    guest_loss: Annotated[
        list[str] | None,
        typer.Option(help="What one guest may lose; repeat it.", metavar="NAME=PERCENT"),
    ] = None,
    rate: Rate = None,
    plan: Annotated[
        Path | None,
        typer.Option(help="Write a plan for 'vtax place apply' here.", metavar="FILE"),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say why for every thread, in a sentence.")
    ] = False,
    format: Annotated[
        Format, typer.Option(help="A table, or <cputune> for libvirt's domains.")
    ] = Format.TABLE,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Say which of this host's threads for guests may go to slow cores: fast, slow or unknown.

    It watches the threads for a while and moves nothing. What a guest would lose comes from a run
    of 'vtax place measure'. Without one that says anything it is what loads lost in vtax's own
    measurements, unless --like says which load of a run the guests are like.
    docs/place.md says how to try a plan and take it back.
    """
    from vtax.core.page import render_terminal
    from vtax.core.units import parse_count, parse_percent
    from vtax.place import advice_page as shown
    from vtax.place.cores import cores as cores_of_host
    from vtax.place.host_advice import advice
    from vtax.place.interrupt_advice import interrupt_advice
    from vtax.place.placement import Constraints
    from vtax.place.threads import look

    speed = None if slow_speed is None else parse_percent(slow_speed)
    known = cores_of_host(fast, slow, speed)
    if known.supposed and (plan or format is Format.LIBVIRT):
        _refuse_plan("--plan" if plan else "--format libvirt")
    limits = Constraints(loss_percent=parse_percent(loss), loss_by_guest=_budgets(guest_loss or ()))
    window, rate_bits = _seconds(seconds), None if rate is None else parse_count(rate)
    by, source, why = _predictor(run, predictor, runs, like)
    seen = look(pid or (), window, rate_bits)
    _check_guests(limits.loss_by_guest, seen.threads)
    given = advice(seen.threads, known, by, limits, seen.devices)
    interrupts = interrupt_advice(seen.interrupts, known)
    written = plan is not None and _write(plan, given, interrupts)
    if format is Format.LIBVIRT and not as_json:
        _print_libvirt(given, interrupts)
        return
    unwritten = f"{plan} is not written: everything is to stay where it is"
    answer = shown.Answer(
        advice=given,
        interrupts=interrupts,
        predictor=by,
        predictor_from=source,
        measured_watts=seen.drawn.watts,
        no_watts=seen.drawn.absent,
        notes=(
            *filter(None, (why, _rate_missing(by, rate))),
            *_supposed(given),
            *known.notes,
            *seen.notes,
            *given.plan.notes,
            *([unwritten] if plan and not written else ()),
        ),
        plan_file=str(plan) if written else None,
    )
    if as_json:
        print(json.dumps(shown.to_json(answer), indent=1))
    else:
        render_terminal.show(shown.page(answer, explain=explain))


def _predictor(
    run: Path | None, file: Path | None, runs: Path, like: str | None
) -> tuple[Predictor | Sensitivity, str, str | None]:
    """The predictor or sensitivity, its source, and why it is not the user's."""
    from vtax.core.errors import MisuseError
    from vtax.place import predictors

    if like is None:
        found = predictors.find(run, file, runs)
        return found.predictor, found.source, found.why
    if file is not None:
        raise MisuseError("both --like and --predictor are given", "leave out one")
    return *predictors.like(like, run, runs), None


def _refuse_plan(option: str) -> None:
    from vtax.core.errors import MisuseError

    raise MisuseError(
        f"{option}: the kernel says of no core that it is slower",
        "name some with --fast or --slow, e.g. --slow 4-7",
    )


def _rate_missing(by: Predictor | Sensitivity | None, rate: str | None) -> str | None:
    from vtax.place.hypothesis import HYPOTHESIS
    from vtax.place.record import Predictor

    if rate is None and isinstance(by, Predictor) and by.name == HYPOTHESIS:
        return "the predictor goes by the use of links: --rate says what they carry"
    return None


def _supposed(given: HostAdvice) -> Sequence[str]:
    if not given.cores.supposed or not given.threads:
        return ()
    speed = given.cores.slowest_percent
    return (
        f"all cores are alike here: advice is for supposed ones of {speed:g} % of full speed;"
        " --fast and --slow name real ones",
    )


def _seconds(text: str) -> float:
    from vtax.core.errors import MisuseError
    from vtax.core.units import parse_duration
    from vtax.place.energy import LONGEST_S

    seconds = parse_duration(text)
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise MisuseError(f"--for {text}: it is not from 100 ms to {LONGEST_S:g} s")
    return seconds


def _budgets(words: Sequence[str]) -> dict[str, float]:
    """The budget of each guest; a guest's name may hold an equals sign."""
    from vtax.core.errors import MisuseError
    from vtax.core.units import parse_percent

    found: dict[str, float] = {}
    for word in words:
        name, equals, percent = word.rpartition("=")
        if not (name and equals):
            raise MisuseError(f"--guest-loss {word}: it is not NAME=PERCENT", "e.g. db=2%")
        if name in found:
            raise MisuseError(f"--guest-loss: {name} is given twice", "leave out one")
        found[name] = parse_percent(percent)
    return found


def _check_guests(budgets: Iterable[str], threads: Sequence[HostThread]) -> None:
    """Raise MisuseError for a budget of a guest that does not run."""
    from vtax.core.errors import MisuseError
    from vtax.core.specs import unknown

    guests = {each.guest for each in threads if each.guest is not None}
    for name in budgets:
        if not guests:
            raise MisuseError(f"--guest-loss {name}: no guest runs here")
        if name not in guests:
            raise unknown("guest", name, guests)


def _write(file: Path, given: HostAdvice, interrupts: Sequence[AdvisedInterrupt]) -> bool:
    """Write the plan and return whether there is anything to plan; an empty plan would be
    refused."""
    from vtax.place.interrupt_advice import planned
    from vtax.place.plan import PlanFile, write
    from vtax.place.service_domain import host

    moving = planned(interrupts)
    if not (given.planned or moving):
        return False
    write(file, PlanFile(host=host(), thread=given.planned, interrupt=moving))
    return True


def _print_libvirt(given: HostAdvice, interrupts: Sequence[AdvisedInterrupt]) -> None:
    from vtax.core.page.format import one_line
    from vtax.place.advice_page import libvirt

    documents, left_out = libvirt(given, interrupts)
    if not documents:
        print("vtax: no guest of QEMU runs here: libvirt has nothing to pin", file=sys.stderr)
        raise typer.Exit(1)
    print(documents)
    for text in left_out:
        print(f"not in it: {one_line(text)}", file=sys.stderr)
