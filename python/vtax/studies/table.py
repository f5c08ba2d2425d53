"""The claims on the terminal: one row each, nothing read as markup."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from vtax.present.format import one_line
from vtax.studies.model import Basis, Claim, Outcome, Study, Verdict

SYMBOLS = {Verdict.HOLDS: "✓", Verdict.FAILS: "✗", Verdict.UNKNOWN: "?"}
_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "red", Verdict.UNKNOWN: "yellow"}


def counts(claims: Sequence[Claim]) -> str:
    """`20 hold, 3 do not hold, 2 cannot be judged (4 of those that hold were told to the model)`"""
    found = Counter(claim.verdict for claim in claims)
    told = sum(c.verdict is Verdict.HOLDS and c.basis is Basis.TOLD for c in claims)
    text = (
        f"{found[Verdict.HOLDS]} of {len(claims)} claims hold, {found[Verdict.FAILS]} do not, "
        f"{found[Verdict.UNKNOWN]} cannot be judged"
    )
    return f"{text} ({told} of those that hold were told to the model)" if told else text


def print_terminal(study: Study, outcome: Outcome) -> None:
    """On standard output, as wide as it is."""
    console = Console()
    for part in _parts(study, outcome):
        console.print(part)


def plain(study: Study, outcome: Outcome, width: int) -> str:
    """The same as text without colour, for a pipe, a log or a file."""
    sink = io.StringIO()
    console = Console(file=sink, width=width, color_system=None, force_terminal=False)
    for part in _parts(study, outcome):
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in sink.getvalue().splitlines())


def _parts(study: Study, outcome: Outcome) -> list[RenderableType]:
    table = Table(box=box.SIMPLE_HEAD, show_lines=False, pad_edge=False, expand=True)
    table.add_column("Section", ratio=2)
    table.add_column("The paper says", ratio=8)
    table.add_column("Its value", ratio=4)
    table.add_column(study.found, ratio=6)
    table.add_column("Verdict", min_width=8, ratio=3)
    for claim in outcome.claims:
        table.add_row(*_row(claim))
    parts: list[RenderableType] = [
        Text(study.title, style="bold"),
        table,
        Text(f"{counts(outcome.claims)}."),
        *(Text(one_line(caution), style="yellow") for caution in outcome.cautions),
    ]
    failed = [claim for claim in outcome.claims if claim.verdict is not Verdict.HOLDS]
    parts += [
        Text(one_line(f"{SYMBOLS[claim.verdict]} {claim.name}: {claim.reason}")) for claim in failed
    ]
    return parts


def _row(claim: Claim) -> list[Text]:
    mark = " (told)" if claim.basis is Basis.TOLD else ""
    verdict = f"{SYMBOLS[claim.verdict]} {claim.verdict.value}{mark}"
    texts = [claim.section, claim.statement, claim.seed, claim.ours]
    return [*(Text(one_line(text)) for text in texts), Text(verdict, _STYLES[claim.verdict])]
