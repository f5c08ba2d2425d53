"""The result of `vtax memory` on a terminal, as JSON, and as a page in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser
from syrupy.assertion import SnapshotAssertion

import memory_data
from browser_page import OVERLAPS, Visit
from vtax.core.page.render_html import write
from vtax.core.page.render_terminal import parts
from vtax.core.page.tables import plain
from vtax.memory import page as shown
from vtax.memory.page import page

HOSTILE = "</script><script>alert(1)</script>"


def test_the_terminal(snapshot: SnapshotAssertion) -> None:
    assert plain(*parts(page(memory_data.record()))) == snapshot


def test_the_contract() -> None:
    found = shown.to_json(memory_data.record())
    first, second, third = found["environments"]
    assert first["cliff"] == {"size": 1500, "low": 1500, "high": 1750}
    assert first["user_bytes"] == 24 * 1500**2
    assert third["cliff"] is None and third["user_bytes"] is None
    point = second["points"][-1]
    assert point["end"] == "oom" and point["n"] == 0 and point["median"] is None
    wanted = {"size", "n", "median", "low", "high", "unit", "swap_bytes", "major_faults", "end"}
    assert wanted <= point.keys()


def test_a_cap_below_the_need_and_failures_are_remarked() -> None:
    record = memory_data.record()
    first = record.environments[0]
    cliff = first.cliff.model_copy(update={"size": None}) if first.cliff else None
    point = first.points[0].model_copy(update={"failed": 2, "message": "it says why"})
    changed = first.model_copy(update={"cliff": cliff, "points": (point,)})
    said = shown.remarks(record.model_copy(update={"environments": (changed,)}))
    assert any("below the program's need at the smallest size" in text for text in said)
    assert any("2 runs failed: it says why" in text for text in said)


def test_what_is_not_known_is_not_drawn() -> None:
    """None of these machines says how long it waited for memory; one shows no image of its
    kernel."""
    figures = {figure.title: figure for figure in page(memory_data.record()).figures}
    assert "Waiting for memory" not in figures
    bars = {bar["name"]: bar["y"] for bar in figures["Kernel memory"].plot["data"]}
    assert bars["code"][0] == 14 and bars["code"][1] is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
def test_the_page(
    browser: Browser, tmp_path: Path, screenshots: Path, width: int, scheme: str
) -> None:
    specs = (*memory_data.SPECS[:2], f"qemu:{HOSTILE}")
    write(page(memory_data.record(specs)), tmp_path / "report.html")
    with Visit(browser, tmp_path / "report.html", scheme, width) as seen:
        assert seen.locator(".plot").count() == 10
        assert seen.locator(".plot .main-svg").count() >= 10
        assert seen.evaluate("document.documentElement.scrollWidth <= innerWidth")
        for plot in seen.locator(".plot").all():
            assert len(plot.get_attribute("aria-label") or "") > 40
        if width == 1280:
            assert seen.evaluate(OVERLAPS) == []
        seen.screenshot(path=screenshots / f"memory-{scheme}-{width}.png", full_page=True)
