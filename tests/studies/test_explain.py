"""The study of `vtax explain`: its numbers against other computations, its claims on made-up bills,
its programs, and the real thing."""

from __future__ import annotations

import math
import random
import shutil
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser

from browser_page import OVERLAPS, Visit
from priced_data import USER, environment, operation, used
from vtax.core.errors import MisuseError
from vtax.core.formats.bill import Bill
from vtax.explain.bill import Counted, bill
from vtax.explain.operations import OPERATIONS
from vtax.prices.analysis import Interval, PriceList
from vtax_studies.driver import made, measured
from vtax_studies.explain import STUDY, data, inputs
from vtax_studies.explain.claims import RULES
from vtax_studies.explain.data import Data, Run
from vtax_studies.explain.measure import selected
from vtax_studies.explain.programs import (
    CHANGES,
    LOOPS,
    NOTHING,
    PRICE,
    PROGRAMS,
    priced,
)
from vtax_studies.explain.setup import ENOUGH, FULL, PRICE_CHANGES, QUICK, SAME, TCG, UML
from vtax_studies.files import to_json, to_markdown, write
from vtax_studies.html import write_report
from vtax_studies.model import Basis, Claim, StudyOptions, Verdict
from vtax_studies.rule import judge

_HERE = [operation("null", *[100.0] * 3), operation("stat", *[500.0] * 3),
         *(operation(name, ours) for name, (ours, _) in USER.items())]  # fmt: skip
_THERE = [operation("null", *[1100.0] * 3), operation("stat", 20_300.0, 20_500.0, 20_700.0),
          *_HERE[2:]]  # fmt: skip
PRICES = PriceList.of(environment("there", _THERE, "native"), environment("native", _HERE))
"""Differences: 1 and 20 us, the latter ±1 %; an empty call is 11 times the native one."""
NULLS = 500
NATIVE_S = 0.05
NOISE = (-2e-4, 0.0, 2e-4)


def a_bill(stats: float, error: float = 0.0, spec: str = UML, rest_s: float = 0.0) -> Bill:
    """The bill of a program that makes `stats` calls of stat and 500 empty ones; it takes what they
    cost and `rest_s`, times (1 + error)."""
    there_s = (NATIVE_S + 2e-5 * stats + 1e-6 * NULLS + rest_s) * (1.0 + error)
    base = used(*[NATIVE_S] * 3)
    found = used(*[there_s + each for each in NOISE])
    return bill(spec, "native", found, base, counted(stats), PRICES)


def counted(stats: float) -> Counted:
    return Counted({"calls.stat": (stats, stats), "calls.null": (NULLS, NULLS)})


def a_run(*bills: Bill) -> Run:
    return Run(
        {each.environment: each for each in bills},
        {"native": used(*[NATIVE_S] * 3, user_s=0.03)},
        {each.environment: PRICES for each in bills},
    )


def made_up(error: float = 0.0, count: int = ENOUGH, emulated: float | None = None) -> Data:
    """N programs with this error, loops that are right, A/A bills that cover zero."""
    same = a_bill(0.0, spec=SAME)
    runs = {}
    for number, program in enumerate(PROGRAMS[:count]):
        bills = [a_bill(1000.0 * (number + 1), error)]
        if emulated is not None:
            bills.append(a_bill(1000.0 * (number + 1), emulated, TCG))
        runs[program.name] = a_run(*bills, same)
    stat = next(each for each in LOOPS if each.name == "stat")
    runs[NOTHING.program().name] = a_run(a_bill(10.0), same)
    runs[stat.program().name] = a_run(a_bill(20_010.0), same)
    before, after = CHANGES[2].programs()
    runs[before.name], runs[after.name] = a_run(a_bill(9000.0)), a_run(a_bill(1000.0))
    return Data(runs, left_out={"redis": "redis-server is not installed"})


def claims(found: Data) -> Mapping[str, Claim]:
    return {each.name: each for each in judge(RULES, found, real=found.without_emulation())}


@given(st.lists(st.floats(0.0, 100.0), min_size=2, max_size=60))
def test_quantiles_of_errors(values: list[float]) -> None:
    found = data.errors(values)
    assert found is not None
    assert found.median == pytest.approx(statistics.median(values))
    deciles = statistics.quantiles(values, n=10, method="inclusive")
    assert found.ninetieth == pytest.approx(deciles[8])
    assert (found.n, found.maximum) == (len(values), max(values))


