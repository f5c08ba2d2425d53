"""The study of VrtProf: claims, tables and figures on made-up rows; the page; the real thing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from playwright.sync_api import Browser
from syrupy.assertion import SnapshotAssertion

import vrtprof_data
from arm64_machine import reuse_packages
from browser_page import OVERLAPS, Visit
from command_line import vtax
from recording import obstacle
from tested_machines import checked
from vtax.core import binaries
from vtax.core.errors import VtaxError
from vtax.core.page.tables import plain
from vtax.core.recorder.intervals import Event, Recording
from vtax.core.recorder.options import RecordOptions
from vtax.core.recorder.recorder import PROGRAM
from vtax.environments.qemu_arm64 import boot_files
from vtax_studies.driver import made
from vtax_studies.files import write
from vtax_studies.html import write_report
from vtax_studies.measuring import Counting
from vtax_studies.model import Claim, Outcome, StudyOptions, Verdict
from vtax_studies.rule import judge
from vtax_studies.table import parts
from vtax_studies.vrtprof import STUDY, programs, raw
from vtax_studies.vrtprof import data as m
from vtax_studies.vrtprof.claims import RULES
from vtax_studies.vrtprof.data import Data
from vtax_studies.vrtprof.measure import _record_all, _Target
from vtax_studies.vrtprof.runs import Found
from vtax_studies.vrtprof.setup import (
    EMULATED,
    EVENTS,
    EVERY,
    FIGURES,
    GCC,
    GUESTS,
    HARDWARE,
    JVM,
    KERNEL_PART,
    LOWEST,
    NATIVE,
    PAIR_COLUMNS,
    PROGRAMS,
    QUICK,
    SPECS,
    STENCIL,
    TABLE_II,
    XEN_FIGURE,
    Work,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return vrtprof_data.data(tmp_path_factory.mktemp("vrtprof"))


@pytest.fixture(scope="module")
def outcome(data: Data) -> Outcome:
    return made(STUDY, data, StudyOptions(), vrtprof_data.MACHINE)


def test_claims_as_printed(outcome: Outcome, snapshot: SnapshotAssertion) -> None:
    assert plain(*parts(STUDY, outcome), width=110) == snapshot


def test_tables(outcome: Outcome, snapshot: SnapshotAssertion) -> None:
    assert {table.name: table.rows for table in outcome.tables} == snapshot


def test_verdicts_follow_the_data(data: Data) -> None:
    found = {claim.name: claim.verdict for claim in judge(RULES, data)}
    # Made so: 0.4, 1 and 4 percent.
    assert found["overhead-paper-interval"] is Verdict.HOLDS
    assert found["overhead-1ms"] is Verdict.HOLDS
    assert found["overhead-100us"] is Verdict.FAILS
    assert found["exits-per-guest"] is Verdict.HOLDS
    assert found["phased"] is Verdict.HOLDS
    # What this machine cannot count is not judged, and never by another event.
    for name in ("native-dtlb-branches", "virtual-dtlb-branches", "exits-dtlb", "kernel-cpi"):
        assert found[name] is Verdict.UNKNOWN


def test_short_rows_are_not_judged_by_a_constant(data: Data) -> None:
    (claim,) = (each for each in judge(RULES, data) if each.name == "granularity")
    assert claim.verdict is Verdict.UNKNOWN
    assert claim.ours.endswith("100 us: 0 rows lost")


def test_the_recorder_knows_what_the_study_asks_for() -> None:
    """With and without a PMU it lists the kernel's and the programs' parts by these names."""
    line = [str(binaries.find(PROGRAM)), "events", "--json"]
    listed = json.loads(subprocess.run(line, capture_output=True, check=True).stdout)
    assert {*HARDWARE, *KERNEL_PART} <= {each["name"] for each in listed}
    parts = [name for name in PAIR_COLUMNS.values() if name.startswith("hw.")]
    assert parts and all(name.endswith((".kernel", ".user")) for name in parts)
    assert set(parts) <= set(HARDWARE)


def test_the_kernels_part_is_judged_where_it_is_counted(data: Data) -> None:
    """Columns of the whole row do not stand in for the kernel's part."""
    names = ("hw.dtlb_load_misses", "hw.branches")

    def judged(suffix: str) -> Claim:
        recordings = {
            work: [with_pair(one, [f"{name}{suffix}" for name in names]) for one in own]
            for work, own in data.recordings[NATIVE].items()
        }
        counted = replace(data, recordings={NATIVE: recordings}, absent={})
        claims = judge(RULES, counted)
        return next(claim for claim in claims if claim.name == "native-dtlb-branches")

    assert judged(".kernel").verdict is Verdict.HOLDS
    assert judged("").verdict is Verdict.UNKNOWN


