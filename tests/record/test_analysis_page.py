"""The pages of correlate and timeline in a real browser without a network.

`VTAX_SCREENSHOTS=DIR` keeps the screenshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import recording_data
from browser_page import Visit, covered_by_toolbars
from vtax.record.correlate.verb import correlate
from vtax.record.timeline.verb import timeline

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    parent = tmp_path_factory.mktemp("pages")
    runs = recording_data.campaign(parent)
    lab, native = ([str(path) for path in runs[kind]] for kind in ("lab", "native"))
    correlate(runs=lab, against=native, out=parent)
    labelled = [f"lab={path}" for path in lab] + [f"native {HOSTILE}={path}" for path in native]
    timeline(runs=labelled, event="kvm.exits,hw.dtlb_load_misses", out=parent)
    yield parent


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize(("name", "plots", "maps"), [("correlation", 0, 3), ("timeline", 2, 0)])
def test_all_figures_are_drawn(
    browser: Browser,
    pages: Path,
    screenshots: Path,
    name: str,
    plots: int,
    maps: int,
    width: int,
    scheme: str,
) -> None:
    with Visit(browser, pages / f"{name}.html", scheme, width) as page:
        assert page.locator(".plot").count() == plots
        assert page.locator(".plot .main-svg").count() >= plots
        assert page.locator(".heat-map").count() == maps
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("img").count() == 0
        for plot in page.locator(".plot, .heat-map").all():
            assert len(plot.get_attribute("aria-label") or "") > 40
        page.screenshot(path=screenshots / f"{name}-{scheme}-{width}.png", full_page=True)


@pytest.mark.parametrize("width", [1280, 420])
def test_the_toolbar_covers_nothing(browser: Browser, pages: Path, width: int) -> None:
    with Visit(browser, pages / "timeline.html", width=width) as page:
        assert covered_by_toolbars(page) == []


def test_heat_map_has_a_cell_for_each_pair_and_numbers(browser: Browser, pages: Path) -> None:
    with Visit(browser, pages / "correlation.html") as page:
        first = page.locator(".heat-map").first
        numbers = first.locator("td[title]").all_text_contents()
        events = 6
        assert len([text for text in numbers if text]) == events * (events - 1) // 2


CONTRAST = """() => {
  const light = (text) => {
    const parts = text.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const whole = text.startsWith("color(") ? parts : parts.map((each) => each / 255);
    const [r, g, b] = whole.map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  return [...document.querySelectorAll(".heat-map td[title]")].map((cell) => {
    const style = getComputedStyle(cell);
    const [a, b] = [light(style.color), light(style.backgroundColor)];
    return Math.max(a, b) / Math.min(a, b);
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_stand_out_from_their_colours(browser: Browser, pages: Path, scheme: str) -> None:
    with Visit(browser, pages / "correlation.html", scheme) as page:
        assert min(page.evaluate(CONTRAST)) >= 4
        ground = (
            "cells => new Set(cells.map((each) => getComputedStyle(each).backgroundColor)).size"
        )
        assert page.locator(".heat-map td[title]:not(.low, .high)").evaluate_all(ground) == 1
        assert page.locator(".heat-map td[title]").evaluate_all(ground) > 4


def test_timeline_draws_each_label_with_its_range(browser: Browser, pages: Path) -> None:
    with Visit(browser, pages / "timeline.html") as page:
        first = page.locator(".plot").first
        assert first.locator(".scatterlayer .trace").count() == 2 * 3
        assert first.locator(".legendtext").all_text_contents()[0] == "lab"
