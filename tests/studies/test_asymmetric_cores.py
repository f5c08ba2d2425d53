"""The study of asymmetric cores: claims, tables and figures on made campaigns; the real thing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
from playwright.sync_api import Browser
from syrupy.assertion import SnapshotAssertion

import asymmetric_data
from asymmetric_data import ALONE, DISKS, PAPER, Made
from browser_page import OVERLAPS, Visit
from command_line import one_line, without_root
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.folder import RunFolder
from vtax.core.page.tables import plain
from vtax.core.runner.runner import Listener
from vtax.place.campaign import PlaceRequest
from vtax.place.record import PlaceRecord
from vtax.place.service_domain import Backend
from vtax.study.verb import installed
from vtax_studies import measuring
from vtax_studies.asymmetric_cores import STUDY, claims, measure
from vtax_studies.asymmetric_cores import data as m
from vtax_studies.asymmetric_cores.claims import RULES, agreed, less, near
from vtax_studies.asymmetric_cores.data import Data, Interval
from vtax_studies.asymmetric_cores.setup import (
    DISK,
    EMULATED_HOST,
    FIGURES,
    FULL,
    LOWEST,
    QEMU,
    REFERENCES,
    SLOW_GUEST,
    SPECS,
    SPINDLE,
    STATED,
    SURVEY,
    TAP,
    VDE,
    VDE_FOUR,
    XEN,
    XEN_FOUR,
)
from vtax_studies.driver import made
from vtax_studies.files import write
from vtax_studies.html import write_report
from vtax_studies.model import Outcome, StudyOptions, Verdict
from vtax_studies.rule import judge
from vtax_studies.table import parts

HOLDS, FAILS, UNKNOWN = Verdict.HOLDS, Verdict.FAILS, Verdict.UNKNOWN
NOISY = 0.25


@pytest.fixture(scope="module")
def data() -> Data:
    return asymmetric_data.data()


@pytest.fixture(scope="module")
def outcome(data: Data) -> Outcome:
    return made(STUDY, data, StudyOptions(), asymmetric_data.MACHINE)


def verdicts(data: Data) -> dict[str, Verdict]:
    return {claim.name: claim.verdict for claim in judge(RULES, data)}


def changed(load: str, **fields: Any) -> Data:
    return asymmetric_data.data({load: replace(PAPER[load], **fields)})


def with_disks(name: str, **fields: Any) -> Data:
    return asymmetric_data.data(disks={**DISKS, name: replace(DISKS[name], **fields)})


def test_it_is_registered_by_its_name_with_a_hyphen() -> None:
    assert installed()["asymmetric-cores"] is STUDY
    assert STUDY.found == "Found (measured)"


def test_claims_as_printed(outcome: Outcome, snapshot: SnapshotAssertion) -> None:
    assert plain(*parts(STUDY, outcome), width=110) == snapshot


def test_tables(outcome: Outcome, snapshot: SnapshotAssertion) -> None:
    assert {table.name: table.rows for table in outcome.tables} == snapshot


def test_what_is_as_the_paper_has_it_holds(data: Data) -> None:
    found = verdicts(data)
    xen = {name for name in found if name.endswith("-xen")}
    assert {found.pop(name) for name in xen} == {UNKNOWN}, "it was not measured"
    assert set(found.values()) == {HOLDS}
    theirs = verdicts(asymmetric_data.data(environments=(XEN,), alone=None))
    assert {theirs[name] for name in xen} == {HOLDS}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        *((f"kept-{load}-{where}", changed(load, elasticity=0.9))
          for load in ("ab", "tcp", "udp") for where in ("vde", "qemu")),
        ("kept-ab-vde", changed("ab", elasticity=-0.1)),
        *((f"kept-cpu-bound-{load}", asymmetric_data.data(alone=replace(ALONE, elasticity=0.3)))
          for load in REFERENCES),
        ("disk-bound-idle", with_disks(SPINDLE, cpu=0.2)),
        ("fast-disk-busier", with_disks(DISK, cpu=0.02)),
        ("cpu-bound-in-proportion", asymmetric_data.data(alone=replace(ALONE, elasticity=0.3))),
        ("cpu-bound-needs-no-service", changed("dgemm", elasticity=0.5)),
        ("cpu-bound-loses-most", changed("ab", elasticity=0.95)),
        ("udp-loses-more-than-ab", changed("ab", elasticity=0.8)),
        ("udp-loses-more-than-tcp", changed("udp", elasticity=0.0)),
        ("combined-usage-tcp", changed("tcp", cpu=0.2, link=10.0)),
        ("combined-usage-ab", changed("ab", cpu=0.3)),
        ("combined-usage-udp", changed("udp", cpu=0.9)),
        *((f"cpu-rises-{load}", changed(load, cpu=0.5, elasticity=1.2))
          for load in ("ab", "tcp", "udp")),
    ],
)  # fmt: skip
def test_other_data_turn_a_verdict(name: str, wrong: Data) -> None:
    assert verdicts(wrong)[name] is FAILS


def test_the_hypothesis_is_contradicted_where_busy_loads_are_sensitive() -> None:
    busy = {
        load: Made(0.05 + 0.12 * number, 0.1 + 0.13 * number, 10.0 + 8.0 * number)
        for number, load in enumerate(("udp", "http", "ab", "http10", "tcp-in", "tcp"))
    }
    wrong = asymmetric_data.data(busy)
    assert verdicts(wrong)["combined-usage-predicts"] is FAILS
    claim = next(c for c in judge(RULES, wrong) if c.name == "combined-usage-predicts")
    assert "n = 12" in claim.ours and "rank correlation 0.99 [" in claim.ours
    assert "above 100 %: median" in claim.ours


@pytest.mark.parametrize(
    ("name", "unclear"),
    [
        # The interval allows both.
        *((f"kept-{load}-vde", changed(load, noise=NOISY)) for load in ("ab", "tcp", "udp")),
        ("kept-cpu-bound-dgemm", asymmetric_data.data(alone=replace(ALONE, noise=NOISY))),
        ("disk-bound-idle", with_disks(SPINDLE, cpu=0.1, cpu_noise=0.1)),
        ("disk-bound-idle", asymmetric_data.data(disks={DISK: DISKS[DISK]})),
        ("fast-disk-busier", with_disks(DISK, cpu=0.05, cpu_noise=0.5)),
        ("cpu-bound-in-proportion", asymmetric_data.data(alone=replace(ALONE, noise=1.0))),
        ("cpu-bound-needs-no-service", changed("dgemm", noise=NOISY)),
        ("cpu-bound-loses-most", changed("ab", noise=NOISY)),
        ("udp-loses-more-than-tcp", changed("tcp", elasticity=0.5)),
        # Backends disagree.
        ("kept-ab-qemu", changed("ab", hog=0.9)),
        ("udp-loses-more-than-ab", changed("udp", hog=0.0)),
        # The client is the limit at every speed.
        ("kept-tcp-vde", changed("tcp", saturated=True)),
        ("combined-usage-tcp", changed("tcp", saturated=True)),
        # Without it the elasticity is not known, and ten pairs are too few.
        ("combined-usage-predicts", changed("tcp", saturated=True)),
        # Not measured.
        ("kept-udp-qemu", asymmetric_data.data(environments=(VDE,))),
        ("cpu-bound-loses-most", asymmetric_data.data(without=("udp",))),
        ("udp-loses-more-than-tcp", asymmetric_data.data(without=("udp",))),
        ("combined-usage-ab", asymmetric_data.data(without=("ab",))),
        ("combined-usage-udp", changed("udp", link=0.0)),
        ("cpu-rises-ab", asymmetric_data.data(without=("ab",))),
        # The core is always busy.
        ("cpu-rises-tcp", changed("tcp", cpu=0.99)),
        ("kept-cpu-bound-dgemm", asymmetric_data.data(alone=None)),
        ("kept-ab-vde", asymmetric_data.data(rounds=1)),
    ],
)
def test_what_cannot_be_judged(name: str, unclear: Data) -> None:
    assert verdicts(unclear)[name] is UNKNOWN


def test_an_interval_decides() -> None:
    assert near(Interval(86, 80, 90), 85, 10) is True
    assert near(Interval(86, 70, 99), 85, 10) is None
    assert near(Interval(60, 55, 70), 85, 10) is False
    assert near(Interval(86, None, None), 85, 10) is None
    assert less(Interval(5, 4, 6), Interval(8, 7, 9)) is True
    assert less(Interval(8, 7, 9), Interval(5, 4, 6)) is False
    assert less(Interval(5, 4, 8), Interval(8, 7, 9)) is None
    assert agreed([True, True]) is True and agreed([False]) is False
    assert agreed([True, False]) is agreed([True, None]) is agreed([]) is None


def test_back_ends_that_disagree_are_said() -> None:
    found = {claim.name: claim for claim in judge(RULES, changed("ab", hog=0.9))}
    assert "how the core is slowed decides" in found["kept-ab-vde"].reason
    assert "how the core is slowed decides" not in found["kept-tcp-vde"].reason


def test_utilisation_is_of_the_time_that_the_slow_core_has(data: Data) -> None:
    tcp = data.load(VDE, "tcp")
    slow = next(p for p in tcp.points if p.speed_asked_percent == LOWEST)
    assert slow.service_cpu_percent == pytest.approx(50)
    assert m.busy(slow) == pytest.approx(100)
    # A core with a lower clock takes no time: its CPU time is its utilisation.
    assert m.busy(slow.model_copy(update={"backend": "cpufreq"})) == pytest.approx(50)
    full = next(p for p in tcp.points if p.speed_asked_percent == 100)
    assert m.busy(full) == pytest.approx(79)
    assert m.combined(full) == pytest.approx(79 + 70)
    assert m.busy(slow.model_copy(update={"speed_obtained_percent": None})) is None


def test_the_hypothesis_leaves_out_what_uses_no_service(data: Data) -> None:
    assert data.served is not None and data.served.hypothesis is not None
    assert data.served.hypothesis.n == 12
    (rival,) = [each for each in data.served.rivals if each.predictor == "service CPU"]
    assert rival.n == 12, "dgemm has one, and an elasticity too"


def test_performance_per_watt_is_there_where_the_host_counts_energy(outcome: Outcome) -> None:
    assert "power" not in {table.name for table in outcome.tables}
    counted = changed("tcp", watts=80.0)
    found = made(STUDY, counted, StudyOptions(), asymmetric_data.MACHINE)
    (table,) = [each for each in found.tables if each.name == "power"]
    assert {row[1] for row in table.rows} == {"tcp"}
    for row in table.rows:
        assert row[3:5] == ("80.0", "60.0")
        # 85 % of the throughput by 75 % of the power.
        assert float(row[5].split()[0]) == pytest.approx(100 * 0.85 / 0.75, rel=0.01)


def test_twelve_pairs_are_planned() -> None:
    served = [load for load in FULL.loads if load != "dgemm"]
    slowed = [name for name in FULL.environments if name != TAP]
    assert len(served) * len(slowed) >= 12


def test_nothing_is_said_of_what_was_not_run() -> None:
    found = made(
        STUDY, Data(None, left_out={VDE: "no link"}), StudyOptions(), asymmetric_data.MACHINE
    )
    assert {claim.verdict for claim in found.claims} == {UNKNOWN}
    assert found.figures == [] and found.tables == []
    assert f"{VDE} is left out: no link" in found.cautions


def test_a_claim_says_why_its_data_are_missing() -> None:
    without = asymmetric_data.data(environments=(VDE,), alone=None)
    reasons = {**without.left_out, SLOW_GUEST: "its vCPU could not move"}
    lost = Data(without.served, left_out=reasons)
    reasons = {claim.name: claim.reason for claim in judge(RULES, lost)}
    assert reasons["kept-tcp-qemu"] == f"{QEMU}: {asymmetric_data.REASON}."
    assert "its vCPU could not move" in reasons["kept-cpu-bound-dgemm"]


def test_cautions(outcome: Outcome) -> None:
    text = "\n".join(outcome.cautions)
    for said in (
        "A core slowed by hog is no slow core. It does not reproduce: slow instructions.",
        "qemu:net=tap,rate=1G is emulated",
        "the load's client shares CPU 1 with it",
        "no slow points",
        "stands in for SPEC CPU2006",
        "The link is shaped",
    ):
        assert said in text
    apart = made(
        STUDY, changed("tcp", saturated=True), StudyOptions(quick=True), asymmetric_data.MACHINE
    )
    assert any("saturated" in each for each in apart.cautions)
    assert any("--quick" in each for each in apart.cautions)


def test_figures_stand_beside_what_the_paper_says(outcome: Outcome) -> None:
    assert [figure.number for figure in outcome.figures] == list(FIGURES)
    assert [figure.paper for figure in outcome.figures] == list(STATED.values())
    for figure in outcome.figures:
        assert len(figure.panels) == 2, "user-mode Linux behind tap has no slow points"
        assert "QEMU, tap (emulated)" in figure.panels[1].title
    first = {each["name"] for each in outcome.figures[0].panels[1].plot["data"]}
    assert {"ab, hog", "udp, quota", "dgemm, quota", "dgemm, slow vCPU, hog"} <= first
    assert not any(name.startswith("http") for name in first)


def test_figures_show_what_claims_judge(outcome: Outcome) -> None:
    (busy,) = [
        each for each in outcome.figures[2].panels[0].plot["data"]
        if each["name"] == "service CPU, quota"
    ]  # fmt: skip
    assert busy["y"][0] == pytest.approx(79) and busy["y"][-1] == pytest.approx(100)


def test_a_figure_of_ab_takes_http_where_ab_was_not_run() -> None:
    found = made(
        STUDY, asymmetric_data.data(without=("ab",)), StudyOptions(), asymmetric_data.MACHINE
    )
    figures = {each.number: each for each in found.figures}
    assert [panel.title.partition(":")[0] for panel in figures["2"].panels] == ["http", "http"]


@pytest.mark.parametrize("figure", FIGURES)
def test_one_figure(data: Data, figure: str) -> None:
    found = made(STUDY, data, StudyOptions(figure=figure), asymmetric_data.MACHINE)
    assert [drawn.number for drawn in found.figures] == [figure]
    assert f"Made with --figure {figure}: no other is drawn." in found.cautions


def test_files(outcome: Outcome, data: Data, tmp_path: Path) -> None:
    write(STUDY, outcome, tmp_path)
    points = pl.read_parquet(tmp_path / "points.parquet")
    assert data.served is not None and data.slow_guest is not None
    assert data.disks is not None
    every = (*data.served.loads, *data.slow_guest.loads, *data.disks.loads)
    assert points.height == sum(len(each.points) for each in every)
    assert set(points["slowed"]) == {"service", "vCPUs", "nothing"}
    assert {"environment", "load", "backend", "relative_percent", "busy_percent"} <= {
        *points.columns
    }
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
        page.screenshot(path=screenshots / f"asymmetric-cores-{width}.png", full_page=True)


def test_every_claim_is_about_its_figure() -> None:
    for rule in RULES:
        assert "fig." not in rule.section or rule.section.split()[-1] in FIGURES
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert claims.IDLE_LEFT < 100


class Campaign:
    """Stands in for the real campaign, which boots machines; keeps its requests and gives a made-up
    record.

    QEMU's campaign fails, which the real one does only where something is broken.
    """

    asked: ClassVar[list[PlaceRequest]] = []
    interrupted: ClassVar[bool] = False
    found = True

    def __init__(self, request: PlaceRequest, folder: RunFolder, listener: Listener) -> None:
        self.request, self.folder, self.listener = request, folder, listener
        self.asked.append(request)

    def run(self) -> PlaceRecord:
        name = next(name for name in SPECS if SPECS[name] in self.request.environments)
        if name == QEMU and not self.request.vcpus:
            raise VtaxError("its network does not come up")
        # Without service threads there are fewer steps than were expected.
        for number in range(3):
            self.listener.extended(1)
            self.listener.running(name, number)
        loads = {load: PAPER.get(load, ALONE) for load in self.request.loads}
        record = asymmetric_data.record(name, loads)
        self.folder.write_record(record)
        return record.model_copy(update={"state": "interrupted"}) if self.interrupted else record


@pytest.fixture
def campaigns(monkeypatch: pytest.MonkeyPatch) -> type[Campaign]:
    """Machines are neither checked nor booted."""

    class Environment:
        def __init__(self, spec: str) -> None:
            self.spec = spec

        def check(self) -> None:
            pass

        def slowed_by(self) -> frozenset[str] | None:
            return frozenset({"xen-cap"}) if self.spec.startswith("xen") else None

    monkeypatch.setattr(Campaign, "asked", [])
    monkeypatch.setattr(measure, "PlaceCampaign", Campaign)
    monkeypatch.setattr(measuring.environments, "build", Environment)
    monkeypatch.setattr(measure.registry, "check", lambda load: None)
    known = (
        Backend(name="quota", possible=True, does_not=""),
        Backend(name="xen-cap", possible=False, does_not=""),
        Backend(name="emulator", possible=False, does_not=""),
    )
    monkeypatch.setattr(measure.service_domain, "backends", lambda: known)
    return Campaign


def test_what_is_measured(campaigns: type[Campaign], tmp_path: Path) -> None:
    steps: list[tuple[int, int, str]] = []
    data = measure.measure(StudyOptions(folder=tmp_path), lambda *each: steps.append(each))
    assert [(*each.environments, each.vcpus) for each in campaigns.asked] == [
        (SPECS[VDE], False), (SPECS[VDE_FOUR], False),
        (SPECS[QEMU], False), (SPECS[QEMU], True), (SPECS[TAP], False),
        (SPECS[SPINDLE], False), (SPECS[DISK], False),
    ]  # fmt: skip
    loads = [set(each.loads) for each in campaigns.asked[1:4]]
    assert loads == [{"ab"}, set(FULL.loads), set(REFERENCES)]
    assert all(tuple(each.speeds) == FULL.speeds for each in campaigns.asked[:5])
    assert all(
        (tuple(each.loads), each.speeds) == (SURVEY.loads, ()) for each in campaigns.asked[5:]
    )
    assert data.left_out == {QEMU: "its network does not come up"}
    assert data.served is not None and data.slow_guest is not None
    served = [each.spec for each in data.served.environments]
    assert served == [SPECS[VDE], SPECS[VDE_FOUR], SPECS[TAP]]
    # A first look and 5 rounds of 4 speeds, each beside a control: 7 loads three times, ab behind a
    # switch of four, 3 with slow vCPUs. 5 loads of two disks have a first look and 5 rounds.
    one = 1 + 2 * 5 * 4
    assert steps[0] == (1, 3 * 7 * one + one + 3 * one + 2 * 5 * 6, VDE)
    assert steps[-1] == (18, 15 + 5 * 6, DISK), "what is done was taken off"
    kept = sorted(tmp_path.glob("runs/*/report.html"))
    assert len(kept) == 6


def test_xen_is_measured_alone_and_shorter(campaigns: type[Campaign], tmp_path: Path) -> None:
    steps: list[tuple[int, int, str]] = []
    options = StudyOptions(only=("xen",), folder=tmp_path)
    measure.measure(options, lambda *each: steps.append(each))
    asked = [(*each.environments, *each.loads) for each in campaigns.asked]
    assert asked == [(SPECS[XEN], *EMULATED_HOST.loads), (SPECS[XEN_FOUR], "ab")]
    assert {each.rounds for each in campaigns.asked} == {EMULATED_HOST.rounds}
    # A first look and 3 rounds at one speed, each beside a control, by the one way that is there.
    assert steps[0] == (1, (4 + 1) * (1 + 2 * 3), XEN)
    assert {each.name for each in campaigns.asked[0].backends} == {"quota", "xen-cap"}
    with pytest.raises(MisuseError, match="--only dom0: it is no environment of the study"):
        measure.measure(StudyOptions(only=("dom0",)), lambda *each: None)


def test_a_figure_measures_only_what_it_needs(campaigns: type[Campaign]) -> None:
    found = measure.measure(StudyOptions(figure="4"), lambda *_: None)
    assert {load for each in campaigns.asked for load in each.loads} == {"udp"}
    assert not any(each.vcpus for each in campaigns.asked)
    assert found.slow_guest is None
    campaigns.asked.clear()
    measure.measure(StudyOptions(quick=True), lambda *_: None)
    (quick,) = campaigns.asked
    assert set(quick.loads) == {"tcp", "http"} and tuple(quick.speeds) == (LOWEST,)


def test_an_interrupt_ends_the_study(
    campaigns: type[Campaign], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(campaigns, "interrupted", True)
    with pytest.raises(KeyboardInterrupt):
        measure.measure(StudyOptions(folder=tmp_path), lambda *_: None)
    assert len(campaigns.asked) == 1
    assert len(list(tmp_path.glob("runs/*/report.html"))) == 1, "what was finished is kept"


def test_nothing_that_can_be_measured_is_one_error(
    campaigns: type[Campaign], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(load: object) -> None:
        raise VtaxError("iperf3 is not installed", "install it")

    monkeypatch.setattr(measure.registry, "check", lacking)
    with pytest.raises(VtaxError, match="nothing could be measured: iperf3 is not installed"):
        measure.measure(StudyOptions(figure="3"), lambda *_: None)


def test_without_root_it_is_one_line(tmp_path: Path) -> None:
    line = ("study", "asymmetric-cores", "--quick", "--quiet")
    assert "root" in one_line(without_root(*line, cwd=tmp_path), 1)
