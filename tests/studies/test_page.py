"""The page of a study in a real browser without a network.

`VTAX_SCREENSHOTS=DIR` keeps the screenshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser

import study_data
from browser_page import OVERLAPS, Visit, covered_by_toolbars
from vtax.core.page.page import Figure, HeatCell, HeatMap
from vtax_studies.dav2m import STUDY
from vtax_studies.html import write_report
from vtax_studies.model import Claim, Outcome, StudyFigure, StudyTable, Verdict

HOSTILE = "</script><img src=x onerror=alert(1)>\u202e{{ 7 * 7 }}&amp;"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("study") / "report.html"
    write_report(STUDY, study_data.outcome(), path)
    yield path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
def test_all_figures_are_drawn_without_overlap(
    browser: Browser, page_file: Path, screenshots: Path, scheme: str, width: int
) -> None:
    outcome = study_data.outcome()
    with Visit(browser, page_file, scheme, width) as page:
        assert page.locator(".study-figure").count() == len(outcome.figures) == 12
        plots = page.locator(".plot")
        drawn = plots.count() + page.locator(".heat-map").count()
        assert drawn == sum(len(figure.panels) for figure in outcome.figures)
        assert page.locator(".plot .main-svg").count() >= plots.count()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate(OVERLAPS) == []
        page.screenshot(path=screenshots / f"study-{scheme}-{width}.png", full_page=True)


@pytest.mark.parametrize("width", [1280, 420])
def test_the_toolbar_covers_nothing(browser: Browser, page_file: Path, width: int) -> None:
    with Visit(browser, page_file, width=width) as page:
        assert covered_by_toolbars(page) == []


def test_figures_say_that_they_are_modelled_and_what_they_show(
    browser: Browser, page_file: Path
) -> None:
    with Visit(browser, page_file) as page:
        for heading in page.locator(".study-figure h2").all_text_contents():
            assert "(model)" in heading
        for plot in page.locator(".plot, .heat-map").all():
            spoken = plot.get_attribute("aria-label") or ""
            assert "model" in spoken.lower(), spoken
            assert len(spoken) > 40
        titles = page.locator(".plot .ytitle, .plot .xtitle").all_text_contents()
        cycles = [title for title in titles if "overhead" in title or "CPI" in title]
        assert cycles
        assert all("model" in title for title in cycles)


def test_claims_stand_with_their_reasons(browser: Browser, page_file: Path) -> None:
    claims = study_data.outcome().claims
    with Visit(browser, page_file) as page:
        rows = page.locator("#claims-table tbody tr")
        assert rows.count() == len(claims)
        for claim in claims:
            text = page.locator(f"#claim-{claim.name}").inner_text()
            assert claim.verdict.value in text
            assert "(fitted)" in text or claim.basis.value == "result"


def test_hostile_text_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    usual = study_data.outcome()
    plot = usual.figures[0].panels[0].plot
    panel = Figure(HOSTILE, HOSTILE, HOSTILE, plot)
    row = (HOSTILE, [HeatCell(HOSTILE, HOSTILE, 0.5)])
    heat = HeatMap(HOSTILE, HOSTILE, HOSTILE, [HOSTILE], [row], "modes", (HOSTILE, HOSTILE))
    outcome = Outcome(
        claims=[Claim("a", HOSTILE, HOSTILE, HOSTILE, HOSTILE, Verdict.FAILS, HOSTILE)],
        figures=[StudyFigure(HOSTILE, HOSTILE, HOSTILE, HOSTILE, [panel, heat])],
        tables=[StudyTable("t", HOSTILE, HOSTILE, [HOSTILE], [[HOSTILE]])],
        frames={},
        setup=[(HOSTILE, HOSTILE)],
        cautions=[HOSTILE],
    )
    path = tmp_path / "report.html"
    write_report(replace(STUDY, title=HOSTILE, paper=HOSTILE), outcome, path)
    with Visit(browser, path) as page:
        assert page.locator("img").count() == 0
        assert page.locator("h1").inner_text().startswith("</script><img src=x")
        assert "{{ 7 * 7 }}" in page.locator("h1").inner_text()
