"""What the judges of this study's claims share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vtax.present.format import signed, significant
from vtax.studies.dav2m.setup import FACTOR
from vtax.studies.rule import Judgement


@dataclass(frozen=True, slots=True)
class Limited:
    """A value that has to stay at or below a limit, and how far it may be off."""

    name: str
    value: float
    error: float


def all_below(found: Sequence[Limited], limit: float) -> tuple[bool | None, str]:
    """Whether all are, and which are not; `None` when sampling alone may decide."""
    unsure = [one.name for one in found if abs(one.value - limit) <= one.error]
    above = [one.name for one in found if one.value > limit and one.name not in unsure]
    if above:
        return False, wrong(above)
    if unsure:
        return None, f" Within the sampling error of the limit: {', '.join(unsure)}."
    return True, ""


def within_factor(value: float, seed: float, factor: float = FACTOR) -> bool:
    """Whether `value` agrees with the seed's in size."""
    return seed / factor <= value <= seed * factor


def size(value: float, seed: float, unit: str, note: str = "") -> Judgement:
    """Judges a size: it holds within the study's factor."""
    low, high = (f"{significant(bound, 3)}" for bound in (seed / FACTOR, seed * FACTOR))
    side = "" if within_factor(value, seed) else _side(value, seed)
    reason = f"Holds between {low} and {high} {unit}{side}."
    ours = f"{significant(value, 3)} {unit}{f' ({note})' if note else ''}"
    return Judgement(ours, within_factor(value, seed), reason)


def _side(value: float, seed: float) -> str:
    if value > seed:
        return f"; it is {significant(value / seed, 3)} times the paper's"
    return f"; it is {significant(100 * value / seed, 2)} % of the paper's"


def each(values: Iterable[tuple[str, float]], unit: str = "%", digits: int = 2) -> str:
    """`swim 1.2, gcc 3.4 %`."""
    shown = (f"{name} {signed(value, digits)}" for name, value in values)
    return f"{', '.join(shown)} {unit}"


def wrong(names: Iterable[str]) -> str:
    """The end of a reason that lists exceptions; empty without one."""
    listed = ", ".join(names)
    return f" Not so: {listed}." if listed else ""
