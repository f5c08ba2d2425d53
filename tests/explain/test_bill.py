"""The bill against an independent computation: counts and prices that the test made up."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from priced_data import USER, environment, operation, price_list, used
from vtax.core.formats.bill import Bill, BillLine
from vtax.explain.bill import Counted, bill
from vtax.explain.operations import OPERATIONS, Operation
from vtax.prices.analysis import Interval, PriceList
from vtax.prices.record import PricedOperation

CALLS = [each for each in OPERATIONS if each.columns and not (
    each.bytes_column or each.without or each.without_faults or each.per_price != 1 or each.assumed
    or each.less or each.at_most or each.by_user_time or each.by_faults_there
)]  # fmt: skip


def line(found: Bill, name: str) -> BillLine:
    return next(each for each in found.lines if each.operation == name)


@given(
    counts=st.dictionaries(
        st.sampled_from(CALLS), st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), min_size=1
    ),
    noise_s=st.floats(-0.5, 0.5),
)
def test_what_counts_and_prices_say_is_explained_and_nothing_else(
    counts: dict[Operation, tuple[int, int]], noise_s: float
) -> None:
    prices = {each.price: (100.0, 100.0 + more) for each, (_, more) in counts.items()}
    tax_s = sum(n * more for n, more in counts.values()) / 1e9
    base = used(1.0, 1.0, 1.0)
    there = used(*[1.0 + tax_s + noise_s] * 3)
    counted = Counted({each.columns[0]: (n, n) for each, (n, _) in counts.items()})
    found = bill("uml", "native", there, base, counted, price_list({**prices, **USER}))
    assert found.difference_s == pytest.approx(tax_s + noise_s, abs=1e-9)
    assert found.residual_s == pytest.approx(noise_s, abs=1e-9)
    for each, (n, more) in counts.items():
        own = line(found, each.name)
        assert own.count == n and own.kind == "priced"
        assert own.seconds == pytest.approx(n * more / 1e9)
        assert own.low == pytest.approx(own.seconds) and own.high == pytest.approx(own.seconds)


@given(opened=st.integers(0, 100), created=st.integers(0, 100), closed=st.integers(1, 300))
def test_a_close_of_what_was_not_opened_is_one_of_a_duplicate(
    opened: int, created: int, closed: int
) -> None:
    runs = {"calls.open": opened, "calls.create": created, "calls.close": closed}
    counted = Counted({name: (count, count) for name, count in runs.items()})
    base = used(1.0, 1.0, 1.0)
    found = bill("uml", "native", base, base, counted, price_list(USER))
    counts = {each.operation: each.count for each in found.lines}
    assert counts.get("close", 0) == min(closed, opened + created)
    assert counts.get("close", 0) + counts.get("close of a duplicate", 0) == closed


def test_an_a_a_bill_covers_zero_in_95_of_100() -> None:
    """The same environment twice, with noise of its own in times and prices."""
    chance = random.Random(1)
    covered = 0
    for _ in range(400):
        here, there = (
            environment(label, [operation("stat", *(chance.gauss(500, 10) for _ in range(4)),
                                          context=context) for context in ("short", "long")], base)
            for label, base in (("a", None), ("b", "a"))
        )  # fmt: skip
        base, own = (used(*(chance.gauss(1, 0.01) for _ in range(5))) for _ in range(2))
        counted = Counted({"calls.stat": (10_000, 10_000)})
        found = bill("b", "a", own, base, counted, PriceList.of(there, here))
        assert found.residual_low is not None and found.residual_high is not None
        covered += found.residual_low <= 0 <= found.residual_high
    assert covered >= 380


def test_an_operation_without_a_price_is_not_zero() -> None:
    counted = Counted({"calls.stat": (1000.0, 1000.0)})
    found = bill("uml", "native", used(2.0, 2.0), used(1.0, 1.0), counted, price_list(USER))
    own = line(found, "stat")
    assert (own.kind, own.seconds, own.low, own.high) == ("not priced", None, None, None)
    assert found.residual_s == pytest.approx(1.0)
    assert any("not priced" in text and "stat" in text for text in found.warnings)


def test_the_faults_of_a_fork_are_charged_once() -> None:
    here = [operation("fork", 50_000.0, faults=40.0), operation("fault_anonymous", 500.0)]
    there = [operation("fork", 550_000.0, faults=40.0), operation("fault_anonymous", 10_500.0)]
    prices = PriceList.of(environment("uml", there, "native"), environment("native", here))
    counted = Counted({"calls.fork": (10.0, 10.0), "faults.anonymous": (400.0, 400.0)})
    found = bill("uml", "native", used(2.0, 2.0), used(1.0, 1.0), counted, prices)
    # 500 us more for a fork, of which 40 faults of 10 us each stand on their own line.
    assert line(found, "fork").seconds == pytest.approx(10 * (500_000 - 40 * 10_000) / 1e9)
    assert line(found, "anonymous fault").seconds == pytest.approx(400 * 10_000 / 1e9)


def test_the_size_of_reads_is_that_of_the_program() -> None:
    def sized(*prices: float) -> list[PricedOperation]:
        sizes = (1.0, 4096.0, 65536.0)
        return [operation("read", ns, context=str(size), size=size)
                for ns, size in zip(prices, sizes, strict=True)]  # fmt: skip

    prices = PriceList.of(
        environment("uml", sized(1000, 2000, 20000), "native"),
        environment("native", sized(100, 100, 100)),
    )
    counted = Counted({"calls.read": (100.0, 100.0), "calls.read_bytes": (409_600.0, 409_600.0)})
    found = bill("uml", "native", used(2.0, 2.0), used(1.0, 1.0), counted, prices)
    assert line(found, "read").price_delta_ns == pytest.approx(1900)
    half = prices.more("read", (4096 + 65536) / 2)
    assert half is not None and half.value == pytest.approx((1900 + 19900) / 2)


def test_what_several_cpus_do_at_once_is_waited_for_once() -> None:
    counted = Counted({"calls.stat": (1e6, 1e6)})
    base = replace(used(1.0, 1.0), cpu_s={0: 2.0, 1: 2.0})
    prices = price_list({"stat": (100.0, 1100.0), **USER})
    found = bill("uml", "native", used(2.0, 2.0), base, counted, prices)
    assert found.concurrency == pytest.approx(2.0)
    assert line(found, "stat").seconds == pytest.approx(0.5)


def test_user_time_of_translated_code_is_measured() -> None:
    slow = dict.fromkeys(USER, (100.0, 1000.0))
    base = used(1.0, 1.0, user_s=0.5)
    own = used(5.0, 5.0, user_s=4.0)
    found = bill("qemu", "native", own, base, Counted({}), price_list(slow))
    assert line(found, "user code").kind == "measured"
    assert line(found, "user code").seconds == pytest.approx(3.5)
    predicted = bill("qemu", "native", None, base, Counted({}), price_list(slow))
    assert line(predicted, "user code").kind == "modelled"
    assert predicted.predicted_s == pytest.approx(1.0 + 0.5 * 9)
    assert predicted.difference_s is None and predicted.residual_s is None


@pytest.mark.parametrize(
    ("faults", "pages"),
    [(1000.0, 1.0), (1300.0, 4.0), (1900.0, 10.0), (9000.0, 16.0), (500.0, 1.0), (0.0, None)],
)
def test_file_faults_are_priced_by_those_that_the_guest_takes(
    faults: float, pages: float | None
) -> None:
    sizes = (1.0, 4.0, 16.0)
    ours = [operation("fault_file", 1000.0, context=str(size), size=size) for size in sizes]
    there = [
        operation("fault_file", 1000.0 + 30_000.0 * size, context=str(size), size=size)
        for size in sizes
    ]
    prices = PriceList.of(environment("uml", there, "native"), environment("native", ours))
    counted = Counted({"faults.file": (100.0, 100.0)})
    base, own = used(1.0, 1.0, faults=1000.0), used(1.1, 1.1, faults=faults)
    found = bill("uml", "native", own, base, counted, prices)
    charged = line(found, "file fault").seconds
    # Not counted there: the median of the contexts.
    assert charged == pytest.approx(100 * 30_000e-9 * (4.0 if pages is None else pages))
    assert found.predicted_s == pytest.approx(1.0 + 100 * 30_000e-9 * 4.0)


def test_mixed_code_foretells_only_what_is_translated() -> None:
    base = used(1.0, 1.0, user_s=0.5)
    for others, mixed, taken in ((100.0, 150.0, 1.0), (300.0, 2000.0, 1.0 + 0.5 * 19)):
        prices = dict.fromkeys(USER, (100.0, others)) | {"user_mixed": (100.0, mixed)}
        found = bill("there", "native", None, base, Counted({}), price_list(prices))
        assert found.predicted_s == pytest.approx(taken)


@given(
    ran=st.floats(0.1, 5.0), stolen=st.floats(0.0, 1.0), left=st.floats(0.0, 5.0),
    busy=st.floats(0.0, 1.0),
)  # fmt: skip
def test_what_kvm_accounts_for_outside_of_the_guest_is_a_line(
    ran: float, stolen: float, left: float, busy: float
) -> None:
    base = replace(used(1.0, 1.0), cpu_s=dict.fromkeys(range(2), busy), steal_s={0: 0.0, 1: 0.0})
    own = replace(
        used(*[ran + stolen + left] * 2), steal_s=dict.fromkeys(range(2), stolen),
        guest_s=dict.fromkeys(range(2), ran), exits={0: 40.0, 1: 60.0},
    )  # fmt: skip
    found = line(bill("lab", "native", own, base, Counted({}), price_list(USER)),
                 "VM exits and halts")  # fmt: skip
    assert found.kind == "measured" and found.count == 50
    # What the program waits natively, it waits in a guest too.
    assert found.seconds == pytest.approx((left - (1.0 - busy)) / max(1.0, busy), abs=1e-9)
    unknown = bill("lab", "native", replace(own, guest_s={}), base, Counted({}), price_list(USER))
    assert "VM exits and halts" not in {each.operation for each in unknown.lines}


def test_user_code_without_a_price_is_not_free() -> None:
    base = used(1.0, 1.0, user_s=0.5)
    prices = price_list({"stat": (100.0, 1100.0)})
    found = bill("there", "native", used(2.0, 2.0), base, Counted({}), prices)
    assert line(found, "user code").kind == "not priced"
    assert line(found, "user code").seconds is None
    assert any("user code" in warning for warning in found.warnings)


def test_unsteady_counts_are_told() -> None:
    counted = Counted({"calls.stat": (1000.0, 1100.0), "calls.open": (3.0, 5.0)})
    prices = price_list({"stat": (100.0, 1100.0), "open": (100.0, 200.0), **USER})
    found = bill("uml", "native", used(2.0, 2.0), used(1.0, 1.0), counted, prices)
    (said,) = [text for text in found.warnings if "differ" in text]
    assert "calls.stat" in said and "calls.open" not in said
    own = line(found, "stat")
    assert own.low == pytest.approx(1e-3) and own.high == pytest.approx(1.1e-3)
    assert own.count == fmean((1000, 1100))


def test_an_interval_reaches_over_all_contexts() -> None:
    here = [operation("stat", 100.0, 110.0, context="short"), operation("stat", 200.0, 200.0)]
    there = [operation("stat", 300.0, 290.0, context="short"), operation("stat", 900.0, 950.0)]
    prices = PriceList.of(environment("uml", there, "native"), environment("native", here))
    assert prices.more("stat") == Interval((190 + 725) / 2, 180.0, 750.0)


def test_two_contexts_of_one_size_give_no_line_between_sizes() -> None:
    """What remains where a machine was too slow for the large ones."""
    ours = [operation("write", 100.0, context=name, size=1.0) for name in ("/dev/null", "1 byte")]
    there = [operation("write", ns, context=each.context, size=1.0)
             for ns, each in zip((300.0, 500.0), ours, strict=True)]  # fmt: skip
    prices = PriceList.of(environment("uml", there, "native"), environment("native", ours))
    found = prices.more("write", 65536.0)
    assert found is not None and found.value == pytest.approx((200 + 400) / 2)