def test_the_error_is_relative_to_what_was_measured() -> None:
    assert data.error(1.5, 1.0) == pytest.approx(0.5)
    assert data.error(1.0, 1.5) == pytest.approx(1 / 3)


@given(st.floats(-2.0, 2.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.01, 3.0))
def test_the_share_explained_lies_between_those_of_all_residuals_in_the_interval(
    residual: float, below: float, above: float, difference: float
) -> None:
    own = a_bill(1000.0).model_copy(update={
        "difference_s": difference, "difference_low": 0.9 * difference, "residual_s": residual,
        "residual_low": residual - below, "residual_high": residual + above,
    })  # fmt: skip
    found = data.explained(own)
    assert found is not None
    steps = [residual - below + (below + above) * step / 200 for step in range(201)]
    shares = [1.0 - abs(each) / difference for each in steps]
    assert found.value == pytest.approx(1.0 - abs(residual) / difference)
    assert found.low == pytest.approx(min(shares))
    finest = (below + above) / 200 / difference
    assert max(shares) - 1e-9 <= found.high <= max(shares) + finest + 1e-9


def test_where_there_is_no_tax_nothing_is_explained() -> None:
    own = a_bill(0.0, rest_s=-1e-6 * NULLS)
    assert own.difference_low is not None and own.difference_low < 0.0
    assert data.explained(own) is None


def test_rivals_by_hand() -> None:
    run = a_run(a_bill(1000.0))
    own, native = run.bills[UML], run.native["native"]
    # 50 ms, of which 20 ms are system time; an empty call takes 11 times as long.
    assert data.by_system_time(own, native, PRICES) == pytest.approx(0.05 + 0.02 * 10)
    # 1,500 calls at the mean of 20 and 1 us.
    assert data.by_one_price(own, PRICES) == pytest.approx(0.05 + 1500 * 10.5e-6)
    faults = Counted({"faults.file": (5.0,)})
    none = bill(UML, "native", used(0.1, 0.1), used(0.05, 0.05), faults, PRICES)
    assert data.by_one_price(none, PRICES) is None
    assert data.by_system_time(own, replace(native, user_s={}), PRICES) is None


def test_deviations_add_as_squares_do_on_their_own_side() -> None:
    found = data.joined([Interval(10.0, 7.0, 11.0)], [Interval(4.0, 3.0, 8.0)])
    # The upper end of what is taken off is the lower end of the difference.
    assert (found.value, found.low, found.high) == pytest.approx(
        (6.0, 6.0 - math.hypot(3.0, 4.0), 6.0 + math.hypot(1.0, 1.0))
    )


def test_independent_draws_stay_in_the_joined_interval() -> None:
    """Ten terms of ±1.96 deviations each: 95 % of the sums have to lie within."""
    chance = random.Random(1)
    found = data.joined([Interval(0.0, -1.96, 1.96)] * 10)
    sums = [sum(chance.gauss(0.0, 1.0) for _ in range(10)) for _ in range(4000)]
    inside = sum(found.low <= each <= found.high for each in sums) / len(sums)
    assert inside == pytest.approx(0.95, abs=0.02)


def test_a_loop_is_held_against_what_the_tax_falls_by() -> None:
    loop = next(each for each in LOOPS if each.name == "stat")
    found = data.removed(loop, a_bill(20_010.0), a_bill(10.0))
    assert found is not None and found.agrees
    assert found.foretold.value == pytest.approx(20_000 * 20e-6)
    assert found.measured.value == pytest.approx(20_000 * 20e-6)
    # There a stat is a fifth dearer than its price.
    wrong = data.removed(loop, a_bill(20_010.0, rest_s=0.08), a_bill(10.0))
    assert wrong is not None and not wrong.within and not wrong.agrees
    assert wrong.measured.value == pytest.approx(20_000 * 24e-6)


