"""A machine that lies about itself is caught: forged answers, and a clock that is wrong."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path, PurePath
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fast_clock import fast_clock
from tested_machines import GUEST_ENVIRONMENT, OUTCOME
from vtax.core.formats.exchange import Exchange
from vtax.environments import Environment
from vtax.environments.agent import Agent, Finished, MachineLostError
from vtax.environments.channel import (
    AgentError,
    Channel,
    ChannelClosedError,
    ForgedAnswerError,
    Span,
)
from vtax.environments.machine import Machine
from vtax.environments.machine_command import MachineCommand

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
"""A script for root: write what the agent would say wherever its channel may be."""


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["uml", "qemu:accel=tcg"])
def test_a_guests_root_cannot_answer_for_the_agent(spec: str, start: Start, tmp_path: Path) -> None:
    machine = start(spec)
    folder = Exchange(tmp_path / "work0", "forged")
    folder.create({"forge.sh": FORGER.encode()})
    finished = machine.run(["sh", "forge.sh"], GUEST_ENVIRONMENT, "forged", 60.0)
    assert finished.outcome.wall_s > 0.3
    written = folder.read_text("stdout", 1 << 20)
    # Where the console is a serial line it may be written: what comes over it is a log.
    assert "/proc/1/fd" not in written and "vport" not in written
    assert "made a device" not in written
    assert spec != "uml" or "ttyS0" not in written


@pytest.mark.slow
def test_a_guest_that_makes_its_clock_one_percent_fast(start: Start, tmp_path: Path) -> None:
    machine = start("uml")
    Exchange(tmp_path / "work0", "faster").create({})
    faster = machine.run(["python3", "-c", fast_clock(10_100)], GUEST_ENVIRONMENT, "faster")
    assert faster.outcome.exit_code == 0
    # Each is long enough that the way to the machine and back mostly takes less than the lead. On a
    # busy host one may hide it, not all.
    doubts = []
    for name in ("first", "second", "third"):
        Exchange(tmp_path / "work0", name).create({})
        doubts.append(machine.run(["sleep", "8"], GUEST_ENVIRONMENT, name, 60.0).doubt())
        if doubts[-1]:
            break
    assert doubts[-1] and "its clock gives" in doubts[-1]


class Scripted:
    """An agent's channel on which a command takes `host_s` here and reports `own_s`."""

    def __init__(self, own_s: float, host_s: float = 0.0, lost_s: float = 0.0) -> None:
        self.own_s, self.host_s, self.lost_s = own_s, host_s, lost_s
        self.lost = 0.0

    def request(
        self, op: str, _patience_s: float, *, span: Span | None = None, **_fields: object
    ) -> dict[str, object]:
        if op == "time":
            return {"monotonic_ns": time.monotonic_ns() - int(1e9 * self.lost)}
        assert span is not None
        span.asked_s = time.monotonic()
        span.announced({"begins": True}, time.monotonic())
        time.sleep(self.host_s)
        span.announced({"ended": True}, time.monotonic())
        span.announced({"ok": {}}, time.monotonic())
        self.lost = self.lost_s
        return asdict(replace(OUTCOME, wall_s=self.own_s))

    def run(self, *, emulated: bool = False) -> Finished:
        agent = Agent(self, PurePath("/"), MachineLostError, emulated_clock=emulated)  # type: ignore[arg-type]
        agent.look_at_clock()
        return agent.run(MachineCommand(["x"], {}, "r0"))


@pytest.mark.parametrize(("lost_s", "believed"), [(0.0, True), (0.7, False), (-0.7, False)])
def test_a_busy_host_is_told_from_a_clock_that_is_wrong(lost_s: float, believed: bool) -> None:
    """The command took 1 s by the host, and 0.2 s by the machine; the machine's clock says which is
    wrong."""
    finished = Scripted(0.2, 1.0, lost_s).run()
    assert (finished.doubt() is None) is believed
    assert finished.by_host and finished.outcome.wall_s == finished.host_wall_s >= 1.0


def test_an_emulators_time_is_kept_and_never_doubted() -> None:
    for own_s in (0.05, 0.9):
        finished = Scripted(own_s, 0.3, 0.7).run(emulated=True)
        assert finished.doubt() is None and not finished.by_host
        assert finished.outcome.wall_s == own_s


@pytest.mark.parametrize(
    ("own_s", "host_s", "taken_s"),
    [
        (1.0, 1.001, 1.0),
        (10.0, 10.1, 10.0),
        (0.001, 0.02, 0.001),
        (1.0, 0.995, 1.0),  # the host heard late that it began
        (1.0, 0.9, None),
        (10.1, 10.0, None),  # a clock that is 1 % fast
        (8.9, 10.0, 10.0),
        (1e-6, 0.6, 0.6),
        (0.002, 2.69, 2.69),
    ],
)
def test_the_hosts_clock_bounds_the_machines(
    own_s: float, host_s: float, taken_s: float | None
) -> None:
    finished = Finished(replace(OUTCOME, wall_s=own_s), host_s, host_s + 0.001)
    assert (finished.doubt() is None) is (taken_s is not None)
    assert taken_s is None or finished.outcome.wall_s == taken_s


@given(
    own_s=st.floats(0.0, 1e5),
    host_s=st.floats(0.0, 1e5),
    before_s=st.floats(0.0, 10.0),
    after_s=st.floats(0.0, 10.0),
)
def test_no_lie_is_shorter_than_the_hosts_own_measure(
    own_s: float, host_s: float, before_s: float, after_s: float
) -> None:
    longest_s = before_s + host_s + after_s
    finished = Finished(replace(OUTCOME, wall_s=own_s), host_s, longest_s)
    if finished.doubt() is not None:
        return
    taken = finished.outcome.wall_s
    assert taken in (own_s, host_s)
    assert taken >= 0.99 * host_s - 0.02
    assert taken <= 1.005 * longest_s + 0.001


FRAMES = ('"begins": true', '"ended": true', '"ok": {}', '"error": {"kind": "spawn"}')
WHOLE = (0, 1, 2)


@given(st.lists(st.sampled_from(range(4)), max_size=6))
def test_announcements_come_once_and_in_their_order(sent: list[int]) -> None:
    ours, theirs = socket.socketpair()
    with Channel(ours) as channel, theirs, patch("secrets.randbits", lambda _bits: 5):
        for each in sent:
            theirs.sendall(b'{"id": 5, %s}\n' % FRAMES[each].encode())
        theirs.shutdown(socket.SHUT_WR)
        span = Span()
        try:
            channel.request("run", 1.0, span=span)
        except AgentError:
            said = sent[: sent.index(3)]
        except ChannelClosedError:
            assert sent == list(WHOLE[: len(sent)]) and len(sent) < 3
            return
        except ForgedAnswerError:
            assert sent[:3] != list(WHOLE)
            return
        else:
            assert sent[:3] == list(WHOLE) and 0 <= span.host_wall_s <= span.longest_s
            return
        assert said in ([], [0], [0, 1])
