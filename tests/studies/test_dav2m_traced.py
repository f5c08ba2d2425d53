"""The second column of the paging study: claims on traced programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import study_data
from vtax_studies.dav2m.claims import RULES
from vtax_studies.dav2m.data import Data, covering_share
from vtax_studies.dav2m.differences import DIFFERS
from vtax_studies.dav2m.kinds import kinds_table
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


def _kinds(chase: float, seconds: tuple[float, float]) -> Data:
    kinds = [
        {
            "benchmark": name,
            "page": page,
            "cycles_base": 0.0,
            "cycles_tlb": 1e9 - 1e7 * gain,
            "cycles_walks": 0.0,
        }
        for name, own in (("chase", chase), ("stencil", 2.0), ("streams", 30.0))
        for page, gain in (("4K", 0.0), ("2M", own))
    ]
    timed = [
        {"benchmark": "chase", "page": page, "round": turn, "seconds": 1.0 if page == "4K" else own}
        for turn, own in enumerate(seconds)
        for page in ("4K", "2M")
    ]
    traced = _traced(kinds=pl.DataFrame(kinds), timed=pl.DataFrame(timed))
    gains = pl.col("cycles") * pl.when(pl.col("page") == "2M").then(0.6).otherwise(1.0)
    return replace(
        study_data.data(pages=study_data.pages().with_columns(cycles=gains)), traced=traced
    )


def test_programs_of_the_kind_say_who_is_right_about_large_pages() -> None:
    found = {each.name: each for each in judge(RULES, _kinds(50.0, (0.6, 0.7)))}
    hurt = found["large-pages-hurt"]
    assert hurt.verdict is Verdict.FAILS
    chase = "mcf: chase gains 50 % traced (as the model says), 35 % timed here [30, 40]"
    assert f"{chase} (as the model says)" in hurt.reason
    assert "cactusADM: stencil gains 2.0 % traced (as the model says)" in hurt.reason
    insensitive = found["large-pages-insensitive"].reason
    assert "zeusmp: stencil gains 2.0 % traced (as the paper says)" in insensitive
    assert "swim: streams gains 30 % traced (as the model says)" in insensitive
    lost = {each.name: each for each in judge(RULES, _kinds(-5.0, (0.9, 1.1)))}
    reason = lost["large-pages-hurt"].reason
    assert "chase gains \N{MINUS SIGN}5.0 % traced (as the paper says)" in reason
    assert "which is too noisy to say" in reason


def test_the_table_of_kinds_has_a_row_for_each_benchmark() -> None:
    rows = {row[0]: row[2:] for row in kinds_table(_kinds(50.0, (0.6, 0.7))).rows}
    assert list(rows) == ["mcf", "cactusADM", "zeusmp", "swim"]
    assert rows["mcf"][1:] == ("50.0", "35.0 [30.0, 40.0]")
    assert rows["swim"][1:] == ("30.0", "")


def test_entries_that_cover_most() -> None:
    assert covering_share([80.0, 5, 5, 5, 5]) == pytest.approx(20)
    assert covering_share([1.0] * 10) == pytest.approx(80)
    assert covering_share([60.0, 40.0]) == pytest.approx(75), "half of the second counts"
    rows = [
        {"benchmark": name, "page": "4K", "what": what, "entries": 9, "covering_percent": share}
        for name, share in (("gcc", 12.0), ("gzip", 60.0))
        for what in ("misses", "reads")
    ]
    traced = _traced(entries=pl.DataFrame(rows))
    found = {each.name: each for each in judge(RULES, study_data.data(), second=traced)}
    second = found["entries-local"].second
    assert second is not None
    assert second.verdict is Verdict.HOLDS
    assert "misses gcc 12, gzip 60 %" in second.ours


def test_the_length_of_a_trace_is_in_its_end_frame(tmp_path: Path) -> None:
    file = tmp_path / "a.vtrace"
    file.write_bytes(b"frames" + (7).to_bytes(8, "little") + (52_728_693).to_bytes(8, "little"))
    assert instructions(file) == 52_728_693
