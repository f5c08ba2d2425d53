"""What to do about the dearest lines, with the gain that the same prices promise.

A remedy makes a program do something else instead: fewer and larger reads, one huge page for 512
faults, a spawn without a copy of the page tables. Its gain is the line as it is, less the line as
it would be, both by the prices of this environment. Whether the program can be changed so is for
its developers to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from vtax.core.formats.bill import Bill, BillLine, Remedy
from vtax.explain.bill import NS, Counted
from vtax.prices.analysis import PriceList

LARGE_BYTES = 65536
"""The largest read and write that is priced; buffers of this size are usual."""
SMALL_BYTES = 16384
"""Reads and writes below this mean size are worth joining."""
PAGES_IN_HUGE = 512
"""Pages of 4 KiB in a huge page of 2 MiB."""
LEAST_SHARE = 0.02
"""Remedies that gain less of the tax are not worth a line."""

Better = Callable[["_Case"], float | None]
"""What one operation would cost on average, in nanoseconds more than natively; None: not known."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A line of the bill, with what it was made of."""

    line: BillLine
    counted: Counted
    prices: PriceList

    def mean_bytes(self) -> float | None:
        """The mean size of one read or write; None: it has none."""
        total = self.counted.mean(f"calls.{self.line.operation}_bytes")
        return total / self.line.count if self.line.count and total else None

    def more(self, name: str, size: float | None = None) -> float | None:
        found = self.prices.more(name, size)
        return None if found is None else found.value


def _joined_calls(case: _Case) -> float | None:
    size = case.mean_bytes()
    whole = case.more(case.line.operation, LARGE_BYTES)
    if size is None or whole is None or size >= SMALL_BYTES:
        return None
    return whole * size / LARGE_BYTES


def _huge(case: _Case) -> float | None:
    one = case.more("fault_huge")
    return None if one is None else one / PAGES_IN_HUGE


def _instead(name: str) -> Better:
    return lambda case: case.more(name)


def _none(_: _Case) -> float | None:
    return 0.0


@dataclass(frozen=True, slots=True)
class _Rule:
    operation: str
    better: Better
    text: str
    source: str
    needed: int = 0
    """How many of the operations no program can do without."""


RULES: Sequence[_Rule] = (
    _Rule("read", _joined_calls, "read 64 KiB at a time instead of in small pieces", "read(2)"),
    _Rule("write", _joined_calls, "write 64 KiB at a time: give the stream a buffer of that size",
          "setvbuf(3)"),
    _Rule("clock_call", _instead("clock"), "read the clock through the vDSO: choose the clock "
          "source tsc or kvm-clock, or do not build statically without it", "vdso(7)"),
    _Rule("anonymous fault", _huge, "use huge pages: madvise(MADV_HUGEPAGE), or a tunable of the "
          "allocator (glibc.malloc.hugetlb=1)", "madvise(2); glibc manual, malloc tunables"),
    _Rule("fork", _instead("vfork"), "start programs with posix_spawn or vfork, which copy no "
          "page tables", "posix_spawn(3)"),
    _Rule("stat", _none, "look fewer paths up: keep what was found, take the type from readdir's "
          "d_type, search fewer folders", "readdir(3)"),
    _Rule("open", _none, "search fewer folders for files that are not there", "ld.so(8), strace -e "
          "openat"),
    _Rule("fsync", _none, "join fsyncs of several files into one batch", "fsync(2)"),
    _Rule("exec", _none, "call a library instead of a program for each piece of work", "execve(2)",
          needed=1),
    _Rule("context switch", _none, "hand over more work at a time between threads, so that fewer "
          "of them wait", "pipe(7), futex(2)"),
)  # fmt: skip


def remedies(bill: Bill, counted: Counted, prices: PriceList) -> tuple[Remedy, ...]:
    """What gains the most, the dearest first; a gain that is a bound says `at most`."""
    whole = abs(bill.difference_s if bill.difference_s is not None else
                bill.predicted_s - bill.baseline_s)  # fmt: skip
    found = list(_found(bill, counted, prices))
    kept = [each for each in found if whole and each.gain_s >= LEAST_SHARE * whole]
    return tuple(sorted(kept, key=lambda each: -each.gain_s))


def _found(bill: Bill, counted: Counted, prices: PriceList) -> Iterator[Remedy]:
    lines: Mapping[str, BillLine] = {line.operation: line for line in bill.lines}
    for rule in RULES:
        line = lines.get(rule.operation)
        if line is None or line.seconds is None or not line.count or line.kind == "not priced":
            continue
        better = rule.better(_Case(line, counted, prices))
        if better is None:
            continue
        after_s = line.count * better * NS / bill.concurrency
        spared = 1.0 - rule.needed / line.count
        yield Remedy(
            operation=rule.operation, text=rule.text, gain_s=spared * (line.seconds - after_s),
            at_most=rule.better is _none, source=rule.source,
        )  # fmt: skip
