"""Tables II and IV and the pairs of figures 2 and 3, the seed's values beside the new ones."""

from __future__ import annotations

from collections.abc import Callable

from vtax.analysis.correlation import Matrix
from vtax.present.format import signed, significant
from vtax.studies.model import StudyTable
from vtax.studies.rule import Missing
from vtax.studies.vrtprof import measures as m
from vtax.studies.vrtprof.data import Data
from vtax.studies.vrtprof.setup import (
    NATIVE,
    PAIR_COLUMNS,
    SEED_OVERHEADS,
    SEED_PAIRS,
    SETTINGS,
    TABLE_II,
)

ABSENT = "absent"


def tables(data: Data) -> list[StudyTable]:
    """Those that the data allows."""
    makers: tuple[Callable[[Data], StudyTable], ...] = (events, runtimes, pairs)
    found = []
    for maker in makers:
        try:
            found.append(maker(data))
        except Missing:
            continue
    return found


def events(data: Data) -> StudyTable:
    """Table II: the seed's events, what counts the same here, and how often it did."""
    if not data.recordings:
        raise Missing("nothing was recorded")
    names = list(data.recordings)
    rows = []
    for event in TABLE_II:
        columns = event.ours or ("",)
        for column in columns:
            cells = [_rate(data, name, column) for name in names]
            reason = event.note
            if column in data.absent:
                reason = data.absent[column]
            rows.append((event.name, event.about, column or ABSENT, *cells, reason))
    return StudyTable(
        "II",
        "Table II. The seed's events and those counted here",
        "Counts per second of the time counted, over all workloads. Absent is absent: nothing "
        "takes the place of an event under its name.",
        ("The seed's event", "What it counts", "Column here", *names, "Note"),
        rows,
    )


def _rate(data: Data, environment: str, column: str) -> str:
    value = m.rate(data.of(environment), column) if column else None
    return ABSENT if value is None else significant(value, 3)


def runtimes(data: Data) -> StudyTable:
    """Table IV: what recording costs."""
    found = [m.overheads(data, each.every) for each in SETTINGS]
    walls = [m.overheads(data, each.every, "wall_s") for each in SETTINGS]
    rows = []
    for name in found[0]:
        cells = [_percent(*each[name]) for each in found if name in each]
        cells += [_percent(*each[name]) for each in walls if name in each]
        rows.append((name, _bare(data, name), *cells))
    means = [m.mean_overhead(data, each.every, c) for c in ("cpu_s", "wall_s") for each in SETTINGS]
    rows.append(("Geometric mean", "", *(f"{signed(value, 3)} %" for value in means)))
    rows += [
        (f"{name} (the seed's)", "", _plain(value), *[""] * (2 * len(SETTINGS) - 1))
        for name, value in SEED_OVERHEADS.items()
    ]
    cpu = [f"CPU time, rows of {each.label}" for each in SETTINGS]
    wall = [f"wall clock, rows of {each.label}" for each in SETTINGS]
    return StudyTable(
        "IV",
        "Table IV. What recording costs",
        "Slow-down against the run without a recorder beside it: the median over repetitions, ± "
        "half the distance of the quartiles. Natively, of a fixed amount of work on one CPU, which "
        "the recorder's own thread and everything else on the machine share. The seed gives "
        "run times at its interval only; its mean is of the magnitudes.",
        ("Workload", "CPU time without", *cpu, *wall),
        rows,
    )


def _percent(value: float, around: float) -> str:
    return f"{signed(value, 2)} ± {significant(around, 2)} %"


def _plain(value: float) -> str:
    return f"{signed(value, 3)} %"


def _bare(data: Data, workload: str) -> str:
    own = data.overheads.filter(workload=workload, setting="")["cpu_s"].median()
    return "" if own is None else f"{significant(float(str(own)), 3)} s"


def pairs(data: Data) -> StudyTable:
    """The seed's strongest pairs of figures 2 and 3 beside the nearest here."""
    guests = data.guests()
    native = m.matrix(data.of(NATIVE))
    virtual = m.matrix(data.of(guests[-1])) if guests else None
    rows = []
    for first, second, seed_native, seed_virtual in SEED_PAIRS:
        ours = (PAIR_COLUMNS[first], PAIR_COLUMNS[second])
        rows.append(
            (
                f"{first}, {second}",
                "" if seed_native is None else f"{seed_native:.2f}",
                f"{seed_virtual:.2f}",
                ", ".join(name or ABSENT for name in ours),
                _found(native, *ours),
                _found(virtual, *ours) if virtual else ABSENT,
            )
        )
    return StudyTable(
        "pairs",
        "Pairs of figures 2 and 3",
        "Correlations that the seed prints, and those of the nearest columns here. A pair that "
        "was not counted is absent; brackets: not significant after correction for all pairs.",
        (
            "The seed's pair",
            "Seed, native",
            "Seed, 8 guests",
            "Columns here",
            "Native",
            guests[-1] if guests else "Guests",
        ),
        rows,
    )


def _found(matrix: Matrix, first: str, second: str) -> str:
    try:
        value, certain = m.pair(matrix, first, second)
    except Missing:
        return ABSENT
    return f"{value:.2f}" if certain else f"({value:.2f})"
