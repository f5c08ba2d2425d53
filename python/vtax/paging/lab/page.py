"""What `vtax paging lab` found, as a page and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vtax.core.page.page import Page, Section, notes, table
from vtax.paging.lab.analysis import MODES, PagingModes

HEADINGS = ("counter", "nested", "shadow", "shadow/nested", "nested /s", "shadow /s")
NOTE = (
    "Counted by KVM in the emulated host for the guest's VM; /s is per second of guest time",
    "(10 ms resolution, emulated clock). Levels such as pages_4k are values at the end.",
)


def title(result: PagingModes) -> str:
    """What ran, where, and how often."""
    times = len(result.runs["nested"])
    runs = "one run each" if times == 1 else f"medians of {times} runs each"
    modes = "nested paging" if result.shadow_obstacle else "nested and shadow paging"
    return f"{' '.join(result.workload)}: {modes} on real KVM, {runs}"


def to_json(result: PagingModes) -> dict[str, Any]:
    """The result as `vtax paging lab --json` prints it; a counter that KVM lacks is absent."""
    names = {mode: _names(result, mode) for mode in MODES}
    return {
        "workload": " ".join(result.workload),
        "environment": result.description,
        **{
            mode: {name: _number(result.counter(mode, name)) for name in names[mode]}
            for mode in MODES
        },
        "per_guest_second": {
            mode: {
                name: rate
                for name in names[mode]
                if (rate := result.per_guest_second(mode, name)) is not None
            }
            for mode in MODES
        },
        "guest_seconds": {mode: result.guest_s(mode) for mode in MODES},
        "wall_seconds": {mode: result.wall_s(mode) for mode in MODES},
        "repetitions": {
            mode: [
                {
                    "guest_s": each.guest_s,
                    "wall_s": each.wall_s,
                    "counters": {name: _number(value) for name, value in each.counters.items()},
                    "report": each.report,
                }
                for each in result.runs[mode]
            ]
            for mode in MODES
        },
        "switches": list(result.switches),
        **({"not_run": {"shadow": result.shadow_obstacle}} if result.shadow_obstacle else {}),
    }


def page(result: PagingModes) -> Page:
    """What KVM counted under each mode, and how the modes were reached."""
    found = Section(table=table(HEADINGS, _rows(result)), notes=notes(_footers(result)))
    return Page("paging lab", (found,), title=title(result))


def _footers(result: PagingModes) -> list[str]:
    """The lines below the table: times, how the modes were reached, what the numbers are."""
    times = ", ".join(
        f"{mode} {wall_s:.2f} s wall, {_seconds(result.guest_s(mode))} in guest code"
        for mode in MODES
        if (wall_s := result.wall_s(mode)) is not None
    )
    lines = [f"Time: {times}."]
    if result.shadow_obstacle:
        lines.append(f"Shadow paging was not run: {result.shadow_obstacle}.")
    elif result.switches:
        lines.append(f"One guest, switched while it ran: {_switches(result)}.")
    else:
        lines.append(
            "Each mode on an emulated host of its own: a guest with 9p cannot be switched."
        )
    return [*lines, *NOTE]


def _switches(result: PagingModes) -> str:
    pauses = [
        float(guest["pause_ms"])
        for report in result.switches
        for guest in report.get("guests", ())
        if guest.get("pause_ms") is not None
    ]
    count = len(result.switches)
    said = f"{count} switch" + ("es" if count != 1 else "")
    return f"{said}, longest pause {max(pauses):.0f} ms" if pauses else said


def _rows(result: PagingModes) -> Sequence[tuple[str, ...]]:
    return [
        (
            name,
            *(
                _count(result.counter(mode, name)) if result.runs[mode] else "not run"
                for mode in MODES
            ),
            _ratio(result.counter("nested", name), result.counter("shadow", name)),
            *(_rate(result.per_guest_second(mode, name)) for mode in MODES),
        )
        for name in result.names
    ]


def _names(result: PagingModes, mode: Any) -> list[str]:
    return [name for name in result.names if result.counter(mode, name) is not None]


def _number(value: float | None) -> float | int | None:
    return int(value) if value is not None and value == int(value) else value


def _count(value: float | None) -> str:
    return "absent" if value is None else f"{value:,.0f}"


def _ratio(nested: float | None, shadow: float | None) -> str:
    """The count under shadow paging over that under nested paging; "" where the ratio says
    nothing."""
    if not nested or shadow is None:
        return "-"
    return f"{shadow / nested:.2f}"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f} s"
