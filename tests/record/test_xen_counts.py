"""Xen's events in dom0: exact where the counts are known, as xenalyze reads them, on one clock,
and off again after any end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.environments.base import allowed_cpus
from vtax.environments.machine_command import MachineCommand
from vtax.environments.xen.machine import XenMachine
from xen_events import DOMU_CPU, Dom0, Recorded, tiny, xenalyze

pytestmark = pytest.mark.slow

COUNT = 20_000
KNOWN = {
    "pv": ("hypercall.xen_version", "pv_forced_emulation", "hypercall.mmu_update"),
    "pvh": ("hypercall.xen_version", "cpuid", "vmexit.0x72"),
}
"""What a tiny domain makes COUNT of."""
XEN_VERSION = 17
OTHER_CALLS = 1000
"""More than the other domU calls xen_version in two seconds in which it has nothing to do."""
SVM_EXITS = {"INTR": 0x60, "RDTSC": 0x6E, "CPUID": 0x72, "HLT": 0x78, "IOIO": 0x7B, "VMMCALL": 0x81}
"""AMD64 Architecture Programmer's Manual, volume 2, appendix C."""
NAMES = {
    "page_fault": "pv_page_fault",
    "emulate privop": "pv_emulate",
    "forced_invalid_op": "pv_forced_emulation",
    "ptwr": "pv_table_write",
    "math state restore": "0x201008",
    "hypercall (subcall)": "multicall_entry",
}
"""The columns of what xenalyze counts of PV domains."""
CPUS = (0, 1)
FEW_BYTES = 64 << 10
"""Records while nobody reads them for two seconds have 400 kB where tracing is on; turning it on
and off again makes less than 1 kB."""
ROW_NS = 10_000_000


def started(spec: str, work: Path) -> XenMachine:
    environment = checked(spec)
    machine = environment.start(work, allowed_cpus()[-environment.host_cpus() :])
    assert isinstance(machine, XenMachine)
    return machine


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[XenMachine]:
    with started("xen", tmp_path_factory.mktemp("machine")) as machine:
        yield machine


@pytest.fixture(scope="module")
def dom0(machine: XenMachine) -> Dom0:
    return Dom0(machine)


def agree(recorded: Recorded) -> None:
    """The whole trace is counted as xenalyze counts it, but for what was lost and, where it does
    not know the domain yet, the first record of each CPU."""
    lost = recorded.record["lost_records"]
    ours = dict.fromkeys(recorded.rows.columns, 0)
    for cpu in CPUS:
        for name, count in recorded.sums(cpu).items():
            ours[name] += count
    theirs: dict[str, int] = {}
    calls: dict[int, int] = {}
    for domain in xenalyze(recorded).values():
        for xenalyzed, name in NAMES.items():
            theirs[f"xen.{name}"] = theirs.get(f"xen.{name}", 0) + domain.counts[xenalyzed]
        for reason, code in SVM_EXITS.items():
            name = f"xen.vmexit.0x{code:x}"
            theirs[name] = theirs.get(name, 0) + domain.exits[reason]
        for number, count in domain.calls.items():
            calls[number] = calls.get(number, 0) + count
    abouts = {column["name"]: column["about"] for column in recorded.columns()}
    by_exit = ours.get("xen.vmmcall", 0)
    for number, count in calls.items():
        (name,) = (name for name, about in abouts.items() if f"number {number}," in about)
        if not by_exit:
            theirs[name] = count
    # xenalyze counts those of PVH domains with the exits, not with the others by number.
    all_calls = sum(count for name, count in ours.items() if name.startswith("xen.hypercall."))
    theirs["every"], ours["every"] = sum(calls.values()), all_calls - by_exit
    assert len(calls) > 5
    for name, count in theirs.items():
        assert abs(ours.get(name, 0) - count) <= lost + len(CPUS), name


@pytest.mark.parametrize("mode", ["pv", pytest.param("pvh", marks=pytest.mark.long)])
def test_tiny_domains_make_known_counts(mode: str, dom0: Dom0, tmp_path: Path) -> None:
    kernel = tiny(mode, COUNT, tmp_path)
    dom0.begin("--every", "10ms")
    number = dom0.run(mode, kernel)
    recorded = dom0.end(tmp_path / "out")
    lost = recorded.record["lost_records"]
    assert number in recorded.record["vms"]
    sums = recorded.sums(DOMU_CPU)
    assert sums.get("xen.lost_records", 0) <= lost
    for name in KNOWN[mode]:
        most = COUNT + (OTHER_CALLS if name == "hypercall.xen_version" else 0)
        assert COUNT - lost <= sums[f"xen.{name}"] <= most, name
    assert lost or sums["xen.hypercall.sched_op"] >= 1
    agree(recorded)
    own = xenalyze(recorded)[number]
    if not lost:
        counted = own.calls[XEN_VERSION] if mode == "pv" else own.exits["VMMCALL"]
        assert counted == COUNT
        assert own.counts["forced_invalid_op"] == (COUNT if mode == "pv" else 0)
        assert own.exits["CPUID"] == (COUNT if mode == "pvh" else 0)


