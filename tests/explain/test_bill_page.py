"""The bill as a reader sees it: its sentence, its table, its figure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from priced_data import USER, price_list, used
from vtax.core.formats.bill import Bill, BillRecord, Site
from vtax.core.page import bill as sections
from vtax.core.page import render_markdown, render_terminal
from vtax.core.page.page import Figure
from vtax.explain.bill import Counted, bill
from vtax.explain.page import page, to_json
from vtax.explain.remedies import remedies

PRICES = price_list({
    "stat": (500.0, 12_500.0), "read": (300.0, 20_300.0), "fault_anonymous": (500.0, 20_500.0),
    "fault_huge": (60_000.0, 160_000.0), "fork": (60_000.0, 1_060_000.0),
    "vfork": (50_000.0, 650_000.0), **USER,
})  # fmt: skip
COUNTED = Counted({
    "calls.stat": (8000.0, 8000.0), "calls.read": (200.0, 200.0),
    "calls.read_bytes": (200.0 * 1000, 200.0 * 1000), "faults.anonymous": (1000.0, 1000.0),
    "calls.fork": (10.0, 10.0), "calls.fsync": (1.0, 1.0),
})  # fmt: skip


@pytest.fixture
def found() -> Bill:
    base = used(0.10, 0.11, 0.10)
    there = replace(used(0.26, 0.26, 0.27), guest_s={0: 0.24, 1: 0.25, 2: 0.25},
                    exits={0: 4512.0, 1: 4513.0, 2: 4514.0})  # fmt: skip
    own = bill("uml", "native", there, base, COUNTED, PRICES)
    return own.model_copy(update={"remedies": remedies(own, COUNTED, PRICES), "host_cpu_s": 0.4,
                                  "baseline_host_cpu_s": 0.1})  # fmt: skip


def record(*bills: Bill) -> BillRecord:
    return BillRecord(
        vtax_version="0.1.0", name="tar", counted_by="eBPF", counting_cost_percent=3.21,
        sites_note="call sites of 8,200 calls", counts=dict(COUNTED.runs), bills=bills,
    )  # fmt: skip


def test_terminal_and_markdown(
    found: Bill, snapshot: SnapshotAssertion, capsys: pytest.CaptureFixture[str]
) -> None:
    where = (Site(module="tar", function="walk\x1b[1m", count=6000, share=0.75),
             Site(module="libx.so", function="+0x12a", count=2000, share=0.25))  # fmt: skip
    lines = [line.model_copy(update={"sites": where if line.operation == "stat" else ()})
             for line in found.lines]  # fmt: skip
    found = found.model_copy(update={"lines": tuple(lines)})
    render_terminal.show(page(record(found)), width=110)
    assert capsys.readouterr().out == snapshot(name="terminal")
    assert render_markdown.render(page(record(found))) == snapshot(name="markdown")


def test_the_sentence_has_shares_of_the_difference(found: Bill) -> None:
    said = sections.sentence(found)
    # 8,000 stats of 12 us: 96 of 160 ms.
    assert said.startswith("uml takes 0.16") or said.startswith("uml takes 160")
    assert "system calls, most of it stat" in said and "unexplained" in said
    noise = found.model_copy(update={"difference_low": -0.1, "difference_high": 0.4})
    assert "may be nothing" in sections.sentence(noise)


def test_a_prediction_says_what_it_would_take() -> None:
    own = bill("uml", "native", None, used(0.10, 0.11), COUNTED, PRICES)
    said = sections.sentence(own)
    assert "would take" in said and "instead of" in said
    assert to_json(record(own))["bills"][0]["residual_s"] is None


def test_the_figure_ends_where_the_environment_does(found: Bill) -> None:
    figure = sections.waterfall(found)
    assert isinstance(figure, Figure)
    (bars,) = figure.plot["data"]
    assert bars["x"][0] == found.baseline_s
    assert bars["x"][-1] == pytest.approx(found.baseline_s + (found.difference_s or 0.0))
    for before, step, after in zip(
        bars["base"][1:-2], bars["x"][1:-2], bars["base"][2:-1], strict=True
    ):
        assert before + step == pytest.approx(after)
    assert len({len(bars[name]) for name in ("x", "y", "base")}) == 1


def test_names_are_escaped(found: Bill) -> None:
    figure = sections.waterfall(found.model_copy(update={"environment": "<b>uml"}))
    assert "<b>" not in str(figure.plot)


def test_remedies_are_worth_what_the_prices_say(found: Bill) -> None:
    gains = {each.operation: each for each in found.remedies}
    # 1,000 faults of 20 us more, or two huge ones of 100 us more.
    assert gains["anonymous fault"].gain_s == pytest.approx(
        (1000 * 20_000 - 1000 / 512 * 100_000) / 1e9
    )
    assert gains["stat"].at_most and gains["stat"].gain_s == pytest.approx(8000 * 12_000 / 1e9)
    assert not gains["anonymous fault"].at_most
    assert list(found.remedies) == sorted(found.remedies, key=lambda each: -each.gain_s)


def test_json_has_what_its_readers_were_promised(found: Bill) -> None:
    (own,) = to_json(record(found))["bills"]
    assert {"environment", "difference_s", "lines", "residual_s", "residual_low",
            "residual_high"} <= own.keys()  # fmt: skip
    for line in own["lines"]:
        assert {"operation", "count", "price_delta_ns", "seconds", "low", "high",
                "kind"} <= line.keys()  # fmt: skip
    total = sum(line["seconds"] or 0.0 for line in own["lines"])
    assert own["difference_s"] == pytest.approx(total + own["residual_s"])


def test_time_that_another_cpu_waits_for_is_no_gain(found: Bill) -> None:
    alone = {each.operation: each.gain_s for each in found.remedies}
    base = replace(used(0.10, 0.11, 0.10), cpu_s={0: 0.2, 1: 0.22, 2: 0.2})
    own = bill("uml", "native", used(0.26, 0.26, 0.27), base, COUNTED, PRICES)
    both = {each.operation: each.gain_s for each in remedies(own, COUNTED, PRICES)}
    assert both["stat"] == pytest.approx(alone["stat"] / 2)


def test_no_program_can_do_without_its_own_start() -> None:
    prices = price_list({"exec": (1e6, 6e6), "vfork": (0.0, 0.0), **USER})
    base, there = used(0.01, 0.01), used(0.03, 0.03)
    for count, gain in ((1.0, None), (4.0, 0.015)):
        counted = Counted({"sched.execs": (count, count)})
        own = bill("uml", "native", there, base, counted, prices)
        found = {each.operation: each.gain_s for each in remedies(own, counted, prices)}
        assert found.get("exec") == (None if gain is None else pytest.approx(gain))