def test_a_loop_without_price_or_line_claims_nothing() -> None:
    stat, fork = (next(each for each in LOOPS if each.name == name) for name in ("stat", "fork"))
    assert data.removed(stat, a_bill(0.0), a_bill(0.0)) is None
    unpriced = bill(UML, "native", used(0.1, 0.1), used(0.05, 0.05),
                    Counted({"calls.mkdir": (9.0,)}), PRICES)  # fmt: skip
    assert data.removed(fork, unpriced, a_bill(0.0)) is None


def test_a_change_of_counts_changes_the_tax_by_the_price() -> None:
    found = data.changed("ls -l", a_bill(9000.0), a_bill(1000.0))
    assert found is not None and found.agrees
    assert found.foretold.value == pytest.approx(-8000 * 20e-6)
    assert found.measured.value == pytest.approx(-8000 * 20e-6)


def test_a_change_of_prices_is_one_within_a_campaign() -> None:
    before, after = "gvisor:platform=ptrace", "gvisor:platform=systrap"
    run = a_run(a_bill(1000.0, spec=before), a_bill(3000.0, spec=after))
    found = replace(made_up(), runs={priced((before, after)).name: run})
    (only,) = found.changes
    assert only.name == f"{before} to {after}"
    assert only.measured.value == pytest.approx(2000 * 20e-6)


def test_targets_hold_where_bills_are_right() -> None:
    found = claims(made_up())
    assert {each.verdict for each in found.values()} == {Verdict.HOLDS}, found


@pytest.mark.parametrize(
    ("error", "failing"),
    [
        (0.05, set()),
        (0.3, {"tax-explained", "prediction-median"}),
        (1.0, {"tax-explained", "prediction-median", "prediction-90"}),
    ],
)
def test_errors_turn_verdicts(error: float, failing: set[str]) -> None:
    """Taking 30 % more is an error of 23 %, and more than a fifth of the tax."""
    found = claims(made_up(error))
    assert {name for name, each in found.items() if each.verdict is Verdict.FAILS} == failing


def test_with_too_few_programs_no_prediction_is_judged() -> None:
    some = made_up(count=ENOUGH - 1)
    found = claims(some)
    assert found["programs"].verdict is Verdict.FAILS
    for name in ("prediction-median", "prediction-90", "tax-explained", "beats-one-price"):
        assert found[name].verdict is Verdict.UNKNOWN, name
    quick = claims(replace(some, plan=QUICK))["programs"]
    assert quick.verdict is Verdict.UNKNOWN and "3 programs" in quick.reason


def test_what_emulation_alone_decides_is_said() -> None:
    found = claims(made_up(emulated=3.0))
    assert found["prediction-90"].verdict is Verdict.FAILS
    assert found["prediction-90"].basis is Basis.EMULATION
    assert made_up().without_emulation() is None


def test_noise_alone_makes_no_claim_false() -> None:
    """The line reaches ±4.002 ms, the measured interval ±0.70 ms, and both together ±4.06 ms."""
    found = made_up()
    name = next(each for each in LOOPS if each.name == "stat").program().name
    noisy = a_run(a_bill(20_010.0, rest_s=4.03e-3), a_bill(0.0, spec=SAME))
    assert claims(replace(found, runs={**found.runs, name: noisy}))["false-claims"].verdict is (
        Verdict.UNKNOWN
    )
    wrong = a_run(a_bill(20_010.0, rest_s=0.1), a_bill(0.0, spec=SAME))
    failing = claims(replace(found, runs={**found.runs, name: wrong}))["false-claims"]
    assert failing.verdict is Verdict.FAILS and f"stat in {UML}" in failing.reason


def test_an_a_a_bill_without_zero_is_a_miss() -> None:
    found = made_up()
    off = a_run(*found.runs["gcc"].bills.values(), a_bill(0.0, error=0.2, spec=SAME))
    runs = {**found.runs, "gcc": off, "clang": off}
    failing = claims(replace(found, runs=runs))["same"]
    assert failing.verdict is Verdict.FAILS and "gcc" in failing.reason