def test_rows_are_on_the_clock_of_dom0(machine: XenMachine, dom0: Dom0, tmp_path: Path) -> None:
    kernel = tiny("pv", COUNT, tmp_path)
    dom0.begin("--every", "10ms", "--guest-clock", "-5,7")
    before = machine.host.clock_skew()
    begin_ns = time.monotonic_ns()
    dom0.run("pv", kernel)
    end_ns = time.monotonic_ns()
    after = machine.host.clock_skew()
    recorded = dom0.end(tmp_path / "out")
    burst = recorded.rows.filter(
        pl.col("cpu") == DOMU_CPU, pl.col("xen.hypercall.mmu_update") > 100
    )
    assert len(burst) > 0
    within = max(before.within_ns, after.within_ns) + abs(after.offset_ns - before.offset_ns)
    # A row ends with the first record after its time, so the last may be longer.
    starts = burst["time_ns"] - burst["length_ns"]
    assert starts.max() <= end_ns + before.offset_ns + within  # type: ignore[operator]
    assert burst["time_ns"].min() >= begin_ns + before.offset_ns - within  # type: ignore[operator]
    assert burst["time_ns"].min() - starts.min() <= 2 * ROW_NS  # type: ignore[operator]
    record = recorded.record
    assert record["guest_clock"] == {
        "skew_ns": 7,
        "exchange": {"offset_ns": -5, "within_ns": 7},
    }
    # The rate is that of dom0's clock, to the kHz, up to how closely both can be read.
    first, last = record["clocks"]
    took_ns = last["monotonic_ns"] - first["monotonic_ns"]
    ticks = last["tsc"] - first["tsc"]
    read_within = first["within"] + last["within"]
    assert abs(took_ns - ticks / record["tsc_hz"] * 1e9) < 1e-5 * took_ns + read_within


@pytest.mark.parametrize("killed", ["recorder", pytest.param("xentrace", marks=pytest.mark.long)])
def test_tracing_is_off_after_a_kill(killed: str, dom0: Dom0, tmp_path: Path) -> None:
    dom0.begin("--every", "10ms")
    victim = "cat pid" if killed == "recorder" else "pidof xentrace"
    dom0.shell(f"cd {dom0.FOLDER}; kill -9 $({victim})")
    # The next recording waits until tracing is off, and then shows its own time alone.
    dom0.begin("--every", "10ms")
    recorded = dom0.end(tmp_path / "next")
    assert recorded.record["records"] > 0
    first = recorded.rows["time_ns"] - recorded.rows["length_ns"]
    assert first.min() >= recorded.record["clocks"][0]["monotonic_ns"] - 1  # type: ignore[operator]
    dom0.begin("--every", "10ms")
    dom0.shell(f"cd {dom0.FOLDER}; kill -9 $({victim})")
    dom0.shell("i=0; while pidof xentrace > /dev/null || [ $i -lt 30 ]; do "
               "i=$((i+1)); [ $i -lt 200 ] || exit 1; sleep 0.1; done")  # fmt: skip
    dom0.left()
    time.sleep(2)
    assert dom0.left() < FEW_BYTES


@pytest.mark.long
def test_a_pvh_guest_is_counted_as_xenalyze_does(tmp_path: Path) -> None:
    (tmp_path / "look").mkdir()
    with started("xen:mode=pvh", tmp_path) as machine:
        dom0 = Dom0(machine)
        dom0.begin("--every", "10ms", "--buffer", "8M")
        dom0.shell("xl unpause guest0")
        line = MachineCommand(["true"], GUEST_ENVIRONMENT, "look", 60)
        assert machine.execute(line).outcome.exit_code == 0
        recorded = dom0.end(tmp_path / "out")
    sums = recorded.sums(DOMU_CPU)
    assert sums["xen.vmexit"] > 100 and sums["xen.vmmcall"] > 10
    agree(recorded)


@pytest.mark.long
def test_an_overrun_is_told(tmp_path: Path) -> None:
    kernel = tiny("pv", COUNT, tmp_path)
    with started("xen", tmp_path) as machine:
        dom0 = Dom0(machine)
        dom0.begin("--every", "10ms", "--buffer", "4K")
        dom0.run("pv", kernel)
        recorded = dom0.end(tmp_path / "out")
    lost = recorded.record["lost_records"]
    assert lost > 0
    assert (
        f"Xen lost {lost} records; what they would have counted is missing"
        in (recorded.record["warnings"])
    )
    assert recorded.rows["xen.lost_records"].sum() == lost
    sums = recorded.sums(DOMU_CPU)
    found = sum(sums.get(f"xen.{name}", 0) for name in KNOWN["pv"])
    assert found < 3 * COUNT <= found + sums["xen.lost_records"]
