"""What the paper's text claims, each judged from data by a pure function.

An interval decides: a claim holds when all of it agrees with the paper, fails when none of it does,
and cannot be judged when part of it does, so that noise neither confirms nor refutes. Backends that
disagree decide nothing: then the answer depends on how the core is slowed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from vtax.core.page.format import significant
from vtax.place.hypothesis import HYPOTHESIS
from vtax.place.record import PlaceLoad, PlacePoint
from vtax_studies.asymmetric_cores import data as m
from vtax_studies.asymmetric_cores.data import Data, Interval
from vtax_studies.asymmetric_cores.setup import (
    AB,
    BUSIER,
    CPU_BOUND,
    CPU_FIGURES,
    DISK,
    ELASTICITY,
    IDEAL,
    KEPT,
    KEPT_LATER,
    LOW_CPU,
    NAMES,
    NEAR,
    NEAR_ELASTICITY,
    QEMU,
    REFERENCES,
    SLOWED,
    SPINDLE,
    TCP,
    UDP,
    USAGE_FIGURES,
)
from vtax_studies.rule import Judgement, Missing, Rule, all_hold

Values = Mapping[str, Interval]
"""An interval for each backend."""
IDLE_LEFT = 100.0 - BUSIER
"""In percent: a core that is busier has no room for such a rise."""


def near(found: Interval, stated: float, within: float) -> bool | None:
    """Whether a value agrees with the stated one; None where its interval allows both."""
    if found.low is None or found.high is None:
        return None
    if stated - within <= found.low and found.high <= stated + within:
        return True
    return False if found.high < stated - within or found.low > stated + within else None


def less(a: Interval, b: Interval) -> bool | None:
    """Whether `a` is below `b`; None where their intervals overlap."""
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return None
    return True if a.high < b.low else False if a.low > b.high else None


def agreed(verdicts: Iterable[bool | None]) -> bool | None:
    """The verdict that all backends share; None where they differ."""
    found = set(verdicts)
    return found.pop() if len(found) == 1 else None


def kept(data: Data, name: str, load: str) -> Judgement:
    """What a load keeps at the lowest speed of the service threads, in one environment."""
    return _kept(m.kept(data.load(name, load)), data.title(name), KEPT[load])


def kept_alone(data: Data, load: str) -> Judgement:
    """What a CPU-bound load keeps at the lowest speed of its guest's vCPUs."""
    found = m.kept(data.alone(load))
    return _kept(found, data.title(QEMU), KEPT[CPU_BOUND])


def in_proportion(data: Data) -> Judgement:
    """Whether the CPU-bound load loses in proportion over all speeds of its guest's vCPUs."""
    found = m.slopes(data.alone(CPU_BOUND))
    stated = ELASTICITY[CPU_BOUND]
    return Judgement(
        f"{data.title(QEMU)}: {_listed(found, 2)} % for each %",
        agreed(near(each, stated, NEAR_ELASTICITY) for each in found.values()),
        f"Intervals have to lie within {NEAR_ELASTICITY:g} of {stated:.2f}{_disagree(found)}.",
    )


def idle_with_a_disk(data: Data) -> Judgement:
    """Whether the service is nearly idle with every load of a disk that is one spindle."""
    found = data.disk_cpu(SPINDLE)
    low = Interval(LOW_CPU, LOW_CPU, LOW_CPU)
    return Judgement(
        f"{data.title(SPINDLE)}: {_listed(found)} %",
        all_hold([less(each, low) for each in found.values()]),
        f"Each interval has to lie below {LOW_CPU:g} %.",
    )


def busier_with_a_fast_disk(data: Data) -> Judgement:
    """Whether every load of a disk makes the service busier where the disk is faster."""
    slow, fast = data.disk_cpu(SPINDLE), data.disk_cpu(DISK)
    both = {load: each for load, each in slow.items() if load in fast}
    shown = ", ".join(f"{load} {m.words(fast[load], 1)}" for load in both)
    return Judgement(
        f"{data.title(DISK)}: {shown} %",
        all_hold([less(each, fast[load]) for load, each in both.items()]),
        "Each interval has to lie above that with one spindle.",
    )


def needs_no_service(data: Data) -> Judgement:
    """Whether the CPU-bound load loses nothing with slow service threads, in every environment."""
    found = {name: m.slopes(each) for name, each in data.loads(CPU_BOUND).items()}
    verdicts = [
        agreed(near(each, 0.0, NEAR_ELASTICITY) for each in own.values()) for own in found.values()
    ]
    shown = "; ".join(f"{data.title(name)}: {_listed(own, 2)}" for name, own in found.items())
    reason = f"Intervals have to lie within {NEAR_ELASTICITY:g} of 0 in every environment."
    return Judgement(f"{shown} % for each %", all_hold(verdicts), reason)


