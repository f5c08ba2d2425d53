"""Points and cliffs, from what a machine says about its memory."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtax.memory.analysis import RESERVED, Measured, SizedRun, Used, compared, environment, used

MIB = 1 << 20


def look(swap_out: int, killed: int = 0, stalled_us: int | None = 5) -> dict[str, Any]:
    return {
        "memory_bytes": {"MemTotal": 100 * MIB, "Slab": 3 * MIB, "PageTables": 1 * MIB},
        "events": {"pswpin": swap_out // 2, "pswpout": swap_out, "oom_kill": killed},
        "stalled_us": stalled_us,
    }


def said(**changes: Any) -> dict[str, Any]:
    """A run that swapped 40 pages out, as `vtax-agent memory` writes it."""
    return {
        "wall_s": 1.5,
        "max_rss_bytes": 60 * MIB,
        "minor_faults": 700,
        "dtlb_misses": 9000,
        "itlb_misses": None,
        "major_faults": 20,
        "seen": {
            "looks": 3,
            "swap_bytes": 30 * 4096,
            "working_set_bytes": MIB,
            "last": look(30),
        },
        "before": look(10),
        "after": look(50, stalled_us=2_000_005),
        "page_bytes": 4096,
        "image_bytes": {"Kernel code": 9 * MIB, "Kernel data": MIB, "Kernel bss": None},
        **changes,
    }


def test_what_a_run_used() -> None:
    found = used(said())
    assert (found.swap_bytes, found.swapped_out_bytes, found.swapped_in_bytes) == (
        30 * 4096, 40 * 4096, 20 * 4096,
    )  # fmt: skip
    assert (found.max_rss_bytes, found.major_faults, found.stalled_s) == (60 * MIB, 20, 2.0)
    assert (found.dtlb_misses, found.itlb_misses) == (9000, None)
    assert found.working_set_bytes == MIB
    assert found.kernel["code"] == 9 * MIB and found.kernel["data"] == MIB
    assert found.kernel["stacks"] is None
    assert found.pressed is True and found.killed == 0


def test_what_others_swapped_is_no_pressure_on_a_program_in_its_own_group() -> None:
    own = {"own_swap": True}
    assert used(said(**own)).pressed is True
    assert used(said(**own, seen={"looks": 3, "swap_bytes": 0, "last": look(30)})).pressed is False
    assert used(said(**own, seen={"looks": 0})).pressed is None
    assert used(said(**own, before=look(50), seen={"looks": 0})).pressed is False


def test_what_no_look_saw_is_zero_only_where_nothing_was_written() -> None:
    unseen = {"looks": 0, "swap_bytes": None, "last": None}
    assert used(said(seen=unseen)).swap_bytes is None
    assert used(said(seen=unseen, after=look(10))).swap_bytes == 0


def test_what_is_not_said_is_not_known() -> None:
    assert used({}) == Used(kernel=used({}).kernel)
    assert set(used({}).kernel.values()) == {None}
    assert used({}).pressed is None
    assert used(said(before={}, after=None)).swapped_out_bytes is None
    assert used(said(after=look(50, stalled_us=None))).stalled_s is None
    # A counter that went back belongs to another machine.
    assert used(said(before=look(90))).swapped_out_bytes is None


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
NUMBERS = LEAF | st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("pswpout", "oom_kill", "MemTotal", "Slab", "Kernel code"), LEAF)
)
LOOK = LEAF | st.fixed_dictionaries(
    {}, optional={"events": NUMBERS, "memory_bytes": NUMBERS, "stalled_us": LEAF}
)
SEEN = LEAF | st.fixed_dictionaries({}, optional={"swap_bytes": LEAF, "last": LOOK})
SAID = st.fixed_dictionaries(
    {},
    optional={"seen": SEEN, "before": LOOK, "after": LOOK, "wall_s": LEAF, "image_bytes": NUMBERS},
)


@given(SAID)
@settings(max_examples=50, deadline=None)
def test_a_hostile_machine_breaks_nothing(found: dict[str, Any]) -> None:
    """Whatever a guest's root writes instead, every number is in its range, or not known."""
    read = used(found)
    numbers = (read.swap_bytes, read.swapped_out_bytes, read.total_bytes, *read.kernel.values())
    assert all(number is None or 0 <= number < 1 << 73 for number in numbers)


