"""What CI gets of a run against an earlier one, and the series of many runs, as users call them."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from syrupy.assertion import SnapshotAssertion

from command_line import one_line, vtax
from comparison_data import environment
from history_data import ARGV, changed, measured, saved
from vtax.compare.history import page
from vtax.compare.history.gate import Gate
from vtax.compare.history.junit import document
from vtax.compare.history.series import series
from vtax.core.commit import commit_of
from vtax.core.errors import MisuseError
from vtax.core.page import render_markdown
from vtax.core.page.page import Page
from vtax.core.page.render_terminal import parts
from vtax.core.page.tables import plain
from vtax.core.statistics.results import Verdict

STEADY = [1.0, 1.01, 0.99, 1.005, 0.995, 1.002, 0.998, 1.003]
HOSTILE = "a|b<script>*x*_y_`z`[l](http://e)&lt;\\\"'$m$~s~"
THEN = {
    ("native", "wall_s"): STEADY,
    ("native", "rate"): STEADY,
    ("native", "zero"): [0.0] * 8,
    ("native", "gone"): STEADY,
    ("uml", "wall_s"): STEADY,
}
NOW = {
    ("native", "wall_s"): [1.25 * each for each in STEADY],
    ("native", "rate"): [1.25 * each for each in STEADY],
    ("native", "zero"): [0.0] * 8,
    ("native", "new"): STEADY,
}
KINDS = {"slower": "failure", "not measured": "error", "not compared": "skipped"}


def fitted(text: str) -> dict[str, list[list[str]]]:
    """The rows of the tables in Markdown, by another reader of it than GitHub's."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline" and rows and token.level == 4:
            kinds = {child.type for child in token.children or ()}
            assert kinds <= {"text", "text_special"}, f"Markdown in {token.content!r}"
            rows[-1].append("".join(child.content for child in token.children or ()))
    return {"rows": rows}


def test_junit_has_a_case_for_each_environment_and_metric() -> None:
    found = changed(THEN, NOW, commit="abc")
    root = ElementTree.fromstring(document(found, "2026-01-01T00:00:00+00:00"))
    (suite,) = root
    cases = suite.findall("testcase")
    shown = {(case.get("classname"), case.get("name")): case[0] for case in cases}
    assert list(shown) == [(each.environment, each.metric) for each in found.changes]
    for each in found.changes:
        child = shown[each.environment, each.metric]
        assert child.tag == KINDS.get(each.verdict.value, "system-out")
        assert child.text == page.line(each, found)
        assert child.get("message") in (None, child.text)
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "6", "failures": "1", "errors": "1", "skipped": "3"}
    assert suite.get("timestamp") == "2026-01-01T00:00:00"
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties == {"against": "runs/old", "commit": "abc"}
    # The order that the schema of Jenkins asks for.
    assert [child.tag for child in suite] == ["properties", *["testcase"] * 6]


@settings(max_examples=60, deadline=None)
@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_any_name_is_well_formed_xml(label: str, metric: str) -> None:
    key = (label, metric)
    if key[0].endswith("#aa"):
        return
    found = changed({key: STEADY}, {key: [2 * each for each in STEADY]})
    root = ElementTree.fromstring(document(found, "2026-01-01T00:00:00+00:00"))
    (case,) = root.iter("testcase")
    assert case.find("failure") is not None


def test_names_keep_their_letters() -> None:
    key = (HOSTILE, HOSTILE)
    found = changed({key: STEADY}, {key: STEADY})
    (case,) = ElementTree.fromstring(document(found, "")).iter("testcase")
    assert case.get("classname") == case.get("name") == HOSTILE
    text = render_markdown.render(page.page(found))
    headings, row = fitted(text)["rows"]
    assert row[:2] == [HOSTILE, f"{HOSTILE} ↓"]
    assert len(row) == len(headings) == 6
    assert "<script" not in text


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="a |\\`*_[]()<>&;#$~!:/x1", min_size=1, max_size=12))
def test_any_name_is_text_in_a_cell(name: str) -> None:
    found = changed({("native", name): STEADY}, {("native", name): STEADY})
    _, row = fitted(render_markdown.render(page.page(found)))["rows"]
    assert row[1] == " ".join(f"{name} ↓".split())


