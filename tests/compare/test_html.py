"""The page as text: what it says, what it escapes and how it is written."""

from __future__ import annotations

import base64
import hashlib
import html as markup
import json
import re
import stat
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

import report_data
from command_line import SOURCE
from report_data import render, write_report
from vtax.compare.explain import EXPLANATIONS
from vtax.compare.order_figures import order_figures
from vtax.compare.ratio_figures import deviation_percent, ratio_figures
from vtax.compare.trust import HARMLESS, RANKED
from vtax.core.errors import VtaxError
from vtax.core.statistics.results import Flag, Verdict


class _Page(HTMLParser):
    """The text of the page's sections, and every element and script in it."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.section = ""
        self.texts: dict[str, list[str]] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.open = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open = tag
        self.tags.append((tag, dict(attrs)))
        if tag == "section":
            self.section = dict(attrs)["id"] or ""

    def handle_endtag(self, tag: str) -> None:
        self.open = ""

    def handle_data(self, data: str) -> None:
        if self.open == "script":
            self.scripts.append(data)
        elif data.strip():
            self.texts.setdefault(self.section, []).append(" ".join(data.split()))

    def text(self, section: str) -> str:
        return "\n".join(self.texts[section])


@pytest.fixture(scope="module")
def page() -> _Page:
    return _Page(render(report_data.comparison(), report_data.samples()))


@pytest.mark.parametrize("section", ["answer", "trust", "method"])
def test_key_text(page: _Page, section: str, snapshot: SnapshotAssertion) -> None:
    assert page.text(section) == snapshot


def test_the_answer_stands_before_the_figure_and_warnings_behind_it(page: _Page) -> None:
    assert list(page.texts)[1:5] == ["answer", "ratios", "trust", "order"]


def test_a_report_is_small() -> None:
    source = render(report_data.comparison(), report_data.samples())
    assert len(source.encode()) < 1_500_000


def test_warnings_that_could_change_the_answer_come_first_and_others_are_folded() -> None:
    flags = [
        Flag("native", None, kind, f"{kind}.")
        for kind in ("fits-cache", "steal-unknown", "brand-new", "timer-inversion")
    ]
    shown = _Page(render(replace(report_data.comparison(), flags=tuple(flags)), ()))
    kinds = [attrs["data-kind"] for tag, attrs in shown.tags if attrs.get("class") == "flag"]
    assert kinds == ["timer-inversion", "steal-unknown", "brand-new", "fits-cache"]
    assert "1 more warning that cannot change a verdict" in shown.text("trust")


def test_every_kind_of_flag_is_ranked() -> None:
    assert set(RANKED) | HARMLESS == set(EXPLANATIONS)


def test_every_result_has_a_row(page: _Page) -> None:
    rows = [attrs for tag, attrs in page.tags if tag == "tr" and "data-env" in attrs]
    assert len(rows) == len(report_data.results())


def test_differences_stand_beside_the_figure(page: _Page) -> None:
    for environment in report_data.environments():
        for sentence in environment.differences:
            assert sentence in page.text("ratios")


def test_only_the_two_scripts_of_the_page_may_run_and_nothing_may_load(page: _Page) -> None:
    policy = next(
        attrs["content"] or ""
        for tag, attrs in page.tags
        if tag == "meta" and attrs.get("http-equiv") == "Content-Security-Policy"
    )
    allowed = re.findall(r"'sha256-([^']+)'", policy)
    runnable = [text for text in page.scripts if not text.startswith("{")]
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in runnable]
    assert sorted(hashes) == sorted(allowed)
    assert len(hashes) == 2
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy


def test_nothing_on_the_page_refers_outside(page: _Page) -> None:
    for _, attrs in page.tags:
        for name in ("src", "href", "action", "srcset"):
            target = attrs.get(name)
            assert target is None or target.startswith(("#", "data:,")), (name, target)


def test_hostile_text_stays_text() -> None:
    comparison, samples = report_data.hostile()
    source = render(comparison, samples)
    hostile = _Page(source)
    tame = _Page(render(report_data.comparison(), report_data.samples()))
    assert "<img" not in source.replace(tame.scripts[1], "")
    assert {tag for tag, _ in hostile.tags} == {tag for tag, _ in tame.tags}
    assert len(hostile.scripts) == 3
    assert not [attrs for _, attrs in hostile.tags if any(name[:2] == "on" for name in attrs)]
    assert "\x1b" not in source
    data = hostile.scripts[0]
    assert not set("<>&\u2028") & set(data)
    label = json.loads(data)["ratio"][0]["data"][0]["name"]
    assert markup.unescape(label).startswith("</script><img src=x onerror=alert(1)>")
    assert "<" not in label


def test_numbers_that_are_none_are_drawn_nowhere() -> None:
    results = tuple(
        replace(r, percent_of_baseline=float("nan"), ci_high=float("inf"))
        for r in report_data.results()
    )
    source = render(replace(report_data.comparison(), results=results), ())
    data = _Page(source).scripts[0]
    assert "NaN" not in data
    assert "Infinity" not in data


def test_what_was_not_measured_has_its_reason_and_no_bar(page: _Page) -> None:
    assert "1 of 7 repetitions failed: hpcc: HPL residual" in page.text("results")
    plots = [figure.plot for figure in ratio_figures(report_data.comparison())]
    bars = [trace for plot in plots for trace in plot["data"] if trace["type"] == "bar"]
    measured = [
        result
        for result in report_data.results()
        if result.verdict not in (Verdict.BASELINE, Verdict.NOT_MEASURED)
    ]
    assert sum(len(bar["x"]) for bar in bars) == len(measured)


def test_the_deviation_is_the_same_share_of_the_value() -> None:
    result = next(r for r in report_data.results() if r.environment == report_data.UML)
    assert result.stdev is not None
    assert result.median is not None
    assert result.percent_of_baseline is not None
    share = result.stdev / result.median
    assert deviation_percent(result) == pytest.approx(share * result.percent_of_baseline)
    assert deviation_percent(replace(result, stdev=None)) is None


def test_every_sample_is_a_dot_and_every_failure_a_cross() -> None:
    figures = order_figures(report_data.comparison(), report_data.samples())
    dots = sum(
        len(trace["x"])
        for figure in figures
        for trace in figure.plot["data"]
        if trace["mode"] == "lines+markers"
    )
    assert dots == len(report_data.samples())
    crosses = [n for n in figures[0].plot["layout"]["annotations"] if n["text"] == "✕"]
    assert [cross["x"] for cross in crosses] == [report_data.order().index(report_data.FAILED)]


@pytest.mark.parametrize("state", ["running", "interrupted", "budget", "failed"])
def test_a_run_cut_short_says_so(state: str) -> None:
    source = render(report_data.comparison(state=state), report_data.samples())
    assert "Not a complete run." in source


def test_without_anything_the_page_says_what_is_missing() -> None:
    bare = replace(
        report_data.comparison(environments=(), order=(), failures=()), results=(), flags=()
    )
    text = _Page(render(bare, ()))
    assert "No environment was compared" in text.text("answer")
    assert "has no A/A control" in text.text("trust")
    assert "Not drawn: this run has no samples." in text.text("order")


def test_the_page_replaces_an_older_one_and_obeys_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    write_report(report_data.comparison(), report_data.samples(), path)
    assert path.read_text("utf-8").startswith("<!DOCTYPE html>")
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["plain", "report.html"]


def test_a_page_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "report.html"
    with pytest.raises(VtaxError, match=r"cannot write .*report\.html: No such file"):
        write_report(report_data.comparison(), (), path)
    folder = tmp_path / "report.html"
    folder.mkdir()
    with pytest.raises(VtaxError, match="cannot write"):
        write_report(report_data.comparison(), (), folder)
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_a_page_for_the_web_is_loaded_only_when_one_is_written() -> None:
    code = (
        "import sys, vtax.compare.html, vtax.compare.ratio_figures\n"
        "import vtax.compare.summary\n"
        "print([n for n in ('jinja2', 'plotly', 'rich') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(SOURCE)},
    )
    assert done.stdout.strip() == "[]"