def with_pair(one: Recording, names: list[str]) -> Recording:
    """A recording of two events that go together, and with nothing else."""
    random = np.random.default_rng(int(one.frame["faults.user"].sum()))
    first = random.poisson(1000, one.frame.height)
    second = first + random.poisson(100, one.frame.height)
    columns = [
        pl.Series(name, own.astype(np.uint64))
        for name, own in zip(names, (first, second), strict=True)
    ]
    events = (*one.events, *(Event(name=name) for name in names))
    return replace(one, frame=one.frame.with_columns(columns), events=events)


def test_codes_are_those_of_the_processors_event_list() -> None:
    """As perf's own lists have them: ARITH.MUL of Westmere, L2_LINES_IN.ALL of Skylake."""

    def named(model: int, vendor: str = "GenuineIntel") -> dict[str, str]:
        return raw.here({"vendor": vendor, "family": 6, "model_number": model})

    assert named(0x2C) == {"MUL": "hw.raw.0x214", "L2_LINES_IN": "hw.raw.0x7f1"}
    assert named(0x55) == {"L2_LINES_IN": "hw.raw.0x1ff1"}
    assert named(0x2C, "AuthenticAMD") == named(0xFF) == {}


def test_a_code_takes_the_place_of_a_name(data: Data) -> None:
    coded = replace(data, raw={"L2_LINES_IN": "hw.raw.0x7f1"})
    (event,) = (each for each in TABLE_II if each.name == "L2_LINES_IN")
    assert coded.columns(event) == ("hw.raw.0x7f1.user", "hw.raw.0x7f1.kernel")
    assert coded.column("K_L2_LINES_IN") == "hw.raw.0x7f1.kernel"
    assert data.column("K_L2_LINES_IN") == "" and data.columns(event) == ()


def test_every_hardware_event_is_asked_for_in_both_parts() -> None:
    names = {name for event in TABLE_II for name in event.ours if name.startswith("hw.")}
    for name in names | {"hw.instructions", "hw.cycles"}:
        assert {f"{name}.user", f"{name}.kernel"} <= set(HARDWARE)


def test_the_lowest_rate_is_one_of_the_three_circumstances(data: Data) -> None:
    def judged(percent: float) -> Claim:
        cost = pl.when(pl.col("setting") == LOWEST.every).then(1 + percent / 100).otherwise(1.0)
        dearer = data.overheads.with_columns(pl.col("cpu_s") * cost)
        claims = judge(RULES, replace(data, overheads=dearer))
        return next(each for each in claims if each.name == "overhead-circumstances")

    assert judged(0.0).verdict is Verdict.HOLDS
    assert judged(5.0).verdict is Verdict.FAILS
    # What is measured below the unloaded run is apart from it too.
    assert judged(-5.0).verdict is Verdict.FAILS


def test_a_real_program_takes_its_stand_ins_place_where_it_ran(data: Data) -> None:
    assert data.workload(JVM, [NATIVE]) == "gups"
    native = data.recordings[NATIVE]
    ran = replace(data, recordings={**data.recordings, NATIVE: {**native, JVM: native["gups"]}})
    assert ran.workload(JVM, [NATIVE]) == JVM
    assert ran.workload(JVM, [NATIVE, "1 guest"]) == "gups"
    (claim,) = (each for each in judge(RULES, ran) if each.name == "flat")
    assert f"Each native run of {JVM}" in claim.reason


def test_programs_are_those_that_this_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works, missing = programs.present(PROGRAMS, tmp_path)
    assert {work.name for work in works} | missing.keys() == {GCC, JVM, STENCIL}
    for work in works:
        here = tmp_path / "runs" / work.name
        here.mkdir(parents=True)
        for name, content in work.files.items():
            (here / name).write_bytes(content)
        subprocess.run(["sh", "-c", work.line, "sh", "1"], cwd=here, check=True, timeout=100)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert programs.present(PROGRAMS, tmp_path)[1][GCC] == "gcc is not installed"


def test_dearer_recording_turns_the_verdict(data: Data) -> None:
    dearer = data.overheads.with_columns(
        pl.when(pl.col("setting") == "1ms")
        .then(pl.col("cpu_s") * 1.05)
        .otherwise(pl.col("cpu_s"))
        .alias("cpu_s")
    )
    found = {claim.name: claim for claim in judge(RULES, replace(data, overheads=dearer))}
    assert found["overhead-1ms"].verdict is Verdict.FAILS
    assert found["overhead-1ms"].ours.startswith("6.0")


