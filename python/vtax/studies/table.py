"""The claims on the terminal: one row each, nothing read as markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from vtax.present.terminal import tables
from vtax.studies.model import Basis, Claim, Outcome, Study, Verdict

SYMBOLS = {Verdict.HOLDS: "✓", Verdict.FAILS: "✗", Verdict.UNKNOWN: "?"}
_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "red", Verdict.UNKNOWN: "yellow"}


def counts(claims: Sequence[Claim]) -> str:
    """`20 of 25 claims hold, 3 do not, 2 cannot be judged (the model was fitted to 4 of ...)`"""
    found = Counter(claim.verdict for claim in claims)
    fitted = sum(c.verdict is Verdict.HOLDS and c.basis is Basis.FITTED for c in claims)
    text = (
        f"{found[Verdict.HOLDS]} of {len(claims)} claims hold, {found[Verdict.FAILS]} do not, "
        f"{found[Verdict.UNKNOWN]} cannot be judged"
    )
    return f"{text} (the model was fitted to {fitted} of those that hold)" if fitted else text


def parts(study: Study, outcome: Outcome) -> list[RenderableType]:
    """The claims for `vtax.present.terminal.tables.show`."""
    headings = ("Section", "The paper says", "Its value", study.found, "Verdict")
    table = tables.table(headings, map(_row, outcome.claims))
    table.expand = True
    for column, ratio in zip(table.columns, (2, 8, 4, 6, 3), strict=True):
        column.ratio, column.justify = ratio, "left"
    table.columns[-1].min_width = 8
    failed = [claim for claim in outcome.claims if claim.verdict is not Verdict.HOLDS]
    return [
        tables.title(study.title),
        table,
        tables.note(f"{counts(outcome.claims)}."),
        *(tables.note(caution, "yellow") for caution in outcome.cautions),
        *(tables.note(f"{SYMBOLS[each.verdict]} {each.name}: {each.reason}") for each in failed),
    ]


def _row(claim: Claim) -> list[str | Text]:
    mark = " (fitted)" if claim.basis is Basis.FITTED else ""
    verdict = f"{SYMBOLS[claim.verdict]} {claim.verdict.value}{mark}"
    return [
        claim.section,
        claim.statement,
        claim.stated,
        claim.ours,
        Text(verdict, _STYLES[claim.verdict]),
    ]