def test_markdown_has_the_numbers_of_the_terminal(
    snapshot: SnapshotAssertion, tmp_path: Path
) -> None:
    found = changed(THEN, NOW, commit="abc", vtax_version="1")
    shown = plain(*parts(Page("against", (page.section(found),))))
    file = tmp_path / "m.md"
    Gate(None, None, None, file).write(page.page(found), found, "")
    _, *rows = fitted(file.read_text())["rows"]
    assert len(rows) == len(found.changes)
    for row in rows:
        assert all(cell in shown for cell in row)
    assert shown == snapshot(name="terminal")
    assert file.read_text() == snapshot(name="markdown")


def test_series_is_in_the_order_of_time_and_absent_stays_absent() -> None:
    def at(day: int, value: float, **fields: str) -> object:
        values = {("native", "wall_s"): [value, 1.1 * value, 0.9 * value]}
        if day > 1:
            values["uml:mem=1G,x", "wall_s"] = [2.0, 3.0]
        return measured(
            values, f"runs/{day}", started_utc=f"2026-01-0{day}T00:00:00+00:00", **fields
        )

    found = series([at(3, 4.0), at(1, 5.0, commit="a,b"), at(2, 6.0)])  # type: ignore[list-item]
    rows = list(csv.reader(io.StringIO(found.csv())))
    assert rows == [
        ["time", "commit", "native/wall_s", "uml:mem=1G,x/wall_s"],
        ["2026-01-01T00:00:00+00:00", "a,b", "5.0", ""],
        ["2026-01-02T00:00:00+00:00", "", "6.0", "2.5"],
        ["2026-01-03T00:00:00+00:00", "", "4.0", "2.5"],
    ]
    assert found.gaps == ["uml:mem=1G,x/wall_s"]


def test_series_of_different_things_are_refused() -> None:
    one = measured({("native", "wall_s"): STEADY}, "runs/a")
    other = ARGV | {"argv": ["./prog", "--size", "11"]}
    with pytest.raises(MisuseError, match="another command"):
        series([one, measured({("native", "wall_s"): STEADY}, "b", workload_parameters=other)])
    then, now = (measured({("native", "wall_s"): STEADY}, run) for run in ("runs/a", "runs/b"))
    samples = [dataclasses.replace(each, unit="ms") for each in now.samples]
    with pytest.raises(MisuseError, match="native/wall_s is in ms, lower is better, in runs/b"):
        series([then, dataclasses.replace(now, samples=samples)])
    own = (environment("native#aa", "control"),)
    found = series([measured({("native#aa", "wall_s"): STEADY}, environments=own)])
    assert found.columns == ()


