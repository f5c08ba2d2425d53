"""The claims on the terminal: one row each, nothing read as markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from vtax.core.page import tables
from vtax.core.page.format import plural
from vtax_studies.model import Basis, Claim, Outcome, Study, Verdict

SYMBOLS = {Verdict.HOLDS: "✓", Verdict.FAILS: "✗", Verdict.UNKNOWN: "?"}
_STYLES = {Verdict.HOLDS: "green", Verdict.FAILS: "red", Verdict.UNKNOWN: "yellow"}


def counts(claims: Sequence[Claim]) -> str:
    """`20 of 25 claims hold, 3 do not, 2 cannot be judged; the model was fitted to 4 others: ...`

    Claims that rest on anything but a result are counted apart.
    """
    results = [claim for claim in claims if claim.basis is Basis.RESULT]
    text = f"{_tally(results, f' of {len(results)} claims')}"
    for words, bases in _APART.items():
        if own := [claim for claim in claims if claim.basis in bases]:
            text += f"; {words} {plural(len(own), 'other')}: {_tally(own)}"
    return text


_APART = {
    "the model was fitted to": (Basis.FITTED,),
    "emulation or a clock's step alone decides": (Basis.EMULATION, Basis.CLOCK_STEP),
}


def _tally(claims: Sequence[Claim], of: str = "") -> str:
    found = Counter(claim.verdict for claim in claims)
    return (
        f"{found[Verdict.HOLDS]}{of} hold, {found[Verdict.FAILS]} do not, "
        f"{found[Verdict.UNKNOWN]} cannot be judged"
    )


def verdict(claim: Claim) -> str:
    """`✓ holds (fitted)`"""
    mark = f" ({claim.basis.mark})" if claim.basis.mark else ""
    return f"{SYMBOLS[claim.verdict]} {claim.verdict.value}{mark}"


def parts(study: Study, outcome: Outcome) -> list[RenderableType]:
    """The claims for `vtax.core.page.tables.show`."""
    headings = ("Section", study.says, "Its value", study.found, "Verdict")
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
    return [
        claim.section,
        claim.statement,
        claim.stated,
        claim.ours,
        Text(verdict(claim), _STYLES[claim.verdict]),
    ]
