"""One unit and direction for a metric in all repetitions of all environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from vtax.core.errors import VtaxError
from vtax.core.units import OUT_OF_RANGE, is_quantity
from vtax.workloads.base import Metric
from vtax.workloads.metric_units import conversion


@dataclass(slots=True)
class OneUnit:
    """Remembers what the first repetition printed."""

    first: dict[str, Metric] = field(default_factory=dict)

    def same(self, metrics: Sequence[Metric]) -> list[Metric]:
        """The metrics in the first repetition's units; raises VtaxError for a unit that cannot be
        converted."""
        return [self._one(metric) for metric in metrics]

    def _one(self, metric: Metric) -> Metric:
        first = self.first.setdefault(metric.name, metric)
        factor = conversion(metric.unit, first.unit)
        if factor is None or (not metric.unit) != (not first.unit):
            raise VtaxError(
                f"metric '{metric.name}': the output has {_quoted(metric)} here, "
                f"{_quoted(first)} before",
                f"name the unit that is meant: --metric '{metric.name}:UNIT=...'",
            )
        here, before = _word(metric), _word(first)
        # One jiffy more may be "jiffies".
        if here and before and here.removesuffix("s") != before.removesuffix("s"):
            raise VtaxError(
                f"metric '{metric.name}': '{here}' stands behind the number here, '{before}' "
                "before: maybe another unit",
                "let the expression match the word as well, if it says nothing of the number",
            )
        if factor != 1:
            metric = replace(metric, value=float(metric.value * factor))
        if not is_quantity(metric.value):
            raise VtaxError(f"metric '{metric.name}': {metric.value:g} is {OUT_OF_RANGE}")
        return replace(metric, unit=first.unit, better=first.better, better_from=first.better_from)


def _word(metric: Metric) -> str:
    return metric.reading.word if metric.reading else ""


def _quoted(metric: Metric) -> str:
    return f"the unit '{metric.unit}'" if metric.unit else "no unit"
