"""What an interval on a ratio means, given a margin.

A difference is tested as a difference and equivalence as equivalence. "No significant difference"
never means "equal".

With margin m, performance between (100 - m) % and 100 / (1 - m / 100) % counts as equal. The upper
edge is the mirror image of the lower, so that exchanging the two sides exchanges the verdicts: if
A is slower than B then B is faster than A.
"""

from __future__ import annotations

import math

from vtax.core.errors import MisuseError
from vtax.core.statistics.results import Control, Verdict
from vtax.core.statistics.statistics import CONFIDENCE, Estimate, student_t

ERROR = 1.0 - CONFIDENCE
EQUIVALENCE_CONFIDENCE = 1.0 - 2.0 * ERROR
"""Two one-sided tests, each with an error of 5 %, ask that this interval lies within the margin
(Schuirmann 1987)."""
POWER = 0.8

# Rounding in exp and log must not push an estimate that is exactly on an edge over it.
_ROUNDING = 1e-9


def edge(margin_percent: float) -> float:
    """The margin on the natural log scale: equal is what lies within plus or minus this.

    Raises MisuseError when the margin is not between 0 and 100 %.
    """
    if not 0 < margin_percent < 100:
        raise MisuseError(f"a margin of {margin_percent:g} % is not between 0 and 100 %")
    return -math.log1p(-margin_percent / 100.0)


def judge(ratio: Estimate, margin_percent: float) -> Verdict:
    """The verdict on the log of a performance ratio (above 0: faster than the baseline).

    An interval that touches an edge from inside is equivalent. A 95 % interval that reaches over
    an edge is inconclusive, also when it leaves out 100 %: there is a difference then, but whether
    it is larger than the margin is open.
    """
    limit = edge(margin_percent)
    if abs(ratio.value) + ratio.half_width(EQUIVALENCE_CONFIDENCE) <= limit + _ROUNDING:
        return Verdict.EQUIVALENT
    half = ratio.half_width()
    if ratio.value + half < -limit - _ROUNDING:
        return Verdict.SLOWER
    if ratio.value - half > limit + _ROUNDING:
        return Verdict.FASTER
    return Verdict.INCONCLUSIVE


def judge_control(
    ratio: Estimate, margin_percent: float, questions: int, chance: float | None = None
) -> Control:
    """What the baseline against itself says of one of `questions` metrics.

    It differs when "no difference at all" is unlikely enough, with the error divided among the
    metrics (Bonferroni), so that one run in twenty says so of a quiet machine, however many metrics
    it has. `chance` is the same probability without any assumption about the noise (`sign_flip_p`),
    or None where that cannot tell.
    """
    error = ERROR / questions
    likely = chance is not None and chance > error
    if ratio.value and abs(ratio.value) > ratio.half_width(1.0 - error) and not likely:
        return Control.DIFFERS
    same = judge(ratio, margin_percent) is Verdict.EQUIVALENT
    return Control.EQUAL if same else Control.TOO_NOISY


def both(typical: Verdict, mean: Verdict) -> Verdict:
    """The verdict on typical run and mean together: *equivalent* needs both.

    A mean that is slower or faster overrules a typical run that is equivalent. Where both are
    decided and contradict each other, there is no single answer.
    """
    if typical is Verdict.EQUIVALENT:
        return mean
    if {typical, mean} == {Verdict.SLOWER, Verdict.FASTER}:
        return Verdict.INCONCLUSIVE
    return typical


def smallest_detectable(ratio: Estimate) -> float:
    """The slowdown in percent that such an experiment would find in four of five cases.

    It is the minimum detectable effect of a two-sided test at 5 % with a power of 80 % (Bloom
    1995): as many standard errors as the two quantiles of Student's t add up to.
    """
    quantiles = student_t(CONFIDENCE, ratio.df) + student_t(2.0 * POWER - 1.0, ratio.df)
    return -100.0 * math.expm1(-quantiles * ratio.error - ratio.bias)
