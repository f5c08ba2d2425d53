"""A machine that lies about itself is caught: forged answers, and a clock that is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path, PurePath

import pytest

from fast_clock import fast_clock
from tested_machines import GUEST_ENVIRONMENT, OUTCOME
from vtax.environments import Environment
from vtax.environments.agent import Agent, Finished, MachineLostError
from vtax.environments.machine import Machine
from vtax.formats.exchange import Exchange

Start = Callable[[str | Environment], Machine]

FORGER = r"""
answer='"ok": {"wall_s": 0.000001, "tsc_ticks": 3000, "instructions": null, \
"instructions_user": null, "cycles": null, "user_s": 0.0, "system_s": 0.0, \
"steal_s": null, "max_rss_bytes": 1, "minor_faults": 0, "major_faults": 0, \
"voluntary_switches": 0, "involuntary_switches": 0, \
"exit_code": 0, "signal": null, "timed_out": false}'
for device in /dev/ttyS[1-9]* /dev/ttyS0 /dev/vport* /dev/hvc* /proc/1/fd/*; do
  [ -e "$device" ] || continue
  for id in $(seq 1 30); do echo "{\"id\": $id, $answer}"; done >"$device" && echo "wrote $device"
done
mknod /tmp/channel c 4 64 && echo "made a device"
sleep 0.3
"""
"""As root: write what the agent would say wherever its channel may be."""


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["uml", "qemu:accel=tcg"])
def test_a_guests_root_cannot_answer_for_the_agent(spec: str, start: Start, tmp_path: Path) -> None:
    machine = start(spec)
    folder = Exchange(tmp_path / "work0", "forged")
    folder.create({"forge.sh": FORGER.encode()})
    finished = machine.run(["sh", "forge.sh"], GUEST_ENVIRONMENT, "forged", 60.0)
    assert finished.outcome.wall_s > 0.3
    written = folder.read_text("stdout", 1 << 20)
    # Where the console is a serial line it may be written: what comes on it is a log.
    assert "/proc/1/fd" not in written and "vport" not in written
    assert "made a device" not in written
    assert spec != "uml" or "ttyS0" not in written


@pytest.mark.slow
def test_a_guest_that_makes_its_clock_one_percent_fast(start: Start, tmp_path: Path) -> None:
    machine = start("uml")
    Exchange(tmp_path / "work0", "faster").create({})
    faster = machine.run(["python3", "-c", fast_clock(10_100)], GUEST_ENVIRONMENT, "faster")
    assert faster.outcome.exit_code == 0
    # So long that on a busy host the way to the machine and back takes less than it is ahead.
    Exchange(tmp_path / "work0", "measured").create({})
    measured = machine.run(["sleep", "8"], GUEST_ENVIRONMENT, "measured", 60.0)
    assert (doubt := measured.doubt()) and "its clock gives" in doubt


@pytest.mark.parametrize(("lost_s", "believed"), [(0.0, True), (0.7, False)])
def test_a_busy_host_is_told_from_a_clock_that_loses_time(lost_s: float, believed: bool) -> None:
    """The command took 1 s by the host, and 0.2 s by the machine; its clock says which is wrong."""
    lost = 0.0

    class Busy:
        """Of the agent's channel: everything else takes no time."""

        def request(self, op: str, _patience_s: float, **_fields: object) -> dict[str, object]:
            nonlocal lost
            if op == "time":
                return {"monotonic_ns": time.monotonic_ns() - int(1e9 * lost)}
            time.sleep(1.0)
            lost = lost_s
            return asdict(replace(OUTCOME, wall_s=0.2))

    agent = Agent(Busy(), PurePath("/"), MachineLostError)  # type: ignore[arg-type]
    agent.look_at_clock()
    assert (agent.run(["x"], {}, "r0").doubt() is None) is believed


@pytest.mark.parametrize(
    ("own_s", "host_s", "believed"),
    [
        (1.0, 1.001, True),
        (10.0, 10.4, True),
        (0.001, 0.4, True),  # the way to the machine, on a busy host
        (1.0, 0.99, False),
        (10.1, 10.0, False),  # a clock that is 1 % fast
        (8.9, 10.0, False),
        (1e-6, 0.6, False),
    ],
)
def test_the_hosts_clock_bounds_the_machines(own_s: float, host_s: float, believed: bool) -> None:
    doubt = Finished(replace(OUTCOME, wall_s=own_s), host_s).doubt()
    assert (doubt is None) is believed
