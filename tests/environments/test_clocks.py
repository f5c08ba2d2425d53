"""`vtax-agent clocks` in real machines: what must hold however busy they are."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tested_machines import GUEST_ENVIRONMENT
from vtax.core import binaries
from vtax.core.formats.exchange import Exchange
from vtax.environments import Environment
from vtax.environments.machine import Machine

NOBODY = 65534
SECONDS = 0.2
ALWAYS = ("CLOCK_REALTIME", "CLOCK_MONOTONIC", "CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME", "rdtsc")
CALLS = ("CLOCK_PROCESS_CPUTIME_ID", "CLOCK_THREAD_CPUTIME_ID", "clock", "getrusage", "times")
"""Clocks of CPU time, which Linux reads in the kernel only."""
ARGUMENTS = ("clocks", "--seconds", str(SECONDS), "--json")


def objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            yield from objects(part)


def judge(found: dict[str, Any]) -> None:
    """Check what cannot depend on what else the machine does."""
    for one in objects(found):
        if "reasons" in one:
            assert {name for name, value in one.items() if value is None} == set(one["reasons"])
            assert all(one["reasons"].values())
    clocks = found["clocks"]
    assert len(clocks) == 15
    for name in ALWAYS:
        assert clocks[name]["smallest_step"] > 0, name
    for name in CALLS:
        assert clocks[name]["path"] in ("syscall", "unknown"), name
    for clock in clocks.values():
        if cost := clock["cost_ns"]:
            spread = [cost[part] for part in ("min", "median", "p90", "p99", "max")]
            assert spread == sorted(spread) and spread[0] > 0 and cost["n"] >= 5
    # Nothing may set these two back, whatever machine is underneath.
    for name in ("CLOCK_MONOTONIC", "CLOCK_BOOTTIME"):
        assert clocks[name]["backward_same_cpu"]["steps"] == 0
    assert found["tsc"]["measured_hz"] > 1e6
    noise = found["noise"]
    assert noise["seconds"] >= SECONDS
    assert sum(part["count"] for part in noise["histogram"]) == noise["detours"]
    assert noise["lost_ns"] <= noise["seconds"] * 1e9 + 1
    assert noise["threshold_ns"] >= max(200, 4 * noise["usual_step_ns"])


def measured(**options: Any) -> dict[str, Any]:
    agent = binaries.find("vtax-agent")
    with agent.open("rb") as program:
        # The descriptor is used because another user may have no way to the file.
        argv = [f"/proc/self/fd/{program.fileno()}", *ARGUMENTS]
        options["pass_fds"] = [program.fileno()]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, **options)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_of_this_machine() -> None:
    found = measured()
    judge(found)
    if len(os.sched_getaffinity(0)) == 1:
        pytest.skip("one CPU: no clock is read in turn")
    across = [clock["backward_across_cpus"] for clock in found["clocks"].values()]
    seen = [turns for turns in across if turns is not None]
    # A very busy machine leaves out a turn or two, but not all fourteen.
    assert seen and all(turns["readings"] > 0 for turns in seen)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
def test_as_nobody_on_one_cpu() -> None:
    cpu = max(os.sched_getaffinity(0))
    found = measured(user=NOBODY, group=NOBODY, preexec_fn=lambda: os.sched_setaffinity(0, {cpu}))
    judge(found)
    monotonic = found["clocks"]["CLOCK_MONOTONIC"]
    assert found["noise"]["cpu"] == cpu
    assert monotonic["reasons"]["backward_across_cpus"] == "this process may use only one CPU"


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["uml:mem=256M", "qemu:accel=tcg,mem=512M"])
def test_of_a_guest(
    start: Callable[[str | Environment], Machine], tmp_path: Path, spec: str
) -> None:
    machine = start(spec)
    exchange = Exchange(tmp_path / "work0", "r0")
    exchange.create({})
    finished = machine.run(
        ["/run/vtax/vtax-agent", *ARGUMENTS], GUEST_ENVIRONMENT, "r0", timeout_s=60
    )
    assert finished.outcome.exit_code == 0, exchange.read_text("stderr")
    found = json.loads(exchange.read_text("stdout"))
    judge(found)
    assert found["steal"]["present"] is False and found["noise"]["steal_ns"] is None
    if machine.facts["virtualization"]["kind"] == "uml":
        assert "the host's" in found["tsc"]["reasons"]["base_leaf_hz"]