def test_the_commit_is_gits_of_the_folder(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        line = ["git", "-C", str(tmp_path / "tree"), "-c", "user.name=x", "-c", "user.email=x@y"]
        done = subprocess.run([*line, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit() -> str | None:
        commit_of.cache_clear()
        return commit_of(tmp_path / "tree")

    assert commit() is None
    (tmp_path / "tree").mkdir()
    git("init", "--quiet")
    assert commit() is None
    (tmp_path / "tree" / "a").write_text("1")
    git("add", "a")
    git("commit", "--quiet", "--message", "one")
    git("tag", "v1", "-m", "a tag is no commit")
    assert commit() == git("rev-parse", "HEAD")
    (tmp_path / "tree" / "b").write_text("not tracked")
    assert commit() == git("rev-parse", "HEAD")
    (tmp_path / "tree" / "a").write_text("2")
    assert commit() == f"{git('rev-parse', 'HEAD')}-dirty"
    # What a repository names as a program is not started.
    git("config", "core.fsmonitor", f"touch {tmp_path}/started; false")
    commit()
    assert not (tmp_path / "started").exists()


def test_without_git_no_commit_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    commit_of.cache_clear()
    assert commit_of(Path()) is None
    commit_of.cache_clear()


def report(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return vtax("report", "runs/new", *words, cwd=tmp_path)


def test_exit_codes_of_two_finished_runs(tmp_path: Path) -> None:
    runs, key = tmp_path / "runs", ("native", "wall_s")
    worse = {key: [1.25 * each for each in STEADY]}
    saved(runs, "old", {key: STEADY})
    saved(runs, "new", worse)
    saved(runs, "gone", {**worse, ("native", "rate"): STEADY})
    assert report(tmp_path, "--against", "runs/old").returncode == 0
    # A name is that of a folder beside the run.
    done = report(tmp_path, "--against", "old", "--fail-over", "3%", "--junit", "j.xml", "--json")
    assert done.returncode == 3, done.stderr
    answer = json.loads(done.stdout)["against"]
    assert (answer["worse"], answer["is_whole"]) == (1, True)
    (change,) = answer["changes"]
    assert change["verdict"] == Verdict.SLOWER and change["percent"] == pytest.approx(80)
    (suite,) = ElementTree.parse(tmp_path / "j.xml").getroot()
    assert suite.get("failures") == "1"
    assert "1 of 1 metric worse" in (runs / "new/report.html").read_text()
    assert report(tmp_path, "--against", "old", "--fail-over", "30%").returncode == 0
    # What is missing is a failure, whatever else got worse.
    assert report(tmp_path, "--against", "gone", "--fail-over", "3%").returncode == 1
    done = report(tmp_path, "--against", "old", "--markdown", "-")
    assert done.returncode == 0 and done.stdout.startswith("## Against runs/old\n\n| environment |")
    done = report(tmp_path, "--markdown", "m.md")
    assert "| metric | native, median |" in (tmp_path / "m.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--fail-over", "3%"), "--fail-over needs --against"),
        (("--against", "old", "--junit", "j.xml"), "--junit needs --fail-over"),
        (("--against", "old", "--fail-over", "no"), "'no' is not a percentage"),
        (("--against", "older"), "there is no run folder older, nor runs/older"),
        (("--against", "new"), "is the same run"),
        (("--against", "other"), "measured another command"),
        (("--against", "old", "--markdown", "no/m.md"), "there is no folder no"),
        (("--markdown", "-", "--json"), "both print"),
    ],
)
def test_a_misuse_is_one_line(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    runs, values = tmp_path / "runs", {("native", "wall_s"): STEADY}
    saved(runs, "old", values)
    saved(runs, "new", values)
    saved(runs, "other", values, workload_parameters=ARGV | {"argv": ["./prog"]})
    assert message in one_line(report(tmp_path, *words), 2)


def test_a_comparison_is_held_against_an_earlier_one(tmp_path: Path) -> None:
    """A program that takes three times as long is found, and its commit is in the run folder."""
    script = tmp_path / "prog"
    base = ("compare", "-q", "--reps", "5", "--no-control", "--no-warm-up")
    outcomes = []
    for seconds, commit, held in (
        ("0.05", "one", ()),
        ("0.15", "two", ("--against", "first", "--fail-over", "20%", "--junit", "j.xml")),
        ("0.15", "two", ("--against", "first", "--fail-over", "20%", "--in", "uml")),
    ):
        script.write_text(f"#!/bin/sh\nsleep {seconds}\n")
        script.chmod(0o755)
        words = (*base, "--commit", commit, *held, "--", "./prog")
        outcomes.append(vtax(*words, cwd=tmp_path))
        (run,) = set((tmp_path / "runs").iterdir()) - {tmp_path / "runs" / "first"}
        if not held:
            run.rename(run.with_name("first"))
    assert [each.returncode for each in outcomes] == [0, 3, 2]
    assert "commit two, was one" in outcomes[1].stdout
    (suite,) = ElementTree.parse(tmp_path / "j.xml").getroot()
    failed = [
        case.get("name") for case in suite.findall("testcase") if case.find("failure") is not None
    ]
    assert "wall_s" in failed
    # Nothing was measured for what cannot be compared.
    assert "none of these environments" in one_line(outcomes[2], 2)
    spec = (run / "spec.yaml").read_text()
    assert "against" not in spec and "commit" not in spec


def test_a_sweep_is_held_against_nothing(tmp_path: Path) -> None:
    saved(tmp_path / "runs", "old", {("native", "wall_s"): STEADY})
    words = ("--param", "n=1,2", "--against", "old", "--", "echo", "{n}")
    assert "leave out --param" in one_line(vtax("compare", *words, cwd=tmp_path), 2)


def test_history_of_run_folders(tmp_path: Path) -> None:
    runs, key = tmp_path / "runs", ("native", "wall_s")
    for day in (1, 2):
        stamp = f"2026-01-0{day}T00:00:00+00:00"
        saved(runs, f"r{day}", {key: [day, day]}, started_utc=stamp, commit=f"c{day}")
    (runs / "empty").mkdir()
    folders = [f"runs/{name}" for name in ("r2", "empty", "r1")]
    done = vtax("history", *folders, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == (
        "time,commit,native/wall_s\n"
        "2026-01-01T00:00:00+00:00,c1,1.0\n"
        "2026-01-02T00:00:00+00:00,c2,2.0\n"
    )
    assert done.stderr.startswith("left out: runs/empty is not a run folder")
    again = vtax("history", *folders, "--out", "h.csv", cwd=tmp_path)
    assert again.returncode == 0 and (tmp_path / "h.csv").read_text() == done.stdout
    assert "none of these" in vtax("history", "runs/empty", cwd=tmp_path).stderr
