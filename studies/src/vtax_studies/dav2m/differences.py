"""Why traced programs give a claim another verdict than profiles, as far as the data show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from vtax_studies.dav2m import data as m
from vtax_studies.dav2m.data import Data
from vtax_studies.dav2m.setup import INDIFFERENT_PERCENT, MACHINE, SECOND_MACHINE
from vtax_studies.rule import each


def none_for_shadow(data: Data) -> str:
    """What shadow paging's exits and nested paging's walks cost each program."""
    shadow = [(name, _part(data, name, "shadow", ("exits",))) for name in data.focus]
    nested = [(name, _part(data, name, "nested", ("walks",))) for name in data.focus]
    found = m.groups(data)["shadow"]
    return (
        f"Over {INDIFFERENT_PERCENT:g} % dearer under nested paging: {', '.join(found) or 'none'}. "
        f"In percent of native, exits under shadow paging: "
        f"{each(shadow)}; walks beyond native's under nested paging: {each(nested)}."
    )


def cost_of_switching(machine: str, data: Data) -> str:
    """What DAV2M's switches and their refills cost each program."""
    found = [(name, _part(data, name, "dav2m", ("switches", "refill"), machine))
             for name in data.focus]  # fmt: skip
    return (
        "Windows are scaled to the trace, the cost of a switch is not: switches and refills take, "
        f"in percent of native, {each(found)}."
    )


def few_misses(data: Data) -> str:
    """How often the programs miss the TLB at all."""
    found = [(name, m.native_miss_rate(data, name, "4K") / 1e6) for name in data.surveyed]
    return (
        "Only anonymous memory became large. Misses per 1000 instructions with small pages: "
        f"{each(found, 'misses')}."
    )


def _part(
    data: Data, name: str, mode: str, parts: tuple[str, ...], machine: str = MACHINE
) -> float:
    """These parts of the cycles beyond native's, in percent of native's."""
    rows = m.mode_rows(data, machine, name)
    spent, native = (
        sum(float(str(rows[each][f"cycles_{part}"])) for part in parts) for each in (mode, "native")
    )
    return 100 * (spent - native) / float(str(rows["native"]["cycles"]))


def _switching(machine: str = MACHINE) -> Callable[[Data], str]:
    return lambda data: cost_of_switching(machine, data)


DIFFERS: Mapping[str, Callable[[Data], str]] = {
    "neither-superior": none_for_shadow,
    "gcc-as-good": _switching(),
    "single-best": _switching(),
    f"best-static-{MACHINE}": _switching(),
    f"best-static-{SECOND_MACHINE}": _switching(SECOND_MACHINE),
    "large-pages-help": few_misses,
}
"""By claim. Nobody looked into why the other claims differ."""
