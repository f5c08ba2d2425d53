"""The claims on the terminal: one row each, nothing read as markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from vtax.core.page import tables
from vtax.core.page.format import plural
from vtax_studies.model import SUBSTITUTES, Basis, Claim, Outcome, Second, Study, Verdict

SYMBOLS = {
    Verdict.HOLDS: "✓",
    Verdict.SUBSTITUTE: "≈",
    Verdict.FAILS: "✗",
    Verdict.UNKNOWN: "?",
}
NOT_RUN = "not run"
_STYLES = {
    Verdict.HOLDS: "green",
    Verdict.SUBSTITUTE: "yellow",
    Verdict.FAILS: "red",
    Verdict.UNKNOWN: "yellow",
}


def counts(claims: Sequence[Claim]) -> str:
    """`20 of 25 claims hold, 3 do not, 2 cannot be judged; the model was fitted to 4 others: ...`

    Claims that rest on anything but a result are counted apart.
    """
    results = [claim for claim in claims if claim.basis is Basis.RESULT]
    text = f"{_tally(_verdicts(results), f' of {len(results)} claims')}"
    for words, bases in _APART.items():
        if own := [claim for claim in claims if claim.basis in bases]:
            text += f"; {words} {plural(len(own), 'other')}: {_tally(_verdicts(own))}"
    return text


_APART = {
    "the model was fitted to": (Basis.FITTED,),
    "emulation or a clock's step alone decides": SUBSTITUTES,
}


def _verdicts(claims: Sequence[Claim]) -> list[Verdict]:
    return [claim.verdict for claim in claims]


def _tally(verdicts: Sequence[Verdict], of: str = "") -> str:
    found = Counter(verdicts)
    holding = {
        f"{found[Verdict.HOLDS]}{of} hold": found[Verdict.HOLDS] or not found[Verdict.SUBSTITUTE],
        f"{found[Verdict.SUBSTITUTE]} hold by a substitute only": found[Verdict.SUBSTITUTE],
    }
    shown = [text for text, is_there in holding.items() if is_there]
    shown += [f"{found[Verdict.FAILS]} do not", f"{found[Verdict.UNKNOWN]} cannot be judged"]
    return ", ".join(shown)


def second_counts(claims: Sequence[Claim]) -> str:
    """`On traced programs 6 of 13 claims hold, 7 do not, 0 cannot be judged; 25 were not run`

    Empty without second data. Nothing was fitted to them.
    """
    found = [claim.second.verdict for claim in claims if claim.second is not None]
    run = [verdict for verdict in found if verdict is not None]
    if not found:
        return ""
    of = f" of {plural(len(run), 'claim')}"
    return f"On traced programs {_tally(run, of)}; {len(found) - len(run)} were not run"


def verdict(claim: Claim) -> str:
    """`✓ holds (fitted)`"""
    mark = f" ({claim.basis.mark})" if claim.basis.mark else ""
    return f"{SYMBOLS[claim.verdict]} {claim.verdict.value}{mark}"


def parts(study: Study, outcome: Outcome) -> list[RenderableType]:
    """The claims for `vtax.core.page.tables.show`."""
    second = second_counts(outcome.claims)
    headings = ["Section", study.says, "Its value", study.found, "Verdict"]
    headings += [study.second, "Verdict"] if second else []
    table = tables.table(headings, map(_row, outcome.claims))
    table.expand = True
    for column, ratio in zip(table.columns, (2, 8, 4, 6, 3, 6, 3), strict=False):
        column.ratio, column.justify = ratio, "left"
    table.columns[-1].min_width = 8
    failed = [claim for claim in outcome.claims if claim.verdict is not Verdict.HOLDS]
    others = [(each.name, each.second) for each in outcome.claims if each.second]
    return [
        tables.title(study.title),
        table,
        tables.note(f"{counts(outcome.claims)}."),
        *([tables.note(f"{second}.")] if second else []),
        *(tables.note(caution, "yellow") for caution in outcome.cautions),
        *(tables.note(f"{SYMBOLS[each.verdict]} {each.name}: {each.reason}") for each in failed),
        *(
            tables.note(f"{second_cells(each)[1]} {name}, traced: {each.reason} {each.differs}")
            for name, each in others
            if each.differs
        ),
    ]


def second_cells(second: Second) -> tuple[str, str]:
    """The value, or why there is none, and the verdict."""
    said = f"{SYMBOLS[second.verdict]} {second.verdict.value}" if second.verdict else NOT_RUN
    return second.ours or second.reason, said


def _row(claim: Claim) -> list[str | Text]:
    cells: list[str | Text] = [claim.section, claim.statement, claim.stated, claim.ours]
    cells.append(Text(verdict(claim), _STYLES[claim.verdict]))
    if claim.second:
        ours, said = second_cells(claim.second)
        style = _STYLES[claim.second.verdict] if claim.second.verdict else "dim"
        cells += [ours, Text(said, style)]
    return cells
