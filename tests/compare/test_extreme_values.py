"""Values at the ends of the allowed range: judged right, without any warning from a library.

Values beyond that range are refused where they come in.
"""

from __future__ import annotations

import json
import math
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import report_data
from comparison_data import CONTROL, NATIVE, UML, record, sample, values
from report_data import write_report
from vtax.compare.analysis import compare
from vtax.compare.page import to_json
from vtax.core.errors import VtaxError
from vtax.core.formats.samples import checked, fault_of
from vtax.core.page.tables import plain
from vtax.core.statistics.results import Comparison
from vtax.core.units import LEAST_QUANTITY, MOST_QUANTITY
from vtax.workloads.base import Metric
from vtax.workloads.one_unit import OneUnit

EXTREME = st.sampled_from([1e100, 9.99e99, 1e-100, 1.01e-100])
POSITIVE = EXTREME | st.floats(LEAST_QUANTITY, MOST_QUANTITY)
VALUES = POSITIVE | st.sampled_from([1.0, 1e50, 0.0])
REFUSED = st.floats(min_value=1.01e100) | st.floats(5e-324, 0.99e-100)


@contextmanager
def without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def judged(native: list[float], uml: list[float], better: str) -> Comparison:
    found = {"native": native, "native#aa": native[::-1], "uml": uml}
    samples = [s for label, row in found.items() for s in values(label, row, better=better)]
    return compare(record(NATIVE, CONTROL, UML), samples, "runs/x")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(VALUES, min_size=1, max_size=12),
    st.lists(VALUES, min_size=1, max_size=12),
    st.sampled_from(["lower", "higher"]),
)
def test_any_values_are_judged_without_a_warning(
    native: list[float], uml: list[float], better: str
) -> None:
    with without_warnings():
        found = judged(native, uml, better)
        json.dumps(to_json(found), allow_nan=False)
        shown = plain(report_data.on_terminal(found))
    assert "nan" not in shown.lower().split() and "inf" not in shown.lower().split()


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(EXTREME, min_size=3, max_size=8), st.lists(VALUES, min_size=3, max_size=8))
def test_the_report_too(native: list[float], uml: list[float]) -> None:
    found = judged(native, uml, "lower")
    samples = [s for label, row in (("native", native), ("uml", uml)) for s in values(label, row)]
    with without_warnings(), tempfile.TemporaryDirectory() as folder:
        write_report(found, samples, Path(folder) / "report.html")


@settings(max_examples=60, deadline=None)
@given(POSITIVE, POSITIVE, st.integers(1, 6), st.sampled_from(["lower", "higher"]))
def test_the_percentage_is_the_exact_one(native: float, uml: float, n: int, better: str) -> None:
    with without_warnings():
        found = judged([native] * n, [uml] * n, better)
    (result,) = [each for each in found.results if each.environment == "uml"]
    ratio = Fraction(native) / Fraction(uml)
    exact = 100 * (ratio if better == "lower" else 1 / ratio)
    for percent in (result.percent_of_baseline, result.percent_of_baseline_best):
        assert percent is not None and math.isclose(Fraction(percent), exact, rel_tol=1e-9)
    assert result.median == pytest.approx(uml, rel=1e-9, abs=0)


@given(REFUSED, st.sampled_from([1, -1]))
def test_what_is_no_quantity_is_refused_by_the_run_and_by_its_reader(
    value: float, sign: int
) -> None:
    with pytest.raises(VtaxError, match=r"m': .* is not between 1e-100 and 1e100"):
        OneUnit().same([Metric("m", "", "lower", sign * value)])
    run = record(NATIVE, order=(("native", 0),))
    rows = [sample("native", 0, sign * value).row()]
    with pytest.raises(VtaxError, match=r"value: .*(1e-100 and 1e100|finite number)"):
        checked(Path("samples.parquet"), rows, fault_of(run))


def test_a_conversion_may_leave_the_range() -> None:
    unit = OneUnit()
    unit.same([Metric("m", "s", "lower", 1.0)])
    with pytest.raises(VtaxError, match="1e-109 is not between"):
        unit.same([Metric("m", "ns", "lower", 1e-100)])
