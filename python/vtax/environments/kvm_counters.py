"""KVM's counters of a guest, and what they counted between two readings, as metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vtax.core.errors import VtaxError
from vtax.workloads.base import Metric

REPORTED = (
    "exits",
    "pf_taken",
    "pf_fixed",
    "pf_guest",
    "pf_emulate",
    "invlpg",
    "mmu_shadow_zapped",
    "mmu_pte_write",
    "mmu_flooded",
    "mmu_unsync",
    "mmu_cache_miss",
    "tlb_flush",
    "pages_4k",
    "pages_2m",
    "io_exits",
    "irq_exits",
    "halt_exits",
)
"""Counters to keep with each sample, by the kernel's names, in the order of display."""


@dataclass(frozen=True, slots=True)
class Counters:
    """One reading of one guest's counters."""

    values: Mapping[str, int]
    gauges: frozenset[str]
    """Names of values that are levels, not counts."""
    guest_s: float | None
    """Time that the guest's CPUs ran guest code, by the accounting of the emulated host."""


def of_guest(answer: Mapping[str, Any], pid: int | None) -> Counters:
    """The counters of the guest whose QEMU is `pid`; with None, of the only guest.

    `answer` is the agent's answer to `counters` (crates/agent/PROTOCOL.md).

    Raises VtaxError when the answer does not have exactly one such guest.
    """
    guests = [each for each in _list(answer.get("guests")) if isinstance(each, Mapping)]
    own = [each for each in guests if pid in (None, each.get("pid"))]
    if len(own) != 1:
        raise VtaxError(f"KVM's counters are of {len(guests)} guests, none of which is this one")
    counters, guest_s = own[0].get("counters"), own[0].get("guest_s")
    values = counters if isinstance(counters, Mapping) else {}
    return Counters(
        {str(name): value for name, value in values.items() if isinstance(value, int)},
        frozenset(map(str, _list(answer.get("gauges")))),
        float(guest_s) if isinstance(guest_s, int | float) else None,
    )


def metrics(before: Counters, after: Counters) -> Sequence[Metric]:
    """Counts between two readings, and the levels at the second.

    Only REPORTED counters are given: KVM has 60, most of which have nothing to do with paging.
    """
    found = []
    for name in REPORTED:
        if name not in after.values:
            continue
        value = after.values[name]
        if name in after.gauges:
            found.append(Metric(f"kvm.{name}", "pages", "lower", float(value)))
        elif name in before.values:
            count = value - before.values[name]
            found.append(Metric(f"kvm.{name}", "count", "lower", float(count)))
    if before.guest_s is not None and after.guest_s is not None:
        found.append(Metric("kvm.guest_s", "s", "lower", after.guest_s - before.guest_s))
    return tuple(found)


def _list(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else ()
