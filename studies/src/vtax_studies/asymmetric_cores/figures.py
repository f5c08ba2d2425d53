"""All figures and tables; the figures are those of `vtax place measure`, with the paper's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from vtax.core.page.format import significant
from vtax.core.page.plotting import Figure
from vtax.place import figures as place
from vtax.place import tables as place_tables
from vtax.place.analysis import FULL
from vtax.place.record import PlaceLoad, PlaceRecord
from vtax_studies.asymmetric_cores import data as m
from vtax_studies.asymmetric_cores.data import Data
from vtax_studies.asymmetric_cores.setup import (
    AB,
    BUSY,
    CPU_BOUND,
    CPU_FIGURES,
    DISK,
    ELASTICITY,
    KEPT,
    LOW_CPU,
    LOWEST,
    NAMES,
    QEMU,
    REFERENCES,
    SPECS,
    SPINDLE,
    STAND_INS,
    STATED,
    TCP,
    UDP,
    USAGE_FIGURES,
)
from vtax_studies.model import StudyFigure, StudyTable
from vtax_studies.plots import value_text
from vtax_studies.rule import Missing, some

T = TypeVar("T")
W = TypeVar("W")
Maker = Callable[[Data], StudyFigure]
Drawer = Callable[[PlaceRecord, PlaceLoad], Figure | None]
SHARE = (
    "CPU utilisation is in percent of the time that the slow core has, as on a core with a lower "
    "clock: a quota and a hog take time away, not speed."
)


AGAINST_CONTROL = (
    "In percent of controls at full speed that ran beside each point, with 95 % interval, against "
    "the speed that the service threads (slow vCPU: the guest's) really had."
)


def sensitivity(data: Data) -> StudyFigure:
    """Figure 1: the paper's loads in every environment."""
    record = _served(data)
    panels = []
    for name, spec in SPECS.items():
        chosen = [each for wanted in STAND_INS for each in _stand_in(data, wanted, name)]
        chosen += [
            each for each in record.loads if (each.environment, each.load) == (spec, CPU_BOUND)
        ]
        if name == QEMU and data.slow_guest:
            chosen += [
                each.model_copy(update={"load": f"{each.load}, slow vCPU"})
                for each in data.slow_guest.loads
            ]
        own = record.model_copy(update={"loads": tuple(chosen)})
        if figure := place.sensitivity(own, spec):
            panels.append(replace(figure, title=data.title(name), meaning=AGAINST_CONTROL))
    caption = (
        f"Throughput against speed. {NAMES[CPU_BOUND]} is {CPU_BOUND}; with slow vCPUs, as in the "
        "paper, and with a slow service, which it does not use."
    )
    return _figure("1", "Sensitivity of loads", caption, panels)


def _of_load(number: str, load: str, title: str, meaning: str, draw: Drawer) -> Maker:
    """A maker of a figure of one load, with a panel for each environment."""

    def make(data: Data) -> StudyFigure:
        record, panels = _served(data), []
        for name in SPECS:
            for each in _stand_in(data, load, name):
                figure = draw(record, m.of_slow_core(each))
                if figure is not None:
                    words = f"{each.load}: {data.title(name)}"
                    panels.append(replace(figure, title=words, meaning=meaning))
        return _figure(number, f"{title} {NAMES[load]}", SHARE, panels)

    return make


def _stand_in(data: Data, wanted: str, name: str) -> list[PlaceLoad]:
    """The loads of an environment that stand in for the paper's load; empty if none was
    measured."""
    every = {each.load: each for each in _served(data).loads if each.environment == SPECS[name]}
    return [every[load] for load in STAND_INS[wanted] if load in every][:1]


def _served(data: Data) -> PlaceRecord:
    if data.served is None:
        raise Missing("nothing was measured")
    return data.served


def _figure(number: str, title: str, caption: str, panels: list[Figure]) -> StudyFigure:
    panels = some(panels, "no environment has slow points of it")
    return StudyFigure(number, title, caption, STATED[number], panels)


_CPU = (
    "CPU utilisation and throughput of",
    "Throughput (left) and CPU utilisation of the service threads (right) against their speed.",
)
_USAGE = (
    "Combined Usage of",
    "CPU utilisation of the service threads plus use of the link; the line is at 100 %.",
)
FIGURES: Mapping[str, Maker] = {
    "1": sensitivity,
    **{CPU_FIGURES[load]: _of_load(CPU_FIGURES[load], load, *_CPU, place.throughput)
       for load in (AB, TCP, UDP)},
    **{USAGE_FIGURES[load]: _of_load(USAGE_FIGURES[load], load, *_USAGE, place.usage)
       for load in (TCP, AB, UDP)},
}  # fmt: skip


def kept_table(data: Data) -> StudyTable:
    """Figure 1 in numbers."""
    rows = [
        (where, load.load, backend, m.words(found, 1), paper)
        for where, load, paper in _measured(data, KEPT, "{:g}")
        for backend, found in _known(load, m.kept).items()
    ]
    return StudyTable(
        "kept", f"Figure 1. Kept at {LOWEST:g} % of full speed",
        "Throughput in percent of the controls, with 95 % interval, of points that count.",
        ("Environment", "Load", "Slowed by", "Kept %", "Paper"), some(rows),
    )  # fmt: skip