def loses_most(data: Data) -> Judgement:
    """The loss of the CPU-bound load with slow vCPUs against others with a slow service, in one
    environment."""
    alone = m.kept(data.alone(CPU_BOUND))
    found = {load: m.kept(data.load(QEMU, load)) for load in (AB, TCP, UDP)}
    verdicts = [_below(alone, own) for own in found.values()]
    shown = "; ".join(f"{load} {_listed(own)}" for load, own in found.items())
    return Judgement(
        f"{data.title(QEMU)}: {CPU_BOUND} {_listed(alone)}; {shown} %",
        all_hold(verdicts),
        f"The interval of {CPU_BOUND} has to lie below each of the others.",
    )


def udp_loses_more(data: Data, load: str) -> Judgement:
    """UDP against another load in every environment that has both."""
    shown, verdicts = [], []
    more = data.loads(UDP)
    for name, each in data.loads(load).items():
        if name in more:
            udp, own = m.kept(more[name]), m.kept(each)
            verdicts.append(_below(udp, own))
            shown.append(f"{data.title(name)}: {UDP} {_listed(udp)}, {load} {_listed(own)}")
    if not shown:
        raise Missing(f"no environment has both {load} and {UDP}")
    reason = f"The interval of {UDP} has to lie below that of {load} in every environment."
    return Judgement(f"{'; '.join(shown)} %", all_hold(verdicts), reason)


def predicts(data: Data) -> Judgement:
    """Whether Combined Usage predicts elasticity, by their rank correlation."""
    found = data.served.hypothesis if data.served else None
    if data.served is None or found is None:
        raise Missing("nothing was measured")
    holds = {"supported": True, "contradicted": False}.get(found.answer)
    if found.rank_correlation is None or found.low is None or found.high is None:
        raise Missing(found.reason)
    rho = f"{found.rank_correlation:.2f} [{found.low:.2f}, {found.high:.2f}]"
    ours = f"rank correlation {rho}, n = {found.n}{_groups(data.served.loads)}"
    return Judgement(
        ours,
        holds,
        "Holds where the interval of the rank correlation with elasticity lies below 0; pairs of "
        "one environment are not independent, so it is rather too narrow.",
    )


def _groups(loads: Sequence[PlaceLoad]) -> str:
    """The elasticities below and above a Combined Usage of 100 %."""
    known = [
        (each.elasticity, usage) for each in loads
        if each.elasticity is not None and (usage := each.at_full_speed.get(HYPOTHESIS)) is not None
    ]  # fmt: skip
    parts = []
    for word, above in (("above", True), ("up to", False)):
        own = [value for value, usage in known if (usage > IDEAL) is above]
        middle = f"median {statistics.median(own):.2f} of {len(own)}" if own else "none"
        parts.append(f"{word} {IDEAL:g} %: {middle}")
    return f"; elasticity {', '.join(parts)}"


def usage(data: Data, load: str, above: bool) -> Judgement:
    """Combined Usage at every speed, in every environment."""
    word = "above" if above else "below"

    def right(values: Sequence[float]) -> bool:
        return all((value > IDEAL) is above and value != IDEAL for value in values)

    return _by_environment(
        data,
        load,
        m.combined,
        lambda values: f"{significant(min(values), 3)} to {significant(max(values), 3)}",
        right,
        f"Means at all speeds have to be {word} {IDEAL:g} %; they have no interval.",
    )


def rises(data: Data, load: str) -> Judgement:
    """Whether the slow core is busier at the lowest speed than at full speed."""

    def right(values: Sequence[float]) -> bool | None:
        full, slow = values[0], values[-1]
        if slow >= full + BUSIER:
            return True
        # A core that is always busy cannot become busier.
        return False if slow <= full <= IDLE_LEFT else None

    return _by_environment(
        data,
        load,
        m.busy,
        lambda values: f"{significant(values[0], 3)} to {significant(values[-1], 3)}",
        right,
        f"Holds where it rises by {BUSIER:g} points or more of the time that the slow core has, "
        f"fails without a rise; above {IDLE_LEFT:g} % it cannot.",
    )


def _by_environment(
    data: Data,
    load: str,
    value: Callable[[PlacePoint], float | None],
    words: Callable[[Sequence[float]], str],
    right: Callable[[Sequence[float]], bool | None],
    reason: str,
) -> Judgement:
    """Judge whether `right` holds for the values of each backend's points, fastest first."""
    shown, verdicts = [], []
    for name, each in data.loads(load).items():
        found = {}
        for backend, points in m.by_backend(each).items():
            values = [known for point in points if (known := value(point)) is not None]
            if len(values) < len(points):
                raise Missing(f"{name}: {load} has speeds at which it was not measured")
            found[backend] = values
        verdicts.append(agreed(map(right, found.values())))
        own = ", ".join(f"{backend} {words(values)}" for backend, values in found.items())
        shown.append(f"{data.title(name)}: {own}")
    return Judgement(f"{'; '.join(shown)} %", all_hold(verdicts), reason)


