"""What the study of VrtProf says about the emulated machine, on rows recorded in one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import vrtprof_data
from vtax_studies.driver import made
from vtax_studies.model import Claim, Outcome, StudyOptions, Verdict
from vtax_studies.rule import judge
from vtax_studies.vrtprof import STUDY
from vtax_studies.vrtprof import data as m
from vtax_studies.vrtprof.claims import RULES
from vtax_studies.vrtprof.data import Data
from vtax_studies.vrtprof.emulated import SPEC
from vtax_studies.vrtprof.setup import EMULATED, EMULATED_SETTINGS

OVERHEADS = (
    "overhead-paper-interval-emulated",
    "overhead-finest-emulated",
    "overhead-each-emulated",
)
KERNEL_CPI = "derived.cpi.kernel"
RULES_OF_IT = (*OVERHEADS, "phased-emulated", "flat-emulated")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return vrtprof_data.data(tmp_path_factory.mktemp("vrtprof"))


@pytest.fixture(scope="module")
def outcome(data: Data) -> Outcome:
    return made(STUDY, data, StudyOptions(), vrtprof_data.MACHINE)


def judged(data: Data) -> dict[str, Claim]:
    return {claim.name: claim for claim in judge(RULES, data)}


def without(data: Data, reason: str) -> Data:
    """The data where the machine could not be made."""
    kept = {name: each for name, each in data.recordings.items() if name != EMULATED}
    return replace(data, recordings=kept, emulated=pl.DataFrame(), left_out={EMULATED: reason})


def dearer(data: Data, setting: str, factor: float, only: str | None = None) -> Data:
    """The data with recording at a setting `factor` times as expensive in instructions."""
    picked = pl.col("setting") == setting
    picked = picked if only is None else picked & (pl.col("workload") == only)
    more = pl.when(picked).then(pl.col("instructions") * factor).otherwise(pl.col("instructions"))
    return replace(data, emulated=data.emulated.with_columns(more.alias("instructions")))


def test_verdicts_follow_what_was_recorded(data: Data) -> None:
    found = judged(data)
    # One of the six workloads switches contexts, and pays for each switch.
    assert found["overhead-paper-interval-emulated"].ours == "0.866 %"
    assert found["overhead-paper-interval-emulated"].verdict is Verdict.SUBSTITUTE
    assert found["overhead-finest-emulated"].verdict is Verdict.FAILS
    assert "Not so: context-switch." in found["overhead-each-emulated"].reason
    assert found["flat-emulated"].verdict is Verdict.SUBSTITUTE
    assert found["phased-emulated"].ours == "1 phase in 1 run"
    assert "sched.switches, hw.instructions.kernel" in found["phased-emulated"].reason


def test_every_claim_of_it_says_emulated(data: Data) -> None:
    for name in RULES_OF_IT:
        assert "emulated" in judged(data)[name].statement, name
    for name in OVERHEADS:
        assert "which are not time" in judged(data)[name].reason, name


def test_recording_that_costs_more_turns_the_verdicts(data: Data) -> None:
    found = judged(dearer(data, "50M", 1.02))
    assert found["overhead-paper-interval-emulated"].verdict is Verdict.FAILS
    cheaper = dearer(dearer(data, "50M", 0.97, "context-switch"), "2M", 0.95, "context-switch")
    for name in OVERHEADS:
        assert judged(cheaper)[name].verdict is Verdict.SUBSTITUTE, name


def test_an_overhead_is_the_median_and_half_the_range(data: Data) -> None:
    found = m.emulated_overheads(data, "50M")
    # By hand, of overheads.csv.
    own = data.emulated.filter(workload="gups").sort("repetition")
    bare = own.filter(setting="")["instructions"].to_list()
    with_it = own.filter(setting="50M")["instructions"].to_list()
    pairs = sorted(100 * (b / a - 1) for a, b in zip(bare, with_it, strict=True))
    assert found["gups"] == pytest.approx((pairs[1], (pairs[2] - pairs[0]) / 2))


def test_noise_confirms_nothing(data: Data) -> None:
    scatter = pl.col("repetition").replace_strict({0: 0.9, 1: 1.0, 2: 1.1})
    noisy = data.emulated.with_columns(
        pl.when(pl.col("setting") == "").then(1e8).otherwise(scatter * 1e8).alias("instructions")
    )
    found = judged(replace(data, emulated=noisy))
    assert all(found[name].verdict is Verdict.UNKNOWN for name in OVERHEADS)


def test_one_repetition_is_not_judged(data: Data) -> None:
    found = judged(replace(data, emulated=data.emulated.filter(repetition=0)))
    for name in OVERHEADS:
        assert found[name].verdict is Verdict.UNKNOWN
        assert found[name].reason.endswith("The noise of one repetition is not known.")
        assert found[name].ours != "no value"


def test_cycles_that_follow_instructions_judge_nothing(data: Data) -> None:
    claim = judged(data)["kernel-cpi"]
    assert claim.verdict is Verdict.UNKNOWN
    assert claim.ours == "emulated: between 1.998 and 2.014"
    assert "nothing can go with that" in claim.reason
    assert "no PMU" not in claim.reason


def test_cycles_that_vary_are_not_called_constant(data: Data) -> None:
    one = data.recordings[EMULATED]["gups"][0]
    slower = pl.when(pl.col("seq") > 50).then(1.5).otherwise(1.0) * pl.col(KERNEL_CPI)
    varied = replace(one, frame=one.frame.with_columns(slower.alias(KERNEL_CPI)))
    recordings = {**data.recordings, EMULATED: {"gups": [varied]}}
    claim = judged(replace(data, recordings=recordings))["kernel-cpi"]
    low, high = claim.ours.removeprefix("emulated: between ").split(" and ")
    assert float(high) > 1.4 * float(low)
    assert "nothing can go with that" not in claim.reason


def test_events_that_it_lacks_too_are_named(data: Data) -> None:
    reason = judged(data)["native-dtlb-branches"].reason
    assert reason.endswith("(no PMU?); nor has the emulated arm64 machine.")
    alone = judged(without(data, "no QEMU"))["native-dtlb-branches"].reason
    assert "emulated" not in alone


def test_a_machine_that_cannot_be_had(data: Data) -> None:
    less = without(data, "no QEMU")
    found = judged(less)
    for name in OVERHEADS:
        assert found[name].verdict is Verdict.UNKNOWN
        assert found[name].reason == f"{EMULATED}: no QEMU."
    assert vrtprof_data.NO_PMU in found["kernel-cpi"].reason
    outcome = made(STUDY, less, StudyOptions(), vrtprof_data.MACHINE)
    assert f"{EMULATED} is left out: no QEMU" in outcome.cautions
    assert [table.name for table in outcome.tables] == ["II", "IV", "pairs"]


def test_tables_and_figures_say_emulated(outcome: Outcome) -> None:
    tables = {table.name: table for table in outcome.tables}
    assert EMULATED in tables["II"].headings
    table = tables["IV-emulated"]
    assert {row[0]: row[1] for row in table.rows}["gups"] == "120 million"
    # The lowest rate came later than these recordings.
    assert len(table.headings) == 2 + len(EMULATED_SETTINGS) - 1
    figures = {figure.number: figure for figure in outcome.figures}
    for number in ("5", "6"):
        panel = figures[number].panels[1]
        assert panel.title.startswith("sched.switches, emulated, ")
        assert "nstructions" in panel.plot["layout"]["xaxis"]["title"]["text"]
    # arm64 has no tracepoint of page faults.
    assert len(figures["7"].panels) == 1
    assert any(SPEC in caution for caution in outcome.cautions)


def test_overheads_are_kept_as_a_file(outcome: Outcome, tmp_path: Path) -> None:
    outcome.frames["emulated"].write_parquet(tmp_path / "emulated.parquet")
    assert pl.read_parquet(tmp_path / "emulated.parquet").height == 54