def elasticity_table(data: Data) -> StudyTable:
    """Elasticities over all speeds."""
    rows = [
        (
            where, load.load, backend, m.words(found, 2),
            value_text(load.at_full_speed.get("combined usage")), paper,
        )
        for where, load, paper in _measured(data, ELASTICITY, "{:.2f}")
        for backend, found in _known(load, m.slopes).items()
    ]  # fmt: skip
    return StudyTable(
        "elasticity", "Elasticity",
        "Percent of throughput lost for each percent of speed lost, with 95 % interval, and the "
        "Combined Usage at full speed. The paper's are from its percentages.",
        ("Environment", "Load", "Slowed by", "Elasticity", "Combined Usage %", "Paper"), some(rows),
    )  # fmt: skip


def busy_table(data: Data) -> StudyTable:
    """Figures 2 to 7 in numbers: the slow core at full and at the lowest speed."""
    rows = []
    for where, load, paper in _measured(data, BUSY, "{:g}"):
        if load.load in REFERENCES:
            continue
        for backend, points in _known(load, m.by_backend).items():
            ends = (points[0], points[-1])
            values = [value_text(value(point)) for value in (m.busy, m.combined) for point in ends]
            rows.append((where, load.load, backend, *values, paper))
    return StudyTable(
        "usage", "Figures 2 to 7. CPU utilisation and Combined Usage",
        f"In percent, at full speed and at the lowest. {SHARE} The paper's are of the CPU at full "
        "speed.",
        ("Environment", "Load", "Slowed by", "CPU, full", "CPU, slow", "Combined, full",
         "Combined, slow", "Paper"), some(rows),
    )  # fmt: skip


def full_table(data: Data) -> StudyTable:
    """What the environments reach where nothing is slow, including those without a service."""
    rows = []
    for where, load, _ in _measured(data, {}, ""):
        control = next((each for each in load.points if each.speed_asked_percent >= FULL), None)
        if control is not None:
            factor, unit = place_tables.scale(control.unit)
            used = (control.service_cpu_percent, control.device_percent)
            rows.append(
                (where, load.load, f"{significant(factor * control.throughput, 3)} {unit}",
                 *map(value_text, used))
            )  # fmt: skip
    return StudyTable(
        "full", "At full speed",
        "Median throughput of the first back end's controls, and in percent the CPU of the service "
        "and the use of the link. Without service threads it is the CPU of all softirqs.",
        ("Environment", "Load", "Throughput", "CPU", "Link"), some(rows),
    )  # fmt: skip


def disk_table(data: Data) -> StudyTable:
    """The survey of programs that a disk limits."""
    rows = []
    for name in (SPINDLE, DISK):
        for load, used in _known(name, data.disk_cpu).items():
            point = next(
                each.points[0]
                for each in (data.disks.loads if data.disks else ())
                if (each.environment, each.load) == (SPECS[name], load)
            )
            factor, unit = place_tables.scale(point.unit)
            done = f"{significant(factor * point.throughput, 3)} {unit}"
            paper = f"< {LOW_CPU:g}" if name == SPINDLE else ""
            rows.append((data.title(name), load, done, m.words(used, 1), paper))
    return StudyTable(
        "disks", "Programs that a disk limits (section 2)",
        "Median throughput, and CPU of the service in percent of one core, with 95 % interval.",
        ("Environment", "Load", "Throughput", "CPU %", "Paper"), some(rows),
    )  # fmt: skip


def power_table(data: Data) -> StudyTable:
    """Performance per watt, where the host has a counter of energy."""
    rows = []
    for where, load, _ in _measured(data, {}, ""):
        for backend, points in _known(load, m.by_backend).items():
            full, slow = points[0], points[-1]
            if full.watts and slow.watts:
                less = full.watts / slow.watts
                values = (slow.relative_percent, slow.low, slow.high)
                value, *ends = [None if each is None else each * less for each in values]
                if value is not None:
                    kept = m.words(m.Interval(value, *ends), 1)
                    drawn = (value_text(full.watts), value_text(slow.watts))
                    rows.append((where, load.load, backend, *drawn, kept))
    return StudyTable(
        "power", "Performance per watt",
        f"The whole host's mean power in watts, at full speed and at {LOWEST:g} %, and throughput "
        "per watt in percent of that at full speed; the interval is of the throughput alone. A "
        "quota or a hog saves no power: only a lower clock or a small core does.",
        ("Environment", "Load", "Slowed by", "W, full", "W, slow", "Per watt %"),
        some(rows, "this host has no counter of energy"),
    )  # fmt: skip


def hypothesis_table(data: Data) -> StudyTable:
    """The paper's predictor beside its rivals."""
    found = place_tables.hypothesis(_served(data))
    headings, rows = (found.table.headings, found.table.texts) if found.table else ((), ())
    return StudyTable(found.name, found.heading, found.sentence, headings, some(rows))


def _measured(
    data: Data, stated: Mapping[str, float], form: str
) -> list[tuple[str, PlaceLoad, str]]:
    """Environment, load and the paper's value of every load, with slow vCPUs last."""
    names = {spec: name for name, spec in SPECS.items()}
    found = []
    for record, what in ((data.served, ""), (data.slow_guest, ", slow vCPU")):
        for load in record.loads if record else ():
            paper = ""
            # The paper has no CPU-bound guest whose own cores are fast.
            if load.load in REFERENCES:
                if what and CPU_BOUND in stated:
                    paper = form.format(stated[CPU_BOUND])
            elif load.load in stated:
                paper = form.format(stated[load.load])
            found.append((f"{data.title(names[load.environment])}{what}", load, paper))
    return found


def _known(of: W, value: Callable[[W], Mapping[str, T]]) -> Mapping[str, T]:
    """The known values by name; empty where nothing counts."""
    try:
        return value(of)
    except Missing:
        return {}


TABLES = (
    kept_table,
    elasticity_table,
    busy_table,
    full_table,
    disk_table,
    power_table,
    hypothesis_table,
)
