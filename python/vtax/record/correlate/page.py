"""What `vtax correlate` found, as a page and as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vtax.core.page.format import listing, plural, significant
from vtax.core.page.heat_map import Cells, heat_map
from vtax.core.page.page import Depth, HeatMap, Page, Section, at, drawn, table_section, warnings
from vtax.core.recorder.intervals import Recording
from vtax.core.recorder.ways import By
from vtax.record.correlate.analysis import Difference, Matrix, pairs

MOST_PAIRS = 20
"""The most rows of a short table; a report and JSON have all."""
MOST_COLUMNS = 16
"""A matrix of more events is not printed on the terminal."""
SMALLEST_CHANGE = 0.05
"""The smallest change of r that matters: with many intervals even 0.998 and 0.999 differ
significantly."""


def title(matrix: Matrix, by: By) -> str:
    """`Spearman correlation of 12 events, rates per second of a CPU, series by cpu`"""
    return (
        f"{matrix.method.value.title()} correlation of {plural(len(matrix.events), 'event')}, "
        f"rates {matrix.per.words}, series by {by.value}"
    )


def notes(matrix: Matrix, recordings: Sequence[Recording], side: str = "") -> list[str]:
    """What limits the matrix: left out events, losses, few runs.

    `side` says which matrix, when there are two.
    """
    found = [f"{one.path.name}: {note}" for one in recordings for note in one.notes]
    by_reason: dict[str, list[str]] = {}
    for name, reason in matrix.left_out:
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        found.append(f"left out{side}, {reason}: {listing(names, 8)}")
    if len(recordings) == 1:
        found.append(f"one run{side}: how far runs differ among themselves is not known")
    return found


def matrix_table(matrix: Matrix) -> Section:
    """The upper triangle with numbered columns; a dot for what is not significant."""
    k = len(matrix.events)
    rows = []
    for i, name in enumerate(matrix.events):
        cells = [_cell(matrix, i, j) if j > i else "" for j in range(1, k)]
        rows.append((str(i + 1), name, *cells))
    headings = ("#", "Event", *(str(number) for number in range(2, k + 1)))
    caption = "A dot: not significant. A question mark: never measured in the same intervals."
    return table_section(
        "matrix", f"Correlation matrix ({caption})", caption, headings, tuple(rows)
    )


def pair_table(matrix: Matrix, limit: int | None = None) -> Section:
    """Pairs from the strongest correlation down; only significant ones with a `limit`."""
    chosen = list(pairs(matrix))
    if limit is not None:
        found = [pair for pair in chosen if matrix.significant[pair]]
        more = len(found) > limit
        heading = f"Strongest of {len(found)} significant" if more else "Significant correlations"
        chosen = found[:limit]
    else:
        heading = "All pairs"
    rows = tuple(
        (
            matrix.events[i],
            matrix.events[j],
            _number(float(matrix.r[i, j])),
            _p(float(matrix.q[i, j])),
            str(int(matrix.intervals[i, j])),
            f"{matrix.effective[i, j]:.0f}",
            str(int(matrix.runs[i, j])),
        )
        for i, j in chosen
    )
    headings = ("Event", "Event", "r", "p corrected", "Intervals", "Effective", "Runs")
    caption = "No pair is significant." if not rows else _CORRECTED
    return table_section(
        "pairs" if limit is None else "significant-pairs", heading, caption, headings, rows
    )


_CORRECTED = (
    "r is given the intervals' length. p after Benjamini and Yekutieli's correction for all pairs, "
    "from the effective number of intervals, with fast and slow movements evened out."
)


def change_table(difference: Difference, limit: int | None = None) -> Section:
    """Relationships in the order of their rank; with a `limit`, only significant changes that
    matter."""
    chosen = list(difference.changes)
    heading = "All relationships, significant changes first"
    if limit is not None:
        found = [
            change
            for change in chosen
            if change.significant and abs(change.difference) >= SMALLEST_CHANGE
        ]
        heading = f"Relationships that change, by at least {SMALLEST_CHANGE:g}"
        if len(found) > limit:
            heading += f" (the largest of {len(found)})"
        chosen = found[:limit]
    rows = tuple(
        (
            change.first,
            change.second,
            _number(change.ours),
            _number(change.theirs),
            _number(change.difference),
            _p(change.q),
        )
        for change in chosen
    )
    headings = ("Event", "Event", "r", "r against", "Change", "p corrected")
    caption = _CORRECTED if rows else "No relationship changes significantly."
    return table_section(
        "changes" if limit is None else "largest-changes", heading, caption, headings, rows
    )


def difference_notes(difference: Difference) -> list[str]:
    """Notes on events that only one side has: their relationships are not compared."""
    found = []
    if difference.only_ours:
        found.append(f"not in the runs against: {listing(difference.only_ours, 8)}")
    if difference.only_theirs:
        found.append(f"only in the runs against: {listing(difference.only_theirs, 8)}")
    return found


def page(
    matrix: Matrix,
    against: tuple[Matrix, Difference] | None,
    said: Sequence[str],
    settings: Sequence[tuple[str, str]],
    heading: str,
) -> Page:
    """Strongest pairs, heat maps, and all pairs; `against` is the other matrix and the difference.

    `said` is what limits the result.
    """
    sections = [Section(notes=warnings(said))]
    if 2 <= len(matrix.events) <= MOST_COLUMNS:
        sections += at(Depth.BRIEF, matrix_table(matrix))
    sections.append(pair_table(matrix, MOST_PAIRS))
    figures = [matrix_figure("Correlation matrix", matrix)]
    details = [pair_table(matrix)]
    if against is not None:
        other, difference = against
        sections.append(change_table(difference, MOST_PAIRS))
        figures += [matrix_figure("Matrix of the runs against", other), change_figure(difference)]
        details.insert(0, change_table(difference))
    sections += [*drawn(figures), *at(Depth.FULL, *details)]
    return Page("correlate", tuple(sections), title=heading, settings=tuple(settings))


def matrix_figure(name: str, matrix: Matrix) -> HeatMap | None:
    """The matrix as a heat map; None for fewer than two events."""
    if len(matrix.events) < 2:
        return None
    meaning = (
        f"Average over {plural(int(matrix.runs.max()), 'run')}. Colour: significant at "
        f"{100 * matrix.alpha:g} % after correction for all pairs; numbers without colour are not."
    )
    cells = Cells(matrix.events, matrix.r.tolist(), matrix.q.tolist(), matrix.alpha)
    return heat_map(name, meaning, cells)


def change_figure(difference: Difference) -> HeatMap | None:
    """The difference as a heat map; None for fewer than two events."""
    if len(difference.events) < 2:
        return None
    meaning = (
        "Correlation minus that of the runs against. Colour: the change is significant at "
        f"{100 * difference.alpha:g} % after correction for all pairs."
    )
    cells = Cells(difference.events, difference.r.tolist(), difference.q.tolist(), difference.alpha)
    return heat_map("Difference of the matrices", meaning, cells)


def _cell(matrix: Matrix, i: int, j: int) -> str:
    if not math.isfinite(matrix.r[i, j]):
        return "?"
    return _number(float(matrix.r[i, j])) if matrix.significant[i, j] else "·"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "?"
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "\N{MINUS SIGN}")


def _p(value: float) -> str:
    if not math.isfinite(value):
        return "not judged"
    return "<1e-6" if value < 1e-6 else significant(value, 2)


def matrix_json(matrix: Matrix) -> dict[str, Any]:
    """Everything that the matrix says; pairs by name, `null` for what is not known."""
    return {
        "events": list(matrix.events),
        "method": matrix.method.value,
        "detrend": matrix.detrend.value,
        "per": matrix.per.value,
        "alpha": matrix.alpha,
        "left_out": [{"event": name, "reason": why} for name, why in matrix.left_out],
        "pairs": [
            {
                "first": matrix.events[i],
                "second": matrix.events[j],
                "r": _known(matrix.r[i, j]),
                "z": _known(matrix.z[i, j]),
                "z_error": _known(math.sqrt(matrix.variance[i, j])),
                "p": _known(matrix.p[i, j]),
                "p_corrected": _known(matrix.q[i, j]),
                "significant": bool(matrix.significant[i, j]),
                "intervals": int(matrix.intervals[i, j]),
                "effective_intervals": _known(matrix.effective[i, j]),
                "runs": int(matrix.runs[i, j]),
            }
            for i, j in pairs(matrix)
        ],
    }


def difference_json(difference: Difference) -> dict[str, Any]:
    """The ranked changes, and the events that only one side has."""
    return {
        "alpha": difference.alpha,
        "only_here": list(difference.only_ours),
        "only_against": list(difference.only_theirs),
        "changes": [
            {
                "first": change.first,
                "second": change.second,
                "r": change.ours,
                "r_against": change.theirs,
                "change": change.difference,
                "score": _known(change.score),
                "p": _known(change.p),
                "p_corrected": _known(change.q),
                "significant": change.significant,
            }
            for change in difference.changes
        ],
    }


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
