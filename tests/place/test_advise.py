"""`vtax place advise`, `apply` and `watch` as a user calls them, with a real switch."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import one_line, vtax
from place_hosts import predictor, threads
from vtax.place import advise as place_advise
from vtax.place.energy import Drawn
from vtax.place.host_advice import HostThread
from vtax.place.interrupt_advice import HostInterrupt
from vtax.place.plan import PlannedInterrupt, cpu_list, cpu_numbers, read
from vtax.place.threads import Look

FRAME = bytes(6 * [0xFF]) + bytes(6 * [2]) + b"\x88\xb5" + bytes(500)
ON = cpu_numbers(Path("/sys/devices/system/cpu/online").read_text().strip())
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root moves threads of others")
needs_switch = pytest.mark.skipif(
    shutil.which("vde_switch") is None or shutil.which("vde_plug") is None, reason="needs vde2"
)
needs_two_cpus = pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="fast and slow cores take two CPUs"
)


@pytest.mark.parametrize("verb", ["advise", "apply", "watch"])
def test_help(verb: str, snapshot: SnapshotAssertion) -> None:
    assert vtax("place", verb, "--help").stdout == snapshot


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("advise", "--fast", "0", "--slow", "0"), "CPU 0: it is in --fast and in --slow"),
        (("advise", "--fast", "0", "--slow", "8191"), "CPU 8191 is not on"),
        (("advise", "--fast", "0", "--slow", "; id"), "'; id' is not a CPU number"),
        (("advise", "--slow", cpu_list(ON)), "--fast: no CPU is left for it"),
        (("advise", "--slow-speed", "fast"), "is not a percentage"),
        (("advise", "--loss", "0"), "not between 0 and 100"),
        (("advise", "--for", "1h"), "not from 100 ms to 120 s"),
        (("advise", "--rate", "quick"), "is not a number"),
        (("advise", "--guest-loss", "db"), "it is not NAME=PERCENT"),
        (("advise", "--guest-loss", "a=1%", "--guest-loss", "a=2%"), "a is given twice"),
        (("advise", "--from", "none"), "none is not a run folder"),
        (("advise", "--predictor", "none"), "cannot read none"),
        (("advise", "--like", "http"), "no run of 'vtax place measure' is in runs"),
        (("advise", "--like", "http", "--predictor", "p"), "both --like and --predictor"),
        (("apply",), "--plan: it is missing; give --plan FILE"),
        (("apply", "--undo", "--plan", "a"), "both it and --undo are given"),
        (("watch", "--from", "none"), "none/run.json: No such file"),
    ],
)
def test_misuse_is_one_line(argv: tuple[str, ...], said: str, tmp_path: Path) -> None:
    assert said in one_line(vtax("place", *argv, cwd=tmp_path), 2)
    assert list(tmp_path.iterdir()) == []


def test_a_budget_for_a_guest_that_does_not_run(tmp_path: Path) -> None:
    argv = ("place", "advise", "--for", "100ms", "--guest-loss", "<b>$(id)</b>=2%")
    said = one_line(vtax(*argv, cwd=tmp_path), 2)
    assert "<b>$(id)</b>" in said


def test_a_damaged_predictor(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('{"name": 3')
    said = one_line(vtax("place", "advise", "--predictor", "p.json", cwd=tmp_path), 1)
    assert "p.json is no predictor" in said


def test_without_a_run_vtaxs_own_measurements_answer(tmp_path: Path) -> None:
    done = vtax("place", "advise", "--for", "100ms", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "make one, or name one with --from" in found["notes"][0]
    assert found["predictor"]["from"].startswith("vtax's own measurements (20")
    assert "pairs of load and environment" in found["predictor"]["name"]


@needs_two_cpus
def test_a_plan_of_nothing_is_not_written(tmp_path: Path) -> None:
    found = advise(tmp_path, 0.02, "--pid", str(os.getpid()))
    assert found["threads"] == [] and found["plan"]["file"] is None
    assert "plan.toml is not written" in found["notes"][-1]
    assert not (tmp_path / "plan.toml").exists()


def look_at(*found: HostThread) -> Look:
    """Threads as if they ran here, with one interrupt on both kinds of CPUs and one on a fast
    CPU."""
    lines = HostInterrupt(24, "vfio-msix[3](0000:01:00.0)", "db", tuple(ON[:2]), None)
    fast = HostInterrupt(25, "eth0-rx-0", None, (ON[0],), None)
    return Look(1.0, found, (lines, fast), {}, Drawn(), ())


@needs_two_cpus
def test_libvirt_is_told_nothing_of_interrupts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("vtax.place.threads.look", lambda *_: look_at(*threads("kvm_vhost")))
    place_advise.advise(
        fast=str(ON[0]), slow=str(ON[1]), runs=tmp_path, format=place_advise.Format.LIBVIRT
    )
    said = capsys.readouterr()
    assert "<cputune>" in said.out and "interrupt" not in said.out
    assert "not in it: 1 interrupt: libvirt does not place interrupts" in said.err


@needs_two_cpus
def test_a_plan_of_interrupts_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    still = [replace(each, cpus=(ON[0],), last_cpu=ON[0]) for each in threads("kvm_vhost")]
    monkeypatch.setattr("vtax.place.threads.look", lambda *_: look_at(*still))
    file = tmp_path / "plan.toml"
    place_advise.advise(
        fast=str(ON[0]), slow=str(ON[1]), plan=file, runs=tmp_path, as_json=True
    )  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert [(each["number"], each["planned_cpus"]) for each in found["interrupts"]] == [
        (24, str(ON[0])), (25, str(ON[0])),
    ]  # fmt: skip
    assert found["plan"]["file"] == str(file)
    assert (found["plan"]["threads"], found["plan"]["interrupts"]) == (0, 1)
    plan = read(file)
    assert plan.thread == ()
    assert plan.interrupt == (PlannedInterrupt(number=24, cpus=str(ON[0])),)


@contextlib.contextmanager
def switch(folder: Path) -> Iterator[int]:
    """A switch that forwards frames all the time; its process number."""
    socket = str(folder / "switch")
    pipe = subprocess.PIPE
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(
            subprocess.Popen(["vde_switch", "-s", socket], stdin=pipe, stdout=subprocess.DEVNULL)
        )
        stack.callback(process.kill)
        while not Path(socket).exists():
            assert process.poll() is None
            time.sleep(0.01)
        plug = stack.enter_context(
            subprocess.Popen(["vde_plug", socket], stdin=pipe, stdout=subprocess.DEVNULL)
        )
        stack.callback(plug.kill)
        sender = threading.Thread(target=_send, args=(plug,), daemon=True)
        sender.start()
        yield process.pid


def _send(plug: subprocess.Popen[bytes]) -> None:
    burst = (struct.pack(">H", len(FRAME)) + FRAME) * 20
    with contextlib.suppress(OSError, ValueError):
        while plug.poll() is None:
            assert plug.stdin is not None
            plug.stdin.write(burst)
            plug.stdin.flush()
            time.sleep(0.01)


def advise(folder: Path, elasticity: float, *options: str) -> dict[str, Any]:
    (folder / "p.json").write_text(predictor(elasticity=elasticity, most=200.0).model_dump_json())
    done = vtax(
        "place", "advise", "--for", "1s", "--fast", str(ON[0]), "--slow", str(ON[1]),
        "--predictor", "p.json", "--plan", "plan.toml", *options, "--json", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@needs_root
@needs_switch
@needs_two_cpus
@pytest.mark.slow
@pytest.mark.parametrize(("elasticity", "advice", "cpu"), [(0.02, "slow", 1), (0.9, "fast", 0)])
def test_a_plan_is_applied_and_taken_back(
    elasticity: float, advice: str, cpu: int, tmp_path: Path
) -> None:
    with switch(tmp_path) as pid:
        before = os.sched_getaffinity(pid)
        assert before >= set(ON[:2]), "it may use both"
        found = advise(tmp_path, elasticity, "--pid", str(pid))
        (own,) = [each for each in found["threads"] if each["tid"] == pid]
        assert (own["role"], own["advice"]) == ("switch", advice), own
        assert own["low"] <= own["expected_loss_percent"] <= own["high"]
        assert found["plan"]["file"] == "plan.toml"
        assert [each.tid for each in read(tmp_path / "plan.toml").thread] == [pid]
        apply = ("place", "apply", "--state", "state", "--json")
        done = vtax(*apply, "--plan", "plan.toml", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert [each["tid"] for each in json.loads(done.stdout)["threads"]] == [pid]
        assert os.sched_getaffinity(pid) == {ON[cpu]}
        again = vtax(*apply, "--plan", "plan.toml", cwd=tmp_path)
        assert again.returncode == 2 and "undo" in again.stderr
        assert vtax(*apply, "--undo", cwd=tmp_path).returncode == 0
        assert os.sched_getaffinity(pid) == before


@needs_root
@needs_switch
@needs_two_cpus
@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_watch_gets_the_predictor_and_moves_nothing(known: bool, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(predictor().model_dump_json())
    with switch(tmp_path) as pid:
        before = os.sched_getaffinity(pid)
        done = vtax(
            "place", "watch", "--fast", str(ON[0]), "--slow", str(ON[1]), "--slow-speed", "50",
            "--every", "300ms", "--for", "1s", "--state", "state", "--json", "--pid", str(pid),
            *(("--predictor", "p.json") if known else ()), cwd=tmp_path,
        )  # fmt: skip
        assert os.sched_getaffinity(pid) == before
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines and all(each["carried_out"] is False for each in lines)
    assert any("no --predictor is given" in each["reason"] for each in lines) is not known
    assert ("make one, or name one with --from" in done.stderr) is not known
    assert not (tmp_path / "state").exists()
