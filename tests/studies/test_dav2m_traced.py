"""The second column of the paging study: claims on traced programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl

import study_data
from vtax_studies.dav2m.claims import RULES
from vtax_studies.dav2m.data import Data
from vtax_studies.dav2m.differences import DIFFERS
from vtax_studies.dav2m.traced import instructions
from vtax_studies.model import Verdict
from vtax_studies.rule import NOT_KNOWN_WHY, judge
from vtax_studies.table import second_counts


def _traced(**frames: pl.DataFrame) -> Data:
    return replace(study_data.data(**frames), programs=("gcc", "gzip"))


def test_a_claim_about_what_was_not_traced_is_not_run() -> None:
    found = {each.name: each for each in judge(RULES, study_data.data(), second=_traced())}
    swim = found["best-shadow"].second
    assert swim is not None
    assert swim.verdict is None
    assert swim.reason == "SPEC's swim, zeusmp are not free."
    nested = found["best-nested"].second
    assert nested is not None
    assert nested.verdict is Verdict.HOLDS
    assert found["best-nested"].basis.mark == "fitted"


def test_a_verdict_that_differs_says_why_or_that_nobody_looked() -> None:
    data, traced = study_data.data(), _traced()
    found = {each.name: each for each in judge(RULES, data, second=traced, differs={})}
    superior = found["neither-superior"].second
    assert superior is not None
    assert superior.verdict is Verdict.FAILS
    assert superior.differs == NOT_KNOWN_WHY
    same = found["best-nested"].second
    assert same is not None
    assert same.differs == ""
    assert DIFFERS.keys() <= {rule.name for rule in RULES}


def test_those_that_were_not_run_are_counted_apart() -> None:
    claims = judge(RULES, study_data.data(), second=_traced())
    run = [each for each in claims if each.second and each.second.verdict is not None]
    assert second_counts(claims).endswith(f"; {len(claims) - len(run)} were not run")
    assert f" of {len(run)} claims hold" in second_counts(claims)


def test_the_length_of_a_trace_is_in_its_end_frame(tmp_path: Path) -> None:
    file = tmp_path / "a.vtrace"
    file.write_bytes(b"frames" + (7).to_bytes(8, "little") + (52_728_693).to_bytes(8, "little"))
    assert instructions(file) == 52_728_693