def test_every_miss_has_a_row_and_what_is_absent_is_named(tmp_path: Path) -> None:
    found = made_up(0.5)
    outcome = made(STUDY, found, StudyOptions())
    misses = next(table for table in outcome.tables if table.name == "misses")
    assert {row[0] for row in misses.rows if row[2] == "prediction"} == {
        each.program for each in found.rows
    }
    assert "redis is left out: redis-server is not installed" in outcome.cautions
    write(STUDY, outcome, tmp_path)
    assert pl.read_parquet(tmp_path / "programs.parquet").height == ENOUGH
    text = to_markdown(STUDY, outcome)
    assert "The target" in text and "### Every miss" in text and "ls -l" in text
    assert "prediction-median" in to_json(STUDY, outcome)


@pytest.mark.parametrize("width", [1280, 420])
def test_the_page(browser: Browser, tmp_path: Path, screenshots: Path, width: int) -> None:
    outcome = made(STUDY, made_up(0.2, emulated=1.0), StudyOptions())
    write_report(STUDY, outcome, tmp_path / "report.html")
    with Visit(browser, tmp_path / "report.html", "light", width) as page:
        assert page.locator(".study-figure").count() == 2
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if width > 1000:
            assert page.evaluate(OVERLAPS) == []
        page.screenshot(path=screenshots / f"study-explain-{width}.png", full_page=True)


def test_a_selection_of_programs_and_environments() -> None:
    found = selected(FULL, ["find", "null", UML])
    names: Sequence[str] = [each.name for each in (*found.programs, *found.loops, *found.changes)]
    assert (names, found.environments, found.changed_in) == (["find", "null"], [UML], [UML])
    assert selected(FULL, [UML]).programs == FULL.programs
    assert selected(FULL, [PRICE]).price_changes == FULL.price_changes
    assert not selected(FULL, [PRICE]).programs
    with pytest.raises(MisuseError, match="neither an environment nor a program"):
        selected(FULL, ["finds"])


def test_names_are_one_program_each() -> None:
    every = [
        *PROGRAMS,
        *(each.program() for each in (NOTHING, *LOOPS)),
        *map(priced, PRICE_CHANGES),
    ]
    names = [each.name for each in every] + [
        each.name for change in CHANGES for each in change.programs()
    ]
    assert len(set(names)) == len(names) and len(PROGRAMS) >= ENOUGH
    assert len(QUICK.programs) == 3 and len(QUICK.loops) == 2
    lines = {each.name for each in OPERATIONS}
    assert lines.issuperset(name for each in LOOPS for name in each.lines)


needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study") / "inputs"
    inputs.texts(folder, random.Random(1))
    subprocess.run(inputs.COMPILE, cwd=folder, check=True)
    return folder


@needs_cc
def test_inputs_are_alike_for_a_seed(files: Path, tmp_path: Path) -> None:
    inputs.texts(tmp_path / "same", random.Random(1))
    inputs.texts(tmp_path / "other", random.Random(2))
    for name in ("text.txt", "tree/d3/f4.txt", "rows.sql", "c/m0.c"):
        content = (files / name).read_bytes()
        assert (tmp_path / "same" / name).read_bytes() == content, name
        assert (tmp_path / "other" / name).read_bytes() != content, name


@needs_cc
@pytest.mark.parametrize("loop", [NOTHING, *LOOPS], ids=lambda each: each.name)
def test_each_loop_runs(files: Path, loop: object) -> None:
    assert loop in (NOTHING, *LOOPS)
    words = ["./loops", loop.name, "3"]  # type: ignore[attr-defined]
    assert subprocess.run(words, cwd=files, check=False).returncode == 0


@needs_cc
def test_an_unknown_loop_fails(files: Path) -> None:
    assert subprocess.run(["./loops", "none", "3"], cwd=files, check=False).returncode == 2


@pytest.mark.slow
@pytest.mark.long
def test_the_study_quickly_and_again(tmp_path: Path) -> None:
    options = StudyOptions(quick=True, folder=tmp_path)
    outcome = measured(STUDY, options, lambda *_: None)
    programs = outcome.frames["programs"]
    assert set(programs["program"]) == {each.name for each in QUICK.programs}
    assert programs["predicted_s"].min() > 0  # type: ignore[operator]
    assert set(outcome.frames["loops"]["name"]) == {each.name for each in QUICK.loops}
    folders = sorted((tmp_path / "runs").glob("*/*"))
    again = measured(STUDY, options, lambda *_: None)
    assert sorted((tmp_path / "runs").glob("*/*")) == folders
    assert again.frames["programs"].equals(programs)
