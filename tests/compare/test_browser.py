"""The page in a real browser without a network: figures drawn, no error, table sorts, both themes.

`VTAX_SCREENSHOTS=DIR` keeps the screenshots.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

import report_data
from browser_page import Visit, covered_by_toolbars
from report_data import write_report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(report_data.comparison(), report_data.samples(), path)
    return path


def _bars(page: Page) -> int:
    return page.locator("#ratios .bars .point path").count()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_figure_is_drawn(
    browser: Browser, report: Path, screenshots: Path, scheme: str, width: int
) -> None:
    with Visit(browser, report, scheme, width) as page:
        plots = page.locator(".plot")
        assert plots.count() == 9
        for index in range(plots.count()):
            assert plots.nth(index).locator(".main-svg").count() > 0
        assert _bars(page) == 80
        assert page.locator("#order-plot .scatterlayer .point").count() == 27
        titles = page.locator(".modebar-btn").evaluate_all("all => all.map(b => b.dataset.title)")
        assert set(titles) == {"Download plot"}, "none that sends a figure away"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.screenshot(path=screenshots / f"report-{scheme}-{width}.png", full_page=True)


def _brightness(page: Page, selector: str, attribute: str) -> float:
    colour = page.evaluate(
        "([s, a]) => getComputedStyle(document.querySelector(s))[a]", [selector, attribute]
    )
    channels = [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    return sum(channels) / 3


def test_figures_follow_the_theme(browser: Browser, report: Path) -> None:
    tick = "#ratios .xtick text"
    with Visit(browser, report, "light") as page:
        assert _brightness(page, "body", "backgroundColor") > 200
        assert _brightness(page, tick, "fill") < 100
        page.emulate_media(color_scheme="dark")
        page.wait_for_timeout(500)
        assert _brightness(page, "body", "backgroundColor") < 60
        assert _brightness(page, tick, "fill") > 180


def _column(page: Page, number: int) -> list[str]:
    cells = page.locator(f"#results-table tbody tr:not([hidden]) > :nth-child({number})")
    return [str(value) for value in cells.evaluate_all("all => all.map(c => c.dataset.sort)")]


def test_the_table_sorts_and_filters(browser: Browser, report: Path) -> None:
    with Visit(browser, report) as page:
        heading = page.locator("#results-table th", has_text="% of baseline")
        heading.locator("button").click()
        found = _column(page, 8)
        numbers = [float(value) for value in found if value]
        assert numbers == sorted(numbers)
        assert found[-1] == "", "what was not measured stays at the end"
        assert heading.get_attribute("aria-sort") == "ascending"
        heading.locator("button").click()
        assert [float(value) for value in _column(page, 8) if value] == numbers[::-1]
        page.locator("#results input[data-env='3']").uncheck()
        assert page.locator("#results-table tbody tr:not([hidden])").count() == 81
        page.wait_for_timeout(300)
        assert _bars(page) == 54, "the figure hides the same environment"


def test_scale_and_metric_can_be_chosen(browser: Browser, report: Path) -> None:
    with Visit(browser, report) as page:
        page.locator("input[name=scale][value=log]").check()
        page.wait_for_timeout(300)
        assert "30" in page.locator("#ratios .xtick text").all_text_contents()
        assert _bars(page) == 80
        page.locator("#order-metric").select_option(label="PTRANS_GBs (GB/s)")
        page.wait_for_timeout(300)
        assert "PTRANS_GBs" in (page.locator("#order-plot").get_attribute("aria-label") or "")
        page.locator("#only-differences").check()
        assert not page.locator("#facts-table tr.same").first.is_visible()
        assert page.locator("#facts-table tr.differs").first.is_visible()


def test_paper_is_light_even_from_a_dark_screen(
    browser: Browser, report: Path, screenshots: Path
) -> None:
    with Visit(browser, report, "dark") as page:
        document = page.pdf(format="A4", margin={"top": "12mm", "left": "12mm", "right": "12mm"})
        (screenshots / "report.pdf").write_bytes(document)
        assert document.startswith(b"%PDF")
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.classList.contains('printing')") is False


def test_hostile_text_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "hostile.html"
    write_report(*report_data.hostile(), path)
    with Visit(browser, path) as page:
        assert page.locator("img").count() == 0
        assert page.locator("h1").inner_text().startswith("</script><img src=x")
        assert "<img src=x" in page.locator("#ratios .annotation-text").first.inner_html().replace(
            "&lt;", "<"
        )
        assert _bars(page) > 0


@pytest.mark.parametrize("width", [1280, 420])
def test_the_toolbar_covers_nothing(browser: Browser, report: Path, width: int) -> None:
    with Visit(browser, report, width=width) as page:
        assert covered_by_toolbars(page) == []
