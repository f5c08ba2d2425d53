"""`vtax prices`: what each operation costs where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from vtax.core.command import campaigns
from vtax.core.command.declared import Declared
from vtax.core.command.options import RunOptions, Specs, reps, takes

EXAMPLES = """\b
Examples:
  vtax prices --in uml
  vtax prices --in native --in uml --in gvisor
  vtax prices --in qemu:accel=tcg --only stat,open,fork --json
"""

SETTINGS: dict[str, Any] = {
    "cls": Declared,
    "short_help": "Say what each operation costs in environments.",
    "epilog": EXAMPLES,
}
ROUNDS = 4
"""As of `campaign`, which is not imported for the help."""
SHORTEST_S, LONGEST_S = 0.5, 60.0


@dataclass(frozen=True)
class PricesOptions(RunOptions):
    """The options of `vtax prices`."""

    environments: Specs = None
    repetitions: Annotated[int, reps("Measurements of each environment, in turn.")] = ROUNDS
    seconds: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long one measurement takes: 500ms to 60s."),
    ] = "4s"
    only: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Only these operations, with commas."),
    ] = None


@takes(PricesOptions)
def prices(options: PricesOptions) -> None:
    """Measure what system calls, page faults, processes and waiting cost in environments.

    Each environment is measured in turn with a native baseline as large as it. `vtax explain`
    multiplies these prices with what a program does, and keeps them in a cache; this verb measures
    again, shows them and refreshes the cache (docs/explain.md).
    """
    from vtax.core.formats.folder import RunFolder
    from vtax.core.page.progress import listener
    from vtax.core.runner.matching import compared_variants
    from vtax.environments import BASELINE
    from vtax.prices import book
    from vtax.prices.campaign import PricesCampaign, PricesRequest

    variants = compared_variants(options.environments or [BASELINE], control=False)
    seconds = _seconds(options.seconds)
    for each in variants:
        each.environment.check()
    request = PricesRequest(
        variants=variants,
        rounds=options.repetitions,
        seconds=seconds,
        only=tuple(options.only.split(",")) if options.only else (),
        variables=campaigns.variables(),
        **campaigns.asked(options.seed),
    )
    folder = RunFolder.create(options.out, "prices")
    campaign = PricesCampaign(request, folder, listener(options.quiet))
    record = campaign.carry_out()
    if record.state == "complete" and not options.only:
        book.keep(record)
    campaigns.show(record, folder.path, as_json=options.as_json)
    campaigns.end(record.state, failed=campaign.first_failure is not None)


def _seconds(text: str) -> float:
    """Raises MisuseError when it is no time between SHORTEST_S and LONGEST_S."""
    from vtax.core.errors import MisuseError
    from vtax.core.units import parse_duration

    seconds = parse_duration(text)
    if not SHORTEST_S <= seconds <= LONGEST_S:
        raise MisuseError(f"--seconds {text}: is not possible", "give 500ms to 60s")
    return seconds


def add(app: typer.Typer) -> None:
    """Make it a verb of `app`."""
    app.command(**SETTINGS)(prices)
