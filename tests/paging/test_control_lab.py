"""The controller on stock KVM in the lab: real exits, real switches, a guest that loses nothing.

The emulated processor has no counters. So instructions and TLB misses come from a page of counters
that a script of this test publishes: made-up numbers, which stand for those of a model. The exits,
the mode, the switches and their pauses are KVM's.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from counter_page import page
from paging_switch_lab import Background, Checked, SharedLab, mode, qemus, shell, started
from vtax.environments.emulated_host.host import EmulatedHost

pytestmark = pytest.mark.slow

PROGRAM = "/bin/vtax-host paging"
TRACEPOINT = "/sys/kernel/debug/tracing/events/kvm/kvm_exit"
LOADS, LOADS_ONLY = "hist:keys=exit_reason", "exit_reason == 0x13"
"""A histogram of the kernel's (trace/histogram.rst) of the exits for loads of CR3."""
SPLIT = "/sys/kernel/debug/split_huge_pages"
STATE = "/run/vtax/control"
LINES, LOG, POLICY, TRIES, PAGE, PAGES = (
    f"/run/control.{name}" for name in ("jsonl", "log", "toml", "tries.toml", "page", "pages")
)
NAIVE = """\
policy = "naive"
window = 10_000_000
[parameters]
threshold_vexit = 3
threshold_tmiss = 1000
"""
"""The policy leaves nested paging by what the page says, and shadow paging by what KVM counts."""
TRYING = """\
policy = "dav2m"
window = 50_000_000
[parameters]
window_vexit = 1_000_000_000_000
window_tmiss = 2_000_000_000_000
window_trans = 4_000_000_000_000
threshold_vexit = 3
"""
"""At the fourth exit the policy tries nested paging, for hours."""
PAUSED = 30
"""The longest pause in seconds: an emulated host is slow, and the guest faults all the time."""
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedLab]:
    with closing(SharedLab(tmp_path_factory.mktemp("shared"))) as lab:
        yield lab


@pytest.fixture
def installed(shared: SharedLab) -> None:
    with shared.use() as machine:
        install(machine.host)


def install(host: EmulatedHost) -> None:
    """Install the program and the policy."""
    host.push(POLICY, NAIVE.encode())
    host.push(TRIES, TRYING.encode())


class Feeder:
    """A script in the emulated host that publishes a page every half second."""

    def __init__(self, host: EmulatedHost, rising: bool = False) -> None:
        """With `rising`, an instruction takes more cycles in each page than in the one before."""
        self._host = host
        pages = []
        for number in range(1, 2001):
            told = {"instructions": 50_000_000, "cycles": 100_000_000, "tlb_misses": 1_000_000}
            if rising:
                told["cycles"] += 1_000_000 * number
            counters = {f"model.{name}": value * number for name, value in told.items()}
            pages.append(page(counters, 2 * number))
        host.push(PAGES, b"".join(pages))
        host.push(PAGE, pages[0])
        put = f"dd if={PAGES} of={PAGE} bs=4096 skip=$i count=1 conv=notrunc 2>/dev/null"
        loop = f"i=1; while [ $i -lt 2000 ]; do {put}; i=$((i+1)); sleep 0.5; done"
        self._pid = int(shell(host, f"setsid sh -c '{loop}' >/dev/null 2>&1 & echo $!"))

    def close(self) -> None:
        shell(self._host, f"kill -9 {self._pid}")