def _kept(found: Values, title: str, stated: float) -> Judgement:
    reason = f"Intervals have to lie from {stated - NEAR:g} to {stated + NEAR:g} %"
    return Judgement(
        f"{title}: {_listed(found)} %",
        agreed(near(each, stated, NEAR) for each in found.values()),
        f"{reason}{_disagree(found)}.",
    )


def _below(a: Values, b: Values) -> bool | None:
    """Whether `a` is below `b`, by each backend that has both."""
    both = [less(a[name], b[name]) for name in a if name in b]
    if not both:
        raise Missing("no back end has both")
    return agreed(both)


def _disagree(found: Values) -> str:
    """The end of a criterion for claims that depend on how the core is slowed."""
    names = list(found)
    apart = any(
        less(found[a], found[b]) is not None
        for at, a in enumerate(names)
        for b in names[at + 1 :]
    )  # fmt: skip
    return "; back ends disagree: how the core is slowed decides" if apart else ""


def _listed(found: Values, decimals: int = 1) -> str:
    """`quota 61.2 [55.0, 67.9], hog ...`."""
    return ", ".join(f"{backend} {m.words(each, decimals)}" for backend, each in found.items())


def _stated(load: str) -> str:
    later = f" ({KEPT_LATER[load]:g} % in 3.2)" if load in KEPT_LATER else ""
    return f"{KEPT[load]:g} %{later}"


RULES: tuple[Rule[Data], ...] = (
    *(
        Rule(
            f"kept-{load}-{short}", "3.1, fig. 1",
            f"{NAMES[load]} keeps, with a slow dom0 (here {name})", _stated(load),
            partial(kept, name=name, load=load),
        )
        for load in (AB, TCP, UDP)
        for short, name in SLOWED.items()
    ),
    *(
        Rule(
            f"kept-cpu-bound-{load}", "3.1, fig. 1",
            f"SPEC CPU2006 (here {load}) keeps, with slow guest cores", _stated(CPU_BOUND),
            partial(kept_alone, load=load),
        )
        for load in REFERENCES
    ),
    Rule(
        "disk-bound-idle", "2", "dom0 is nearly idle with every benchmark that is bound by a disk",
        f"below {LOW_CPU:g} % of a CPU", idle_with_a_disk,
    ),
    Rule(
        "fast-disk-busier", "2", "With a powerful storage system dom0 would be busier",
        "suspected", busier_with_a_fast_disk,
    ),
    Rule(
        "cpu-bound-in-proportion", "3.1, fig. 1", "CPU-bound work slows with its guest's cores",
        f"{ELASTICITY[CPU_BOUND]:.2f} % for each %, from the 58 %", in_proportion,
    ),
    Rule(
        "cpu-bound-needs-no-service", "2", "CPU-bound work does not depend on dom0",
        "does not depend", needs_no_service,
    ),
    Rule(
        "cpu-bound-loses-most", "3.1, fig. 1",
        "CPU-bound work is penalized the most, work that depends on dom0 less", "58 % against 75 "
        "to 86 %", loses_most,
    ),
    *(
        Rule(
            f"udp-loses-more-than-{load}", "3.2", f"netperf UDP is more sensitive than "
            f"{NAMES[load]}", f"{KEPT[UDP]:g} % against {_stated(load)}",
            partial(udp_loses_more, load=load),
        )
        for load in (AB, TCP)
    ),
    Rule(
        "combined-usage-predicts", "3.2", "High Combined Usage goes with low sensitivity",
        "suspected, from three loads", predicts,
    ),
    *(
        Rule(
            f"combined-usage-{load}", f"3.2, fig. {USAGE_FIGURES[load]}",
            f"Combined Usage of {NAMES[load]} is {'above' if above else 'below'} {IDEAL:g} % at "
            "all frequencies", f"{'above' if above else 'below'} {IDEAL:g} %",
            partial(usage, load=load, above=above),
        )
        for load, above in ((TCP, True), (AB, True), (UDP, False))
    ),
    *(
        Rule(
            f"cpu-rises-{load}", f"3.2, fig. {CPU_FIGURES[load]}",
            f"With {NAMES[load]} dom0 is busier on a slower core",
            "not in the text, which has no values of the figure", partial(rises, load=load),
        )
        for load in (AB, TCP, UDP)
    ),
)  # fmt: skip