@pytest.mark.parametrize("mean", [-10.0, -4.0, 0.0, 20.0])
def test_noise_confirms_nothing(data: Data, mean: float) -> None:
    """Overheads scattered by 40 points, whose mean is on either side of the limit."""
    scatter = {0: -40.0, 1: -20.0, 2: 0.0, 3: 20.0, 4: 40.0}
    percent = pl.col("repetition").replace_strict(scatter, return_dtype=pl.Float64) + mean
    noisy = data.overheads.with_columns(
        pl.when(pl.col("setting") == "").then(1.0).otherwise(1 + percent / 100).alias("cpu_s")
    )
    found = {claim.name: claim.verdict for claim in judge(RULES, replace(data, overheads=noisy))}
    for name in ("overhead-paper-interval", "overhead-1ms", "overhead-100us", "overhead-each"):
        assert found[name] is Verdict.UNKNOWN, name


def test_the_papers_pairs_are_in_a_matrix_of_rarer_events(data: Data) -> None:
    one = data.recordings["4 guests"]["gups"][0]
    many = [f"sched.made{number}" for number in range(40)]
    frame = one.frame.with_columns(
        (pl.col("faults.user") * 1000).alias(name) for name in many
    ).with_columns((pl.col("seq") % 7).alias("irq.device"))
    events = (*one.events, *(Event(name=name) for name in (*many, "irq.device")))
    chosen = {event.name for event in m.varying_events([replace(one, frame=frame, events=events)])}
    assert {"irq.device", "kvm.exits", "sched.switches"} <= chosen
    assert len(chosen) == m.MOST_EVENTS


def test_exits_that_do_not_fall_with_guests_turn_the_verdict(data: Data) -> None:
    first = data.recordings["1 guest"]
    same = replace(data, recordings={**data.recordings, "2 guests": first, "4 guests": first})
    found = {claim.name: claim.verdict for claim in judge(RULES, same)}
    assert found["exits-per-guest"] is Verdict.FAILS
    assert found["xen-exits-per-guest"] is Verdict.HOLDS


def test_what_xen_records_is_judged_by_its_own_columns(data: Data) -> None:
    found = {claim.name: claim.ours for claim in judge(RULES, data)}
    # The switches are made of the exits, and the interrupts are not.
    assert float(found["xen-exits-switches"].split()[2]) > 0.2
    assert "not significant" in found["xen-exits-interrupts"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bad", "label"), [(("bad",), f"{NATIVE}, 2 of 4 runs,"), (("bad", "worse"), NATIVE)]
)
def test_runs_that_fail_are_told_and_most_end_it(
    bad: Sequence[str], label: str, tmp_path: Path
) -> None:
    if reason := obstacle():
        pytest.skip(reason)
    works = (
        Work("good", 1, 1, "seq 1000000 | wc -l"),
        *(Work(name, 1, 1, "exit 3") for name in bad),
    )
    plan = replace(QUICK, repetitions=2, workloads=works)
    options = RecordOptions.of(every=EVERY, events=EVENTS)
    target = _Target(NATIVE, SPECS[NATIVE], 1, options, works)
    found = Found()
    _record_all(target, plan, 1, tmp_path, found, Counting(0, lambda *_: None))
    assert list(found.left_out) == [label] and "ended with code 3" in found.left_out[label]
    if len(bad) == 1:
        assert {name: len(own) for name, own in found.recordings[NATIVE].items()} == {"good": 2}


def test_overheads_are_medians_of_neighbouring_pairs(data: Data) -> None:
    for setting, percent in vrtprof_data.OVERHEADS.items():
        for value, around in m.overheads(data, setting).values():
            assert value == pytest.approx(percent, abs=0.15)
            assert 0 < around < 0.2


def test_figures_name_what_they_show(outcome: Outcome) -> None:
    assert [figure.number for figure in outcome.figures] == [
        "2",
        "3",
        "4",
        XEN_FIGURE,
        "5",
        "6",
        "7",
    ]
    titles = {figure.number: figure.title for figure in outcome.figures}
    assert titles["5"].startswith("sched.switches")
    assert titles["7"].startswith("faults.user")
    for number in ("5", "6", "7"):
        caption = next(f.caption for f in outcome.figures if f.number == number)
        assert "absent here" in caption
        assert vrtprof_data.NO_PMU in caption
    shown = json.dumps([asdict(panel) for figure in outcome.figures for panel in figure.panels])
    assert "hw." not in shown


@pytest.mark.parametrize("figure", FIGURES)
def test_one_figure(data: Data, figure: str) -> None:
    found = made(STUDY, data, StudyOptions(figure=figure), vrtprof_data.MACHINE)
    assert [drawn.number for drawn in found.figures] in ([figure], [])
    assert any(f"--figure {figure}" in caution for caution in found.cautions)