class Controller:
    """A controller in the emulated host."""

    def __init__(self, host: EmulatedHost, *options: str, policy: str = POLICY) -> None:
        self._host = host
        words = " ".join([f"--policy={policy}", f"--guest={PAGE}", "--json", *options])
        # The file is emptied before the controller is in the background, so that no earlier lines
        # are read.
        script = (
            f": >{LINES}; setsid {PROGRAM} control {words} >{LINES} 2>{LOG} </dev/null & echo $!"
        )
        self.pid = int(shell(host, script))

    def lines(self) -> list[dict[str, Any]]:
        text = self._host.pull(LINES).decode()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def until(self, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        """The controller's lines, as soon as `holds` is true of them."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            lines = self.lines()
            if holds(lines):
                return lines
            time.sleep(0.5)
        raise AssertionError((self.lines()[-5:], self._host.pull(LOG)))

    def end(self, signal: str = "TERM") -> None:
        wait = f"while kill -0 {self.pid} 2>/dev/null; do sleep 0.1; done"
        shell(self._host, f"kill -{signal} {self.pid}; {wait}")


def applied(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["applied"]]


def require_intact(guest: dict[str, Any], echo: dict[str, Any]) -> None:
    assert guest["verified"] is True and echo["verified"] is True, (guest, echo)
    assert guest["details"]["memory_passes"] > 0 and guest["details"]["messages"] > 0


@pytest.mark.usefixtures("installed")
def test_a_dry_run_reads_the_exits_and_says_what_is_missing(shared: SharedLab) -> None:
    with shared.use() as machine:
        load = Background(machine.guests[0], "fault-storm", "--mem 4M --seconds 3000")
        changes = Background(machine.guests[0], "context-switch", "--seconds 3000")
        machine.host.switch("shadow")
        shell(machine.host, f"echo '{LOADS} if {LOADS_ONLY}' >{TRACEPOINT}/trigger")
        done = machine.host.run([*PROGRAM.split(), "control", "--for", "4s", "--json"])
        histogram = shell(machine.host, f"cat {TRACEPOINT}/hist")
        shell(machine.host, f"echo '!{LOADS} if {LOADS_ONLY}' >{TRACEPOINT}/trigger")
        assert done.outcome.exit_code == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert {line["mode"] for line in lines} == {"shadow"}
        assert {line["decision"] for line in lines} == {"hold"}
        # Under shadow paging, each first touch of a page is an exit that paging causes.
        assert any(line["rates"].get("paging_exits", 0) > 100 for line in lines), lines
        # A guest that changes between programs loads CR3 each time, and each load is an exit.
        # The kernel's own histogram was on for longer than the windows.
        counted = sum(
            line["rates"]["cr3_exits"] * (line["time"] - before["time"])
            for before, line in itertools.pairwise(lines)
        )
        (hits,) = re.findall(r"Hits: (\d+)", histogram)
        assert int(hits) > 50, histogram
        assert 0.3 * int(hits) < counted < 1.05 * int(hits), (histogram, lines)
        assert lines[-1]["rates"]["guests"] == 1
        assert "sensor perf lost" in lines[-1]["reason"]
        # The controller touched nothing.
        assert mode(machine.host) == "shadow"
        machine.host.switch("nested")
        assert load.report()["verified"] is True
        assert changes.report()["verified"] is True


@pytest.mark.usefixtures("installed")
def test_it_switches_by_the_policy_and_the_guest_loses_nothing(shared: SharedLab) -> None:
    with shared.use() as machine:
        host = machine.host
        checked = Checked(machine, "2M")
        load = Background(machine.guests[0], "fault-storm", "--mem 4M --seconds 3000")
        with closing(Feeder(host)):
            # It only looks: it prints what it would do, and the host stays as it is.
            controller = Controller(host)
            lines = controller.until(lambda lines: any(line["to"] for line in lines))
            controller.end()
            wish = next(line for line in lines if line["to"])
            assert (wish["decision"], wish["to"], wish["applied"]) == ("switch", "shadow", False)
            assert "model.tlb_misses" in wish["gain_source"] and wish["gain_percent"] > 0
            assert mode(host) == "nested" and len(qemus(host)) == 1

            shell(host, f"rm -r {STATE}")
            controller = Controller(host, "--apply", f"--max-pause={PAUSED}s", "--min-dwell=4s")
            lines = controller.until(lambda lines: len(applied(lines)) >= 2)
            controller.end()
        to_shadow, to_nested = applied(lines)[:2]
        assert (to_shadow["to"], to_nested["to"]) == ("shadow", "nested")
        assert to_shadow["pause_ms"] > 0 and to_nested["pause_ms"] > 0
        assert to_nested["time"] - to_shadow["time"] >= 4
        # KVM counted what made it go back.
        assert to_nested["rates"]["paging_exits"] > 15
        state = json.loads(host.pull(f"{STATE}/state.json"))
        assert state["switching"] is None and len(state["guard"]["pauses_ms"]) >= 2
        # Before the first switch nobody knew its pause.
        assert 0 < state["guard"]["rehearsed_ms"] < 1e3 * PAUSED
        assert len(qemus(host)) == 1
        loaded = load.report()
        guest, echo = checked.reports()
        if mode(host) != "nested":
            host.switch("nested")
    assert loaded["verified"] is True
    require_intact(guest, echo)
    pauses = [round(line["pause_ms"]) for line in applied(lines)]
    print(f"pauses of {pauses} ms (emulated)")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("signal", [pytest.param("TERM", marks=pytest.mark.long), "KILL"])
def test_a_trial_ends_with_its_controller_or_the_next_one(shared: SharedLab, signal: str) -> None:
    with shared.use() as machine:
        host = machine.host
        shell(host, f"rm -rf {STATE}")
        host.switch("shadow")
        checked = Checked(machine, "2M")
        load = Background(machine.guests[0], "fault-storm", "--mem 4M --seconds 3000")
        with closing(Feeder(host)):
            options = ("--apply", f"--max-pause={PAUSED}s", "--min-dwell=1h")
            controller = Controller(host, *options, policy=TRIES)
            lines = controller.until(lambda lines: bool(applied(lines)))
            assert "wants to try nested" in applied(lines)[0]["reason"]
            assert mode(host) == "nested"
            trial = json.loads(host.pull(f"{STATE}/state.json"))["guard"]["trial"]
            assert trial["home"] == "shadow"
            controller.end(signal)
            if signal == "KILL":
                assert mode(host) == "nested"
                controller = Controller(host, *options, policy=TRIES)
                controller.until(lambda lines: bool(applied(lines)))
                controller.end()
        back = applied(controller.lines())[-1]
        assert back["to"] == "shadow" and back["reason"].startswith("back to shadow"), back
        assert mode(host) == "shadow" and len(qemus(host)) == 1
        assert json.loads(host.pull(f"{STATE}/state.json"))["guard"]["trial"] is None
        loaded = load.report()
        guest, echo = checked.reports()
        host.switch("nested")
    assert loaded["verified"] is True
    require_intact(guest, echo)


@pytest.mark.usefixtures("installed")
def test_one_that_is_killed_in_a_switch_brings_the_guest_back(shared: SharedLab) -> None:
    with shared.use() as machine:
        host = machine.host
        shell(host, f"rm -rf {STATE}")
        checked = Checked(machine, "2M")
        with closing(Feeder(host)):
            options = ("--apply", "--max-pause=60s", "--min-dwell=1h")
            controller = Controller(host, *options)
            # Guests are paused while the module is away.
            away = "while [ -e /sys/module/kvm_amd ]; do :; done"
            shell(host, f"{away}; kill -9 {controller.pid}")
            state = json.loads(host.pull(f"{STATE}/state.json"))
            assert state["switching"] == "shadow"
            again = Controller(host, *options)
            lines = again.until(lambda lines: len(lines) >= 4)
            again.end()
        assert "a switch to shadow was cut off: recovered" in lines[0]["events"][1], lines[0]
        assert {line["decision"] for line in lines} == {"hold"}
        assert json.loads(host.pull(f"{STATE}/state.json"))["switching"] is None
        assert len(qemus(host)) == 1
        guest, echo = checked.reports()
    require_intact(guest, echo)
    print(lines[0]["events"])


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    "rising", [pytest.param(False, marks=pytest.mark.long), True], ids=["steady", "rising"]
)
def test_a_guest_gets_huge_pages_while_it_runs(shared: SharedLab, rising: bool) -> None:
    with shared.use() as machine:
        host = machine.host
        shell(host, f"rm -rf {STATE}")
        checked = Checked(machine, "2M")
        load = Background(machine.guests[0], "random-touch", "--mem 32M --seconds 3000")
        (qemu,) = qemus(host)
        with closing(Feeder(host, rising)):
            controller = Controller(host, "--apply-huge", "--min-dwell=1h")
            lines = controller.until(lambda lines: said(lines, "are huge pages"))
            gave = first_that_said(lines, "are huge pages")
            given = gave["huge_bytes"]
            # 5 of 24 references of 1,000,000 misses at 150 cycles, in 100,000,000 cycles or more.
            assert 0 < gave["huge_gain_percent"] < 31.3
            assert "model.tlb_misses" in gave["huge_gain_source"]
            mapped, pages = huge_bytes(host, qemu)
            if not rising:
                # The kernel maps what was given, and KVM in its turn, as far as it was touched.
                assert given >= 32 << 20 and mapped == given
                assert 0 < pages <= mapped
                # Four windows later nothing has changed.
                lines = controller.until(lambda new: len(new) > len(lines) + 4)
                assert not said(lines, "given back") and lines[-1]["huge_bytes"] == given
            else:
                lines = controller.until(lambda lines: said(lines, "given back"))
                back = first_that_said(lines, "given back")
                assert "cycles per instruction rose" in back["events"][-1]
                assert back["huge_bytes"] == 0
                assert huge_bytes(host, qemu) == (0, 0)
            controller.end()
        assert not applied(lines) and qemus(host) == [qemu]
        if not rising:
            (start, end), *_ = memory(host, qemu)
            shell(host, f"echo {qemu},0x{start:x},0x{end:x} >{SPLIT}")
            assert huge_bytes(host, qemu) == (0, 0)
        loaded = load.report()
        guest, echo = checked.reports()
    assert loaded["verified"] is True
    require_intact(guest, echo)


def said(lines: list[dict[str, Any]], words: str) -> bool:
    return any(words in event for line in lines for event in line["events"])


def first_that_said(lines: list[dict[str, Any]], words: str) -> dict[str, Any]:
    """The line of that window: more may have come until the lines were read."""
    return next(line for line in lines if said([line], words))


def memory(host: EmulatedHost, qemu: int) -> list[tuple[int, int]]:
    """The addresses of the guest's memory in its QEMU."""
    text = shell(host, f"grep /dev/shm/guest- /proc/{qemu}/maps")
    ranges = (line.split()[0].split("-") for line in text.splitlines())
    return [(int(start, 16), int(end, 16)) for start, end in ranges]


def huge_bytes(host: EmulatedHost, qemu: int) -> tuple[int, int]:
    """Bytes that the kernel maps with huge pages, and those that KVM does."""
    smaps = shell(host, f"cat /proc/{qemu}/smaps")
    mapped = sum(int(kib) << 10 for kib in re.findall(r"ShmemPmdMapped: +(\d+) kB", smaps))
    return mapped, int(shell(host, "cat /sys/kernel/debug/kvm/pages_2m")) << 21


@pytest.mark.long
def test_two_guests_cross_together(tmp_path: Path) -> None:
    with started(tmp_path, guests="2") as machine:
        host = machine.host
        install(host)
        busy = [
            Background(guest, "round-trip", "--mem 8M --seconds 3000") for guest in machine.guests
        ]
        load = Background(machine.guests[0], "fault-storm", "--mem 4M --seconds 3000")
        with closing(Feeder(host)):
            controller = Controller(host, "--apply", "--max-pause=20s", "--min-dwell=4s")
            lines = controller.until(lambda lines: len(applied(lines)) >= 6)
            controller.end()
        assert load.report()["verified"] is True
        assert [each.report()["verified"] for each in busy] == [True, True]
        assert len(qemus(host)) == 2
        assert all(line["rates"]["guests"] == 2 for line in lines)
