"""The study of HPC Challenge: claims, tables and figures on made-up runs; the real thing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Browser
from syrupy.assertion import SnapshotAssertion

import hpcc_data
from browser_page import OVERLAPS, Visit
from command_line import vtax
from recording import obstacle
from vtax.core.page.tables import plain
from vtax_studies.driver import made
from vtax_studies.files import write
from vtax_studies.hpcc import STUDY
from vtax_studies.hpcc.claims import RULES
from vtax_studies.hpcc.data import Data
from vtax_studies.hpcc.setup import (
    CPU,
    FIGURES,
    LARGE_TABLE,
    NATIVE,
    STATED,
    TABLE,
    TCG,
    UML,
    WALL,
)
from vtax_studies.html import write_report
from vtax_studies.model import Basis, Claim, Outcome, StudyOptions, Verdict
from vtax_studies.rule import judge
from vtax_studies.table import parts


@pytest.fixture(scope="module")
def data() -> Data:
    return hpcc_data.data()


@pytest.fixture(scope="module")
def outcome(data: Data) -> Outcome:
    return made(STUDY, data, StudyOptions(), hpcc_data.MACHINE)


def verdicts(data: Data) -> dict[str, Verdict]:
    return {name: claim.verdict for name, claim in claims(data).items()}


def claims(data: Data) -> dict[str, Claim]:
    return {claim.name: claim for claim in judge(RULES, data, real=data.without_emulation())}


def test_claims_as_printed(outcome: Outcome, snapshot: SnapshotAssertion) -> None:
    assert plain(*parts(STUDY, outcome), width=110) == snapshot


def test_tables(outcome: Outcome, snapshot: SnapshotAssertion) -> None:
    assert {table.name: table.rows for table in outcome.tables} == snapshot


def test_verdicts_follow_the_data(data: Data) -> None:
    found = verdicts(data)
    for name in (
        "cpu-wall-native-small", "cpu-wall-native-large", "cpu-wall-guests-small",
        "inversion-likelier", "inversion-largest", "inversion-guests-beyond",
        "order-native", "order-guests",
    ):  # fmt: skip
        assert found[name] is Verdict.HOLDS, name
    assert found["random-access-loss"] is Verdict.SUBSTITUTE
    # Only the emulated guest exchanged messages.
    for name in ("random-access-loss-messages", "latency-higher"):
        assert found[name] is Verdict.SUBSTITUTE, name
        assert found[f"{name.removesuffix('-messages')}-between"] is Verdict.HOLDS, name
        none = verdicts(replace(data, messages=()))
        assert none[name] is none[f"{name.removesuffix('-messages')}-between"] is Verdict.UNKNOWN
    # Made so: 20 % and not 50; emulation at 1 % of native.
    for name in ("order-smallest", "hpl-little"):
        assert found[name] is Verdict.FAILS, name
    # No native run was inverted, so the cause cannot be judged.
    assert found["inversion-native-steps"] is Verdict.UNKNOWN


def test_other_data_turn_the_verdicts() -> None:
    quiet = hpcc_data.data({NATIVE: 0.2, UML: 0.0, TCG: 0.0}, inverted=0.0)
    found = verdicts(quiet)
    for name in ("order-native", "order-guests", "inversion-largest"):
        assert found[name] is Verdict.FAILS, name
    # There are none: the intervals of both leave "many-fold" open.
    assert found["inversion-likelier"] is Verdict.UNKNOWN
    large = hpcc_data.data({NATIVE: 0.0, UML: 0.8, TCG: 0.0})
    assert verdicts(large)["order-smallest"] is Verdict.HOLDS


def test_what_the_emulated_guest_alone_decides_is_said() -> None:
    # Made so: user-mode Linux has HPL at 97 % of native, emulation at 1 %.
    found = claims(hpcc_data.data(dict.fromkeys((NATIVE, UML, TCG), 0.0)))
    little = found["hpl-little"]
    assert (little.verdict, little.basis) == (Verdict.FAILS, Basis.EMULATION)
    assert little.reason.endswith("Without what is emulated it holds.")
    # MPIRandomAccess: 50 and 5 % of native; only emulation loses as much as the paper's guest.
    loss = found["random-access-loss"]
    assert (loss.verdict, loss.basis) == (Verdict.SUBSTITUTE, Basis.EMULATION)
    # Inversions occur natively, and in user-mode Linux by far more than the clocks' steps.
    assert found["cpu-wall-native-large"].basis is Basis.RESULT
    assert found["inversion-largest"].basis is Basis.RESULT


def test_without_an_emulated_guest_nothing_rests_on_it(data: Data) -> None:
    real = data.without_emulation()
    assert real is not None and real.guests() == [UML] and real.without_emulation() is None
    assert {claim.basis for claim in claims(real).values()} == {Basis.RESULT}


def test_a_coarse_clock_supports_nothing(data: Data) -> None:
    """User-mode Linux counts CPU time by a tick that is longer than any run."""
    tick = max(each.values[WALL] for each in data.observations[UML]) * 2
    ticking = {
        UML: [
            replace(each, values={**each.values, CPU: 0.0 if number % 3 else tick})
            for number, each in enumerate(data.observations[UML])
        ]
    }
    places = {**data.places, UML: replace(data.places[UML], steps_s=tick)}
    coarse = replace(
        data, places=places, observations={**data.observations, **ticking}
    ).without_emulation()
    assert coarse is not None
    found = claims(coarse)
    largest = found["inversion-largest"]
    assert (largest.verdict, largest.basis) == (Verdict.SUBSTITUTE, Basis.CLOCK_STEP)
    for name in ("cpu-wall-guests-small", "cpu-wall-guests-closer"):
        assert found[name].verdict is Verdict.UNKNOWN, name
        assert f"Within the clocks' steps: {UML}." in found[name].reason


def test_clocks_that_agree_within_a_fine_step_agree(data: Data) -> None:
    """A difference below the step is still known to be below 1 %."""
    places = {**data.places, NATIVE: replace(data.places[NATIVE], steps_s=1e-3)}
    large = [each for each in data.observations[NATIVE] if each.values[TABLE] >= LARGE_TABLE]
    assert 100 * 1e-3 / large[0].values[WALL] == pytest.approx(0.24, abs=0.01)
    found = claims(replace(data, places=places))["cpu-wall-native-large"]
    assert found.verdict is Verdict.HOLDS


def test_small_tables_alone_do_not_judge_large_ones(data: Data) -> None:
    less = {
        name: [each for each in own if each.size < 2048] for name, own in data.observations.items()
    }
    found = verdicts(replace(data, observations=less))
    assert found["cpu-wall-native-large"] is Verdict.UNKNOWN


def test_without_guests_nothing_is_said_of_them(data: Data) -> None:
    alone = {name: own if name == NATIVE else [] for name, own in data.observations.items()}
    found = made(STUDY, replace(data, observations=alone), StudyOptions(), hpcc_data.MACHINE)
    unknown = {claim.name for claim in found.claims if claim.verdict is Verdict.UNKNOWN}
    assert unknown >= {"order-guests", "hpl-little", "random-access-loss", "inversion-likelier"}
    assert [figure.number for figure in found.figures] == ["1", "2", "updates"]


def test_figures_stand_beside_what_the_paper_says(outcome: Outcome) -> None:
    assert [figure.number for figure in outcome.figures] == list(FIGURES)
    assert [figure.paper for figure in outcome.figures] == list(STATED.values())
    assert f"QEMU, KVM is left out: {hpcc_data.NO_KVM}" in outcome.cautions


@pytest.mark.parametrize("figure", FIGURES)
def test_one_figure(data: Data, figure: str) -> None:
    found = made(STUDY, data, StudyOptions(figure=figure), hpcc_data.MACHINE)
    assert [drawn.number for drawn in found.figures] == [figure]


def test_files(outcome: Outcome, data: Data, tmp_path: Path) -> None:
    write(STUDY, outcome, tmp_path)
    runs = pl.read_parquet(tmp_path / "runs.parquet")
    assert runs.height == sum(map(len, data.observations.values()))
    assert {"environment", "order", "HPL_time", "random_access_cpu_s"} <= set(runs.columns)
    assert "Found (measured)" in (tmp_path / "claims.md").read_text("utf-8")


@pytest.mark.parametrize("width", [1280, 420])
def test_the_page(
    browser: Browser, outcome: Outcome, tmp_path: Path, screenshots: Path, width: int
) -> None:
    write_report(STUDY, outcome, tmp_path / "report.html")
    with Visit(browser, tmp_path / "report.html", "light", width) as page:
        assert page.locator(".study-figure").count() == len(FIGURES)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if width > 1000:
            assert page.evaluate(OVERLAPS) == []
        page.screenshot(path=screenshots / f"hpcc-{width}.png", full_page=True)


needs_hpcc = pytest.mark.skipif(shutil.which("hpcc") is None, reason="hpcc is not installed")


@pytest.mark.slow
def test_updates_are_counted_alone(tmp_path: Path) -> None:
    line = ("study", "hpcc", "--quick", "--figure", "updates", "--json", "--out", "out")
    if reason := obstacle():
        pytest.skip(reason)
    done = vtax(*line, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    (table,) = (each for each in content["tables"] if each["name"] == "updates")
    rows = {row[1]: float(row[2].replace("\N{MINUS SIGN}", "-")) for row in table["rows"]}
    # The table is touched in both runs, so that its page faults cancel out.
    assert abs(rows.get("faults.user", 0.0)) < 1e-3
    assert rows["irq.timer"] >= 0


@pytest.mark.slow
@pytest.mark.long
@needs_hpcc
def test_the_whole_study_quickly(tmp_path: Path) -> None:
    done = vtax("study", "hpcc", "--quick", "--json", "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert {claim["name"] for claim in content["claims"]} == {rule.name for rule in RULES}
    runs = pl.read_parquet(tmp_path / "out" / "runs.parquet")
    assert NATIVE in set(runs["environment"])
    # Every size has both clocks of MPIRandomAccess, in every environment that came up.
    assert runs["random_access_wall_s"].min() > 0  # type: ignore[operator]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@needs_hpcc
def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "vtax.main", "study", "hpcc", "--quick", "--quiet"]
    line += ["--figure", "1"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(line, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as running:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("vtax-order-*/*/r0-*")) and time.monotonic() < deadline:
            time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        running.wait(30)
    assert running.returncode in (130, -signal.SIGINT)
    assert list(tmp_path.iterdir()) == []