def runs(edge: int, past: str, count: int = 5, rss: int = 24) -> list[SizedRun]:
    """Runs with matrices: `rss` bytes for each of the n² entries."""
    made = []
    for size in range(500, 1100, 100):
        for number in range(count):
            memory = Used(
                swap_bytes=0, swapped_out_bytes=0, swapped_in_bytes=0, killed=0,
                max_rss_bytes=rss * size**2, total_bytes=40 * MIB, kernel={"slab": 7 * MIB},
            )  # fmt: skip
            value = 4000.0 + number
            if size <= edge:
                made.append(SizedRun(size, number, "ok", value, memory))
            elif past == "oom":
                made.append(SizedRun(size, number, "oom", None, Used(killed=1)))
            elif past == "slow":
                made.append(SizedRun(size, number, "failed", None, message="was stopped at its "
                                     "time limit", too_slow=True))  # fmt: skip
            elif past == "failed":
                made.append(SizedRun(size, number, "failed", None, message="no memory"))
            else:
                swapped = Used(swap_bytes=MIB, swapped_out_bytes=2 * MIB, swapped_in_bytes=MIB)
                made.append(SizedRun(size, number, "ok", value / 3, swapped))
    return made


def measured(own: list[SizedRun], is_guest: bool = True, spec: str = "one") -> Measured:
    return Measured(spec, "a machine", 64 * MIB, is_guest, own)


@pytest.mark.parametrize("past", ["oom", "slow", "swap"])
def test_the_cliff_and_the_memory_of_programs(past: str) -> None:
    found = environment(measured(runs(800, past)), "Mflop/s", "higher", 1)
    assert found.cliff is not None
    assert (found.cliff.size, found.cliff.low, found.cliff.high) == (800, 800, 900)
    assert found.user_bytes == 24 * 800**2
    ends = [point.end for point in found.points]
    last = {"oom": "oom", "slow": "failed", "swap": "ok"}[past]
    assert ends == ["ok"] * 4 + [last] * 2
    point = found.points[0]
    assert (point.n, point.median, point.low, point.high) == (5, 4002.0, 4000.0, 4004.0)
    assert point.swap_bytes == 0
    assert found.points[-1].swap_bytes == (MIB if past == "swap" else None)
    assert found.points[-1].killed == (5 if past == "oom" else 0)


def test_a_program_that_fails_for_its_own_reasons_has_no_cliff() -> None:
    found = environment(measured(runs(800, "failed")), "Mflop/s", "higher", 1)
    assert found.cliff is None and found.user_bytes is None
    assert found.points[-1].message == "no memory" and found.points[-1].failed == 5


def test_the_memory_of_a_guests_kernel() -> None:
    guest = environment(measured(runs(1000, "ok")), "Mflop/s", "higher", 1)
    assert guest.kernel_bytes[RESERVED] == 24 * MIB and guest.kernel_bytes["slab"] == 7 * MIB
    assert guest.kernel_bytes["code"] is None and "code" in guest.absent
    shown = [
        SizedRun(
            100, 0, "ok", 1.0, Used(total_bytes=40 * MIB, kernel={"code": 9 * MIB, "data": MIB})
        )
    ]
    besides = environment(measured(shown), "Mflop/s", "higher", 1)
    assert besides.kernel_bytes[RESERVED] == 14 * MIB
    container = [SizedRun(100, 0, "ok", 1.0, Used(total_bytes=24 << 30))]
    assert environment(measured(container), "", "higher", 1).kernel_bytes[RESERVED] is None
    here = environment(measured(runs(1000, "ok"), is_guest=False), "Mflop/s", "higher", 1)
    assert here.kernel_bytes[RESERVED] is None


def test_nothing_measured_is_nothing_known() -> None:
    found = environment(measured([]), "Mflop/s", "higher", 1)
    assert found.points == () and found.cliff is None
    both = compared([measured([]), measured(runs(800, "oom"), spec="two")], "higher")
    assert [each.verdict for each in both] == ["not known"]


def test_environments_are_compared() -> None:
    both = [measured(runs(700, "oom")), measured(runs(900, "swap"), spec="two")]
    (found,) = compared(both, "higher")
    assert (found.a, found.b, found.verdict) == ("one", "two", "differ")
    assert (found.size_a, found.size_b) == (750, 950)
