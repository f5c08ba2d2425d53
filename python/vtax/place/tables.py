"""The tables of `vtax place measure`."""

from __future__ import annotations

from collections.abc import Sequence

from vtax.core.page.format import percent_interval, plural, significant
from vtax.core.page.page import Section, table_section
from vtax.place.record import PlaceEnvironment, PlaceLoad, PlacePoint, PlaceRecord

FULL = 100.0
_STATES = {
    "running": "vtax was killed, or still runs",
    "interrupted": "it was interrupted",
}


def remarks(record: PlaceRecord) -> Sequence[str]:
    """What a reader must know before believing the result."""
    found = []
    if record.state != "complete":
        found.append(f"not everything was run: {_STATES.get(record.state, record.state)}")
    found += [f"failed: {text}" for text in record.failures]
    for each in record.environments:
        if each.absent:
            found.append(f"{each.spec}: {each.absent}")
        found += [f"{each.spec}: {text}" for text in each.notes]
    found += record.findings
    if record.rounds < 2 and len(record.speeds) > 1:
        found.append("one round has no interval of relative performance: --reps 2 or more")
    return found


def points(record: PlaceRecord, number: int) -> Section:
    """Every load of the environment with this number, at every speed."""
    spec = record.environments[number].spec
    rows = tuple(
        (
            load.load,
            point.backend or "nothing",
            f"{point.speed_asked_percent:g}",
            _short(point.speed_obtained_percent),
            *_throughput(point),
            _short(point.relative_percent) + ("*" if point.marks else ""),
            "" if point.low is None or point.speed_asked_percent >= FULL
            else percent_interval(point.low, point.high),
            *map(_short, (point.service_cpu_percent, point.device_percent,
                          point.combined_usage_percent)),
        )
        for load in record.loads
        if load.environment == spec
        for point in load.points
    )  # fmt: skip
    return table_section(
        f"points-{number}",
        f"Points: {spec}",
        "Speed of the service threads in percent, as asked for and as measured; throughput, and in "
        "percent of the controls beside it, with 95 % interval; CPU of the service, use of the "
        "link, and their sum (Combined Usage), in percent. *: kept apart, see the remarks.",
        ("Load", "Slowed by", "Asked", "Obtained", "Throughput", "Unit", "Relative",
         "95 % interval", "CPU", "Link", "Combined"),
        rows,
    )  # fmt: skip


def elasticities(record: PlaceRecord) -> Section:
    """What each load loses, by each way of slowing."""
    rows = tuple(
        (
            load.environment, load.load, each.backend, _two(each.elasticity),
            _range(each.low, each.high), _usage(load),
        )
        for load in record.loads
        for each in load.by_backend
    )  # fmt: skip
    return table_section(
        "elasticity",
        "Elasticity",
        "Percent of throughput lost for each percent of speed lost: 0 does not mind a slow core, 1 "
        "slows with it. Beside it the Combined Usage at full speed.",
        ("Environment", "Load", "Slowed by", "Elasticity", "95 % interval", "Combined usage %"),
        rows,
    )


def is_answered(record: PlaceRecord) -> bool:
    """Whether any predictor has a correlation."""
    tested = (*([record.hypothesis] if record.hypothesis else []), *record.rivals)
    return any(each.rank_correlation is not None for each in tested)


def hypothesis(record: PlaceRecord) -> Section:
    """What predicts elasticity, by rank correlation."""
    known = [record.hypothesis] if record.hypothesis else []
    rows = tuple(
        (
            each.predictor,
            "not known" if each.rank_correlation is None else _two(each.rank_correlation),
            _range(each.low, each.high), str(each.n), each.answer, each.reason,
        )
        for each in (*known, *record.rivals)
    )  # fmt: skip
    return table_section(
        "hypothesis",
        "What predicts elasticity",
        "Spearman's rank correlation of what is known at full speed with the elasticity, over "
        "loads and environments. The paper's hypothesis: the higher the Combined Usage, the lower "
        "the elasticity.",
        ("Predictor", "Correlation", "95 % interval", "n", "Answer", "Why"),
        rows,
    )


def emulation(record: PlaceRecord) -> Section:
    """What the backends do not reproduce of a slow core."""
    return table_section(
        "emulation",
        "What a slowed thread is not",
        "Back ends imitate a slow core, each in its own way; the conclusion may depend on it.",
        ("Slowed by", "It does not reproduce"),
        tuple(record.does_not.items()),
    )


def environments(record: PlaceRecord) -> Section:
    """Which threads were the service, and where everything ran."""
    rows = tuple(
        (each.spec, ", ".join(each.service) or "none", *_cpus(each)) for each in record.environments
    )
    return table_section(
        "environments",
        "Environments",
        "Service threads and the host's CPUs; a CPU that two share is contended.",
        ("Environment", "Service threads", "Machine on CPU", "Service on", "Client on"),
        rows,
    )


def _cpus(each: PlaceEnvironment) -> Sequence[str]:
    machine = ",".join(map(str, each.machine_cpus))
    shared = " (the machine's)" if each.client_cpu in each.machine_cpus else ""
    own = "" if each.service_cpu not in each.machine_cpus else " (the machine's)"
    service = "any" if each.service_cpu is None else f"{each.service_cpu}{own}"
    return machine, service, f"{each.client_cpu}{shared}"


def summary(record: PlaceRecord) -> str:
    """The line above all tables."""
    count = plural(len(record.loads), "load")
    return (
        f"{count}, {plural(record.rounds, 'round')} of {record.seconds:g} s at each speed, "
        f"slowed by {' and '.join(record.backends) or 'nothing'}"
    )


def scale(unit: str) -> tuple[float, str]:
    """The factor that makes a value in `unit` readable, and the unit that the value then has."""
    return (1e-6, "Mbit/s") if unit == "bit/s" else (1.0, unit)


def _throughput(point: PlacePoint) -> tuple[str, str]:
    factor, unit = scale(point.unit)
    return significant(point.throughput * factor), unit


def _usage(load: PlaceLoad) -> str:
    return _short(load.at_full_speed.get("combined usage"))


def _short(value: float | None) -> str:
    return "absent" if value is None else significant(value, 3)


def _range(low: float | None, high: float | None) -> str:
    return "not known" if low is None or high is None else f"{_two(low)} to {_two(high)}"


def _two(value: float) -> str:
    """A number with two decimals, without a negative zero."""
    return f"{round(value, 2) + 0.0:.2f}"
