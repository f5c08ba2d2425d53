"""What QEMU's plugin counts of a nested guest, against what is known of programs and of KVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from command_line import vtax
from counter_page import counters
from paging_switch_lab import AGENT, shell, started
from vtax.core.errors import MisuseError
from vtax.environments import build
from vtax.environments.emulated_host import plugins
from vtax.environments.lab import program
from vtax.environments.lab.machine import LabMachine
from vtax.environments.unpacked_qemu import QemuProgram

PAGES = 64 << 8
"""Pages of 64 MiB."""
ENTRIES = 3072
"""Entries of Zen 4's second TLB."""


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("lab:model=abacus", "model=abacus is unknown"),
        ("lab:model=zen4,smp=2", "counts a host with one CPU"),
    ],
)
def test_what_cannot_be_counted_is_refused(spec: str, said: str) -> None:
    with pytest.raises(MisuseError, match=said):
        build(spec)


def test_the_plugin_and_its_page_are_in_the_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "plugin.so"
    monkeypatch.setattr(plugins.binaries, "find", lambda _: plugin)
    monkeypatch.setattr(program, "find", lambda: QemuProgram(Path("/usr/bin/qemu"), "7.2.22"))
    assert program.boxed(None).options == ()
    emulator = program.boxed("zen4")
    inside = Path("/run/vtax/libvtax_nested.so")
    assert emulator.read_only == {plugin: inside}
    words = f"file={inside},page=/run/vtax/work/model-page,machine=zen4"
    assert emulator.options == ["-plugin", words]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LabMachine, Path]]:
    work = tmp_path_factory.mktemp("model")
    with started(work, model="zen4") as machine:
        yield machine, work / program.MODEL_PAGE.name


def counted(machine: LabMachine, page: Path, workload: str) -> dict[str, int]:
    """What the model counts while a workload of the agent runs in the guest."""
    before = counters(page)
    report = json.loads(shell(machine.guests[0], f"{AGENT} workload {workload} --json"))
    assert report["verified"] is True
    # The plugin publishes at exits, every 50 ms, and the guest's timer makes exits.
    shell(machine.guests[0], "sleep 0.2")
    after = counters(page)
    return {name.removeprefix("model."): after[name] - before[name] for name in after}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["nested", pytest.param("shadow", marks=pytest.mark.long)])
def test_a_known_program_has_the_misses_and_walks_that_it_must(
    machine: tuple[LabMachine, Path], mode: str
) -> None:
    """GUPS updates random words, once to measure and once to check: a page is in the TLB with a
    probability of ENTRIES / PAGES."""
    lab, page = machine
    lab.host.switch(mode)
    updates = 200_000
    twice = counted(lab, page, f"gups --mem 64M --count {2 * updates}")
    once = counted(lab, page, f"gups --mem 64M --count {updates}")
    more = {name: twice[name] - once[name] for name in twice}
    expected = 2 * updates * (1 - ENTRIES / PAGES)
    assert more["tlb_misses"] == pytest.approx(expected, rel=0.03)
    # Two levels of walk caches hold all tables but the lowest: one reference to it, and in nested
    # paging another to the host's, as no nested TLB holds 16,384 pages.
    references = {"nested": 2, "shadow": 1}[mode] * expected
    assert more["walk_references"] == pytest.approx(references, rel=0.05)
    parts = ("instructions", "walk_cycles", "vmm_cycles")
    assert twice["cycles"] > sum(twice[name] for name in parts)


@pytest.mark.slow
def test_exits_are_those_that_kvm_counts(machine: tuple[LabMachine, Path]) -> None:
    lab, page = machine
    lab.host.switch("shadow")
    before = lab.counters().values
    found = counted(lab, page, "fault-storm --mem 16M --count 20000")
    after = lab.counters().values
    kvms = {name: after[name] - before[name] for name in ("exits", "pf_taken", "invlpg")}
    # Exits of the requests themselves are in KVM's count.
    assert found["exits"] == pytest.approx(kvms["exits"], rel=0.05)
    # KVM has no count of loads of CR3, which are paging exits too.
    paging = kvms["pf_taken"] + kvms["invlpg"]
    assert paging > 40_000, "two for each page touched"
    assert 0.85 * paging < found["paging_exits"] < 1.1 * paging
    # KVM's work for such an exit takes some thousands of instructions.
    assert 2_000 < found["vmm_cycles"] / found["paging_exits"] < 50_000


@pytest.mark.slow
def test_a_recording_has_the_models_counters(tmp_path: Path) -> None:
    done = vtax(
        "record", "--in", "lab:guest=builtin,model=zen4", "--every", "100ms", "--guest", "page",
        "--out", str(tmp_path / "runs"), "--", "gups", "--mem", "16M", "--count", "200000",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = pl.read_parquet(tmp_path / "runs/intervals.parquet")
    # The recorder's own count of exits, beside the emulator's.
    exits = rows.select("kvm.exits", "model.exits").sum().row(0)
    assert exits[0] == pytest.approx(exits[1], rel=0.1)
    assert rows["model.instructions"].sum() > 1_000_000
