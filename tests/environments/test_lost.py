"""A lost machine: every later request says that it is lost, and nothing swallows the error."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path, PurePath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tested_machines import GUEST_ENVIRONMENT
from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.environments import Environment
from vtax.environments.agent import Agent, MachineLostError, unless_lost
from vtax.environments.channel import Channel, ChannelClosedError
from vtax.environments.machine import Machine
from vtax.environments.machine_command import MachineCommand

Start = Callable[[str | Environment], Machine]
Use = Callable[[Agent], object]

USES: dict[str, Use] = {
    "facts": Agent.facts,
    "set_clock": Agent.set_clock,
    "clock_skew": Agent.clock_skew,
    "look_at_clock": Agent.look_at_clock,
    "push": lambda agent: agent.push("/x", b"a" * 4000),
    "pull": lambda agent: agent.pull("/x"),
    "tail": lambda agent: agent.tail("/x", 10),
    "list": lambda agent: agent.list_files("/"),
    "run": lambda agent: agent.run(MachineCommand(["true"], {}, "r0")),
    "halt": lambda agent: agent.request("halt", 1.0),
}
"""Requests that a live agent would answer."""

LAST_WORDS = st.one_of(
    st.just(b""),
    st.binary(max_size=60).map(lambda data: data.replace(b"\n", b"") + b"\n"),
    st.sampled_from([b'{"id": 1, "ok": {}}\n', b"[1]\n", b'{"ok"', b"7\n", b"[" * 5000 + b"\n"]),
)
"""Bytes that a machine may have written before it was lost."""


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(sorted(USES)), min_size=2, max_size=6), LAST_WORDS)
def test_every_use_after_the_loss_raises_the_same_error(names: list[str], said: bytes) -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    losses: list[str] = []

    def lost(what: str) -> MachineLostError:
        losses.append(what)
        channel.close()
        return MachineLostError(f"the machine {what}", "look at its console")

    agent = Agent(channel, PurePath("/"), lost)
    theirs.sendall(said)
    theirs.close()
    raised = []
    for name in names:
        with pytest.raises(MachineLostError) as caught:
            USES[name](agent)
        raised.append((caught.type, str(caught.value)))
        agent.renew()
    assert len(losses) == 1 and len(set(raised)) == 1


@pytest.mark.parametrize("use", [lambda c: c.hello(1.0), lambda c: c.request("ping", 1.0)])
def test_a_closed_channel_is_no_traceback(use: Callable[[Channel], object]) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        channel = Channel(ours)
        channel.close()
        with pytest.raises(ChannelClosedError):
            use(channel)


def test_what_may_fail_goes_on_but_not_without_its_machine() -> None:
    with unless_lost(ValueError):
        raise VtaxError("the program said nothing")
    with unless_lost(ValueError):
        raise ValueError
    with pytest.raises(MachineLostError, match="died"), unless_lost(ValueError):
        raise MachineLostError("died")
    with pytest.raises(ValueError, match="other"), unless_lost():
        raise ValueError("other")


def test_a_real_agent_that_is_killed(start: Start, tmp_path: Path) -> None:
    machine = start("native")
    os.kill(machine.pid, signal.SIGKILL)
    Exchange(tmp_path / "work0", "r0").create({})
    said = set()
    uses: list[Callable[[], object]] = [
        lambda: machine.run(["true"], GUEST_ENVIRONMENT, "r0"),
        machine.refresh_facts,
        machine.clock_skew,
        lambda: machine.push("/tmp/never", b""),
        machine.pause,
        machine.resume,
    ]
    for use in uses:
        with pytest.raises(MachineLostError) as caught:
            use()
        said.add(str(caught.value))
    assert len(said) == 1, said
    machine.close()
