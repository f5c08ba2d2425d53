"""`vtax explain`: the bill of a comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vtax.compare.verb import ComparisonOptions
from vtax.core.command import campaigns
from vtax.core.command.declared import DeclaredWithWorkloads, complete_spec
from vtax.core.command.options import takes
from vtax.core.errors import MisuseError

EXAMPLES = """\b
Examples:
  vtax explain --in uml -- ./my-program
  vtax explain runs/20261125T120000Z-my-program
  vtax explain --predict uml,gvisor -- ./my-program
"""

SETTINGS: dict[str, Any] = {
    "cls": DeclaredWithWorkloads,
    "short_help": "Say why a program takes longer: the bill of its system calls, faults, ...",
    "epilog": EXAMPLES,
    "context_settings": {"allow_interspersed_args": False, "ignore_unknown_options": False},
}


@dataclass(frozen=True)
class ExplainOptions(ComparisonOptions):
    """The options of `vtax explain`: those of a comparison, and one more."""

    predict: Annotated[
        str | None,
        typer.Option(
            metavar="SPECS",
            help="Say what the program would take in these environments, with commas; it runs "
            "natively only.",
            autocompletion=complete_spec,
        ),
    ] = None


@takes(ExplainOptions)
def explain(options: ExplainOptions) -> None:
    """Compare a program as `vtax compare` does, count what it does, and write the bill.

    The bill multiplies how often the program makes each system call, takes each kind of page
    fault, starts processes and waits with what that costs more than natively. The sum stands
    beside the measured difference, and the rest is called unexplained. Instead of a program, name
    the folder of a comparison that exists.

    The program runs twice more, natively, while it is counted: by eBPF (needs root), or else by
    ptrace. Prices are measured once for each environment, 20 s each, and kept in the cache
    (docs/explain.md).
    """
    from vtax.core.page.progress import listener
    from vtax.explain import campaign
    from vtax.explain.page import page, to_json

    folder, options = _existing(options)
    progress = listener(options.quiet)
    found = campaign.again(folder, progress) if folder else campaign.anew(options, progress)
    answer = to_json(found.record) if options.as_json else None
    campaigns.show_result(page(found.record), found.folder, answer)
    campaigns.end(found.comparison.state, failed=bool(found.comparison.failures))


def _existing(options: ExplainOptions) -> tuple[Path | None, ExplainOptions]:
    """The folder of a comparison, where that is what the user named, and the options with those
    behind it."""
    first, *more = options.workload
    folder = Path(first)
    if options.environments or options.predict or not (folder / "run.json").is_file():
        return None, options
    if unknown := [each for each in more if each not in ("--json", "--quiet", "-q")]:
        raise MisuseError(
            f"{unknown[0]} behind a run folder is not understood", "--json or --quiet"
        )
    as_json = options.as_json or "--json" in more
    quiet = options.quiet or bool({"--quiet", "-q"}.intersection(more))
    return folder, replace(options, as_json=as_json, quiet=quiet)


def add(app: typer.Typer) -> None:
    """Make it a verb of `app`."""
    app.command(**SETTINGS)(explain)
