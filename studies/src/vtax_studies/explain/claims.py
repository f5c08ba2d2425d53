"""The targets of `vtax explain`, each judged from data by a pure function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from vtax.core.page.format import plural, significant
from vtax_studies.explain import data as m
from vtax_studies.explain.data import Data, Errors, Row
from vtax_studies.explain.setup import (
    COVERED,
    ENOUGH,
    EXPLAINED,
    EXPLAINED_PROGRAMS,
    FALSE_CLAIMS,
    MEDIAN_PERCENT,
    NINETIETH_PERCENT,
)
from vtax_studies.rule import Judgement, Missing, Rule, all_hold, some
from vtax_studies.rule import wrong as exceptions

PREDICTORS: dict[str, Callable[[Row], float | None]] = {
    "the bill": lambda row: row.predicted_s,
    "share of system time": lambda row: row.by_system_time_s,
    "one price for all calls": lambda row: row.by_one_price_s,
}
BILL, SYSTEM_TIME, ONE_PRICE = PREDICTORS


def error_of(rows: Sequence[Row], predictor: str = BILL) -> Errors:
    """The errors of a predictor. Raises Missing without any."""
    pairs = [(PREDICTORS[predictor](row), row.measured_s) for row in rows]
    found = m.errors([m.error(told, took) for told, took in pairs if told is not None])
    if found is None:
        raise Missing(f"{predictor}: nothing was measured")
    return found


def environments(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows of each environment."""
    return {name: [row for row in rows if row.environment == name]
            for name in dict.fromkeys(row.environment for row in rows)}  # fmt: skip


def percent(share: float) -> str:
    """`12 %`"""
    return f"{significant(100.0 * share, 2)} %"


def _enough(data: Data) -> bool:
    return len({row.program for row in data.rows}) >= ENOUGH


def programs(data: Data) -> Judgement:
    """How many programs were measured, in how many environments."""
    if (asked := len(data.plan.programs)) < ENOUGH:
        raise Missing(f"{plural(asked, 'program')} of the study were to be measured")
    found = environments(some(data.rows))
    shown = ", ".join(f"{len(own)} in {name}" for name, own in found.items())
    reason = f"Each environment has to have {ENOUGH} programs or more."
    return Judgement(shown, all(len(own) >= ENOUGH for own in found.values()), reason)


def prediction(data: Data, limit: float, of: Callable[[Errors], float]) -> Judgement:
    """A quantile of the prediction's error over all programs and environments."""
    whole = of(error_of(data.rows))
    each = ", ".join(f"{name} {percent(of(error_of(own)))}"
                     for name, own in environments(data.rows).items())  # fmt: skip
    holds = 100.0 * whole <= limit if _enough(data) else None
    reason = f"Holds at or below {limit:g} % over all environments, with {ENOUGH} programs or more."
    return Judgement(f"{percent(whole)} ({each})", holds, reason)


def tax_explained(data: Data) -> Judgement:
    """For how many programs the bill explains most of the tax, in each environment."""
    shown, verdicts = [], []
    for name, own in environments(some(data.rows)).items():
        taxed = [row.explained.value for row in own if row.explained is not None]
        good = sum(each >= EXPLAINED for each in taxed)
        shown.append(f"{name} {good} of {len(taxed)}")
        verdicts.append(
            good >= EXPLAINED_PROGRAMS * len(taxed) if taxed and _enough(data) else None
        )
    reason = (
        f"{percent(EXPLAINED_PROGRAMS)} of the programs that have a tax beyond its interval, in "
        "each environment."
    )
    return Judgement(", ".join(shown), all_hold(verdicts), reason)


def false_claims(data: Data) -> Judgement:
    """How many lines are not what the tax falls by without their operation."""
    found = some(data.loops, "no loop was measured")
    wrong = [each for each in found if not each.within]
    sure = [each for each in wrong if not each.agrees]
    names = [f"{each.name} in {each.environment}" for each in wrong]
    most = FALSE_CLAIMS * len(found)
    holds = True if len(wrong) <= most else False if len(sure) > most else None
    reason = (
        f"The measured value has to lie in the line's interval in all but {percent(FALSE_CLAIMS)}; "
        "fails where that many are beyond the measured interval, too."
        f"{exceptions(names)}"
    )
    shown = f"{len(wrong)} of {len(found)}, {len(sure)} of them beyond the measured interval too"
    return Judgement(shown, holds, reason)


def covers_zero(data: Data) -> Judgement:
    """In how many A/A bills the residual covers zero."""
    bills = some(data.same, "no program was compared with itself")
    wrong = [name for name, bill in bills.items()
             if not (bill.residual_low or 0.0) <= 0.0 <= (bill.residual_high or 0.0)]  # fmt: skip
    reason = f"At least {percent(COVERED)}.{exceptions(wrong)}"
    right = len(bills) - len(wrong)
    return Judgement(f"{right} of {len(bills)}", right >= COVERED * len(bills), reason)


def beats(data: Data, rival: str) -> Judgement:
    """Whether the bill's error is smaller than that of a rival, in each environment."""
    shown, verdicts = [], []
    for name, own in environments(some(data.rows)).items():
        ours, theirs = error_of(own).median, error_of(own, rival).median
        shown.append(f"{name} {percent(ours)} against {percent(theirs)}")
        verdicts.append(ours < theirs)
    holds = all(verdicts) if _enough(data) else None
    return Judgement(", ".join(shown), holds, "Medians; the bill's has to be smaller in each.")


RULES: tuple[Rule[Data], ...] = (
    Rule("programs", "runs", "Real programs are predicted", "24 or more", programs),
    Rule("prediction-median", "error", "|predicted / measured - 1|, the median",
         "at most 10 %", partial(prediction, limit=MEDIAN_PERCENT, of=lambda e: e.median)),
    Rule("prediction-90", "error", "|predicted / measured - 1|, the 90th percentile",
         "at most 25 %", partial(prediction, limit=NINETIETH_PERCENT, of=lambda e: e.ninetieth)),
    Rule("tax-explained", "bill", "At least 80 % of the tax is explained", "18 of 24 programs",
         tax_explained),
    Rule("false-claims", "loops", "A line is not what the tax falls by without its operation",
         "at most 1 in 20", false_claims),
    Rule("same", "A/A", "The residual of native against native covers zero", "95 of 100",
         covers_zero),
    Rule("beats-system-time", "rivals", "The bill predicts better than the share of system time",
         "smaller error", partial(beats, rival=SYSTEM_TIME)),
    Rule("beats-one-price", "rivals", "The bill predicts better than one price for all calls",
         "smaller error", partial(beats, rival=ONE_PRICE)),
)  # fmt: skip
