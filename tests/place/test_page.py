"""The result of `vtax place measure` on a terminal, as JSON, and as a page in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser
from syrupy.assertion import SnapshotAssertion

import place_data
import place_report_data
from browser_page import OVERLAPS, Visit
from vtax.core.page.render_html import write
from vtax.core.page.render_terminal import parts
from vtax.core.page.tables import plain
from vtax.place import page as shown
from vtax.place.page import page
from vtax.place.record import PlaceRecord

HOSTILE = "</script><script>alert(1)</script>"


def test_the_terminal(snapshot: SnapshotAssertion) -> None:
    assert plain(*parts(page(place_report_data.record()))) == snapshot


def test_what_was_cut_short(snapshot: SnapshotAssertion) -> None:
    record = place_report_data.record().model_copy(
        update={
            "state": "interrupted",
            "loads": (),
            "hypothesis": None,
            "rivals": (),
            "findings": (),
        }
    )
    assert plain(*parts(page(record))) == snapshot


def test_a_hypothesis_that_is_answered_is_a_table() -> None:
    text = plain(*parts(page(place_data.record())))
    (row,) = [line for line in text.splitlines() if line.startswith("combined usage")]
    assert "supported" in row and "more combined usage goes with less sensitivity" in row
    assert "is not known" not in text


def test_the_contract() -> None:
    found = shown.to_json(place_report_data.record())
    assert {"backends", "loads", "hypothesis"} <= found.keys()
    first = found["loads"][0]
    assert {"environment", "load", "points", "elasticity", "low", "high"} <= first.keys()
    assert {
        "speed_asked_percent", "speed_obtained_percent", "backend", "relative_percent", "low",
        "high", "service_cpu_percent", "device_percent", "combined_usage_percent",
    } <= first["points"][0].keys()  # fmt: skip
    assert {"rank_correlation", "low", "high", "n"} <= found["hypothesis"].keys()
    assert found["hypothesis"]["rank_correlation"] is None, "three loads answer nothing"


def test_what_is_kept_apart_is_not_drawn() -> None:
    figures = {each.title: each for each in page(place_report_data.record()).figures}
    drawn = figures["Sensitivity of loads: uml:net=vde"].plot["data"]
    points = {each["name"]: len(each["x"]) for each in drawn}
    assert points["udp, hog"] == 4 and points["udp, quota"] == points["tcp, hog"] == 5
    assert not any("net=tap" in title for title in figures), "it has full speed alone"


def test_an_interval_that_is_too_long_does_not_flatten_the_figure() -> None:
    record = place_report_data.record()
    first = record.loads[0]
    wild = first.points[1].model_copy(update={"high": 1e5})
    changed = first.model_copy(update={"points": (first.points[0], wild, *first.points[2:])})
    drawn = page(record.model_copy(update={"loads": (changed, *record.loads[1:])})).figures[0]
    assert drawn.plot["layout"]["yaxis"]["range"][1] < 130


def hostile(record: PlaceRecord) -> PlaceRecord:
    """The record with foreign text wherever some may be."""
    last = record.loads[2].model_copy(update={"load": HOSTILE})
    where = record.environments[0].model_copy(update={"service": (HOSTILE,), "notes": (HOSTILE,)})
    return record.model_copy(
        update={
            "loads": (*record.loads[:2], last, record.loads[3]),
            "environments": (where, record.environments[1]),
            "failures": (HOSTILE,),
            "does_not": {"hog": HOSTILE},
        }
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
def test_the_page(
    browser: Browser, tmp_path: Path, screenshots: Path, width: int, scheme: str
) -> None:
    write(page(hostile(place_report_data.record())), tmp_path / "report.html")
    with Visit(browser, tmp_path / "report.html", scheme, width) as seen:
        assert seen.locator(".plot").count() == 1 + 3 + 3
        assert seen.locator(".plot .main-svg").count() >= 7
        assert seen.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for plot in seen.locator(".plot").all():
            assert len(plot.get_attribute("aria-label") or "") > 10
        if width == 1280:
            assert seen.evaluate(OVERLAPS) == []
        seen.screenshot(path=screenshots / f"place-{scheme}-{width}.png", full_page=True)