def test_an_environment_that_is_left_out_is_said(data: Data) -> None:
    less = {NATIVE: data.recordings[NATIVE]}
    found = made(
        STUDY,
        replace(data, recordings=less, left_out={"1 guest": "no QEMU"}),
        StudyOptions(),
        vrtprof_data.MACHINE,
    )
    assert "1 guest is left out: no QEMU" in found.cautions
    assert [figure.number for figure in found.figures] == ["2", "5", "6", "7"]


def test_files_say_that_it_was_measured(outcome: Outcome, tmp_path: Path) -> None:
    write(STUDY, outcome, tmp_path)
    assert "Found (measured)" in (tmp_path / "claims.md").read_text("utf-8")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "was measured on this machine" in page
    assert "Found (model)" not in page
    counts = pl.read_parquet(tmp_path / "counts.parquet")
    assert counts.filter(event="kvm.exits", environment="1 guest")["count"].sum() > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
def test_the_page(
    browser: Browser,
    outcome: Outcome,
    tmp_path: Path,
    screenshots: Path,
    scheme: str,
    width: int,
) -> None:
    write_report(STUDY, outcome, tmp_path / "report.html")
    with Visit(browser, tmp_path / "report.html", scheme, width) as page:
        assert page.locator(".study-figure").count() == 7
        assert page.locator("#claims-table tbody tr").count() == len(outcome.claims)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        if width > 1000:
            assert page.evaluate(OVERLAPS) == []
        page.screenshot(path=screenshots / f"vrtprof-{scheme}-{width}.png", full_page=True)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a quick study."""
    return quickly(tmp_path_factory.mktemp("quick") / "out")


def quickly(out: Path, *options: str) -> Path:
    """Carry out a quick study; returns its folder. Skips, with the reason, where nothing can be
    recorded."""
    if reason := obstacle():
        pytest.skip(reason)
    reuse_packages()
    done = vtax("study", "vrtprof", "--quick", *options, "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return out


def content_of(out: Path) -> Any:
    return json.loads((out / "study.json").read_text())


@pytest.mark.slow
def test_a_figure_quickly(tmp_path: Path) -> None:
    content = content_of(quickly(tmp_path / "out", "--figure", "2"))
    assert {figure["number"] for figure in content["figures"]} == {"2"}
    counts = pl.read_parquet(tmp_path / "out" / "counts.parquet")
    assert NATIVE in set(counts["environment"])
    if GUESTS[1] not in set(counts["environment"]):
        checked("lab")
        pytest.fail("the guest under KVM was left out, but can be had")
    exits = counts.filter(event="kvm.exits", environment=GUESTS[1])
    assert exits["count"].min() > 0  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.long
def test_the_whole_study_quickly(quick: Path) -> None:
    content = content_of(quick)
    assert {figure["number"] for figure in content["figures"]} >= {"2", "6"}
    names = {claim["name"]: claim for claim in content["claims"]}
    # It was measured; the machine's noise decides whether it can be judged.
    assert names["overhead-1ms"]["ours"].endswith(" %")
    the_emulated_machine(content)


@pytest.mark.slow
@pytest.mark.long
def test_timelines_of_domus_quickly(quick: Path) -> None:
    if XEN_FIGURE not in {figure["number"] for figure in content_of(quick)["figures"]}:
        checked("xen:mode=pvh")
        pytest.fail("the domUs were left out, but can be had")
    counts = pl.read_parquet(quick / "counts.parquet")
    assert counts.filter(event="xen.vmexit", environment="1 domU")["count"].min() > 1000


def the_emulated_machine(content: dict[str, Any]) -> None:
    """The emulated machine's part of a quick study; skips, with the reason, where there is no such
    machine."""
    names = [table["name"] for table in content["tables"]]
    if any(each.startswith(f"{EMULATED} is left out: ") for each in content["cautions"]):
        assert names == ["II", "IV", "pairs"]
        checked("qemu-arm64")
        try:
            boot_files()
        except VtaxError as error:
            pytest.skip(f"qemu-arm64: {error}")
        pytest.fail("the emulated machine was left out, but can be had")
    assert names == ["II", "IV", "IV-emulated", "pairs"]
    (table,) = (each for each in content["tables"] if each["name"] == "IV-emulated")
    assert [row[0] for row in table["rows"]] == ["compiler-like", "gups", "Geometric mean"]
    claims = {claim["name"]: claim for claim in content["claims"]}
    # Recording costs few instructions, as one repetition shows.
    for name in ("overhead-paper-interval-emulated", "overhead-finest-emulated"):
        assert 0 < float(claims[name]["ours"].removesuffix(" %")) < 3
    assert claims["flat-emulated"]["ours"].endswith("in 1 run")
    cycles = claims["kernel-cpi"]["ours"].removeprefix("emulated: between ").split(" and ")
    assert [float(each) for each in cycles] == pytest.approx([2, 2], rel=0.02)
