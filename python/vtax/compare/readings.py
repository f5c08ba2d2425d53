"""What is to be said of how metrics were found in a program's output."""

from __future__ import annotations

from collections.abc import Iterator

from vtax.core.formats.model import ComparisonRecord, MetricReading
from vtax.core.statistics.results import Flag


def reading_flags(record: ComparisonRecord, label: str) -> Iterator[Flag]:
    """Flags for directions that are assumed, several matches, and units that were converted."""
    units = {name: unit for name, unit, _ in record.expected_metrics}
    directions = {name: better for name, _, better in record.expected_metrics}
    for reading in record.readings:
        if reading.environment != label:
            continue
        name = reading.metric
        if record.better_from.get(name) == "assumed":
            better = directions.get(name, "higher")
            other = "lower" if better == "higher" else "higher"
            yield Flag(
                label,
                name,
                "assumed-direction",
                f"That {better} is better is assumed; if not, write --metric '{name}:{other}=...'.",
            )
        yield from _matches(reading)
        if reading.units:
            yield Flag(
                label,
                name,
                "unit-converted",
                f"The program prints {', '.join(reading.units)}; converted to "
                f"{units.get(name, 'one unit')}.",
            )


def _matches(reading: MetricReading) -> Iterator[Flag]:
    least, most = min(reading.matches, default=1), max(reading.matches, default=1)
    if most == 1:
        return
    count = str(most) if least == most else f"{least} to {most}"
    message = f"{count} matches in each repetition, the last was taken"
    pairs = zip(reading.matches, reading.matches[1:], strict=False)
    if len(reading.matches) > 1 and all(later > earlier for earlier, later in pairs):
        message += "; their number grows, as where a program prints what earlier runs left"
    message += f": choose with --metric '{reading.metric}:first=...', last or all."
    yield Flag(reading.environment, reading.metric, "several-matches", message)
