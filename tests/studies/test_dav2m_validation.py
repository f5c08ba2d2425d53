"""`vtax study dav2m --validate`: how predictions are judged, and real KVM beside the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import one_line, vtax
from tested_machines import checked
from vtax.core.errors import VtaxError
from vtax_studies.dav2m.validation.cycles import SCHEMA as CYCLES_SCHEMA
from vtax_studies.dav2m.validation.cycles import SETTINGS, described
from vtax_studies.dav2m.validation.measure import QUANTITIES, SCHEMA, Data
from vtax_studies.dav2m.validation.parts import PARTS, counts_table, cycles_table, within
from vtax_studies.dav2m.validation.programs import PROGRAMS
from vtax_studies.model import Verdict
from vtax_studies.rule import judge

TAKEN = QUANTITIES[0].name


def data(
    *rows: tuple[str, str, float, list[float]],
    cycles: list[tuple[str, str, bool, float, float, list[float]]] | None = None,
) -> Data:
    counts = pl.DataFrame(list(rows), schema=SCHEMA, orient="row")
    return Data(counts, pl.DataFrame(cycles or [], schema=CYCLES_SCHEMA, orient="row"))


@given(st.floats(30, 1e7), st.floats(0, 3))
def test_a_prediction_is_judged_by_the_size_of_the_count(counted: float, ratio: float) -> None:
    allowed = 0.10 if counted >= 1000 else 0.25
    if abs(abs(ratio - 1) - allowed) > 1e-9:
        assert within(ratio * counted, counted) is (abs(ratio - 1) < allowed)


@given(st.floats(-100, 29.9), st.floats(0, 1e6))
def test_few_events_are_not_judged(counted: float, predicted: float) -> None:
    assert within(predicted, counted) is None


def test_one_program_beyond_its_bound_fails_the_claim_and_is_named() -> None:
    near, far = ("perl", TAKEN, 1060.0, [1200.0, 1100.0, 1000.0]), ("gcc", TAKEN, 60.0, [100.0])
    claims = {each.name: each for each in judge(PARTS.rules, data(near, far))}
    assert claims[TAKEN].verdict is Verdict.FAILS
    assert claims[TAKEN].ours == "1 of 2 programs"
    assert claims[TAKEN].reason.endswith("Not so: gcc.")
    assert claims["pf_fixed"].verdict is Verdict.UNKNOWN
    (alone,) = (each for each in judge(PARTS.rules, data(near)) if each.name == TAKEN)
    assert alone.verdict is Verdict.HOLDS


def test_the_table_has_the_median_and_the_spread() -> None:
    rows = counts_table(data(("perl", TAKEN, 900.0, [1200.0, 1100.0, 1000.0]))).rows
    assert rows == [("perl", TAKEN, "900", "1,100", "1,000 to 1,200", "0.82 *")]


def test_ratios_and_order_of_settings_are_judged() -> None:
    """Huge pages save half; the model says 0.6 of it, and then that they save nothing."""
    small = ("gups", "64M", False, 30.0, 40.0, [20.0, 22.0, 24.0])
    huge = ("gups", "64M", True, 18.0, 20.0, [10.0, 11.0, 12.0])
    found = data(cycles=[small, huge])
    claims = {each.name: each for each in judge(PARTS.rules, found)}
    assert claims["cycles-ratios"].verdict is Verdict.HOLDS
    assert claims["cycles-ratios"].ours == "errors of -17% to -17%"
    assert claims["cycles-order"].ours == "1 of 1 pairs"
    (row,) = cycles_table(found).rows
    assert row == ("gups 64M", "1.67 (-17%)", "2.00 (+0%)", "2.00", "2.00 to 2.00")
    turned = data(cycles=[small, (*huge[:3], 31.0, 20.0, huge[5])])
    claims = {each.name: each for each in judge(PARTS.rules, turned)}
    assert claims["cycles-ratios"].reason.endswith("Not so: gups 64M.")
    assert claims["cycles-order"].reason.endswith("Not so: gups 64M 2M before gups 64M 4K.")


def test_settings_whose_times_overlap_say_nothing_about_their_order() -> None:
    small = ("gups", "64M", False, 18.0, 20.0, [10.0, 13.0])
    huge = ("gups", "64M", True, 30.0, 40.0, [12.0, 11.0])
    claims = {each.name: each for each in judge(PARTS.rules, data(cycles=[small, huge]))}
    assert claims["cycles-order"].verdict is Verdict.UNKNOWN
    assert claims["cycles-order"].reason == "all measurements overlap."
    assert {each.name for each in judge(PARTS.rules, data())} >= {"cycles-order", "cycles-ratios"}


def test_a_processor_is_found_by_its_model_or_refused() -> None:
    cpu = {"vendor": "AuthenticAMD", "family": 25, "model_number": 17}
    facts: dict[str, Any] = {"cpu": cpu, "virtualization": {"kind": "kvm"}}
    assert described(facts) == ("zen4", "nested")
    assert described(facts | {"virtualization": {"kind": None}}) == ("zen4", "native")
    with pytest.raises(VtaxError, match="AuthenticAMD, family 25, model 1"):
        described(facts | {"cpu": cpu | {"model_number": 1}})


def test_settings_differ_in_one_thing_at_a_time() -> None:
    assert len({each.name for each in SETTINGS}) == len(SETTINGS)
    argv = SETTINGS[1].argv(5, "agent")
    words = ["--json", "--mem", "16M", "--count", "5", "--huge"]
    assert argv == ["agent", "workload", "random-touch", *words]


def test_names_of_programs_are_unique_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    names = [program.name for program in PROGRAMS]
    assert len(set(names)) == len(names) == 20
    checked("lab")
    line = ("study", "dav2m", "--validate", "--only", "abacus", "--out", str(tmp_path))
    assert "no program is called 'abacus'" in one_line(vtax(*line), 2)
    other = vtax("study", "vrtprof", "--validate", "--out", str(tmp_path))
    assert "study 'vrtprof' has no model to validate" in one_line(other, 2)


@pytest.mark.slow
@pytest.mark.long
def test_faults_of_a_program_are_predicted(tmp_path: Path) -> None:
    checked("lab")
    line = ("study", "dav2m", "--validate", "--quick", "--only", "perl", "--json")
    done = vtax(*line, "--out", str(tmp_path), timeout=1800)
    claims = {each["name"]: each for each in json.loads(done.stdout)["claims"]}
    for name in ("pf_taken", "pf_fixed", "pf_guest"):
        assert claims[name]["verdict"] == "holds", claims[name]
