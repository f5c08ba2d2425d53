"""Bring an emulated host up to running guests, and let waiting guests in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from vtax.core.errors import VtaxError
from vtax.environments.agent import Agent, MachineLostError, unless_lost
from vtax.environments.channel import AgentError, Channel, ChannelTimeoutError
from vtax.environments.console import plain_text
from vtax.environments.emulated_host import exports
from vtax.environments.emulated_host.host import PATH, EmulatedHost
from vtax.environments.lab import nested
from vtax.environments.lab.guest_initramfs import BUSYBOX
from vtax.environments.lab.nested import Nested
from vtax.environments.machine_command import MachineCommand

GUEST_TIMEOUT_S = 180.0
"""An emulated guest of an emulated host takes 5 to 10 s on an idle machine."""
_LOOK_EVERY_S = 2.0


class GuestBootError(VtaxError):
    """A nested guest did not come up."""


def start_guests(
    host: EmulatedHost, channels: Sequence[Channel], guest: Nested
) -> tuple[dict[str, Any], ...]:
    """Start the nested guests and wait until each is ready, or waits to be let in.

    Raises GuestBootError with the end of a guest's console when that guest does not come up.
    """
    if not channels:
        return ()
    host.shell(nested.prepare_script(len(channels)), "be made ready for guests")
    for number in range(len(channels)):
        host.must(nested.command(guest, number), f"start guest {number}", leave=True)
    hellos = tuple(
        _await_guest(host, channel, number, waits=guest.kind == "host")
        for number, channel in enumerate(channels)
    )
    if guest.kind == "builtin":
        for channel in channels:
            _furnish(channel)
    return hellos


def pause(host: EmulatedHost, count: int) -> None:
    """Hold all guests, so that the emulated host can be saved."""
    host.shell(nested.pause_script(count), "pause its guests")


def resume(host: EmulatedHost, count: int) -> None:
    """Let paused guests run on."""
    host.shell(nested.resume_script(count), "resume its guests")


def let_in(host: EmulatedHost, channels: Sequence[Channel]) -> tuple[dict[str, Any], ...]:
    """Give waiting guests the real host's tree, and return their hellos.

    Raises VtaxError when a guest does not come up in time.
    """
    host.enter()
    host.shell(exports.share_script(), "share the host's tree with its guests")
    found = []
    for number, channel in enumerate(channels):
        try:
            found.append(channel.let_in(GUEST_TIMEOUT_S))
        except VtaxError:
            raise _failed(host, number, f"did not come up within {GUEST_TIMEOUT_S:.0f} s") from None
    return tuple(found)


def console(host: EmulatedHost, number: int) -> list[str]:
    """The last lines that guest `number` printed. Raises MachineLostError when the host is lost."""
    raw = b""
    with unless_lost():
        raw = host.tail(str(nested.folder(number) / "console"))
    lines = [line.strip() for line in plain_text(raw).splitlines() if line.strip()]
    return lines[-6:] or ["(nothing)"]


def _furnish(channel: Channel) -> None:
    """Give a guest that has only busybox an address, and the names of busybox's programs."""

    def lost(what: str) -> MachineLostError:
        return MachineLostError(f"the nested guest {what} while it was furnished")

    agent = Agent(channel, PurePosixPath("/run/vtax"), lost, emulated_clock=True)
    argv = [f"/{BUSYBOX}", "sh", "-c", nested.furnish_script(f"/{BUSYBOX}")]
    finished = agent.run(MachineCommand(argv, PATH, "furnish", GUEST_TIMEOUT_S))
    if finished.outcome.exit_code != 0:
        raise VtaxError("the nested guest's shell could not be installed")


def _await_guest(
    host: EmulatedHost, channel: Channel, number: int, *, waits: bool
) -> dict[str, Any]:
    deadline = time.monotonic() + GUEST_TIMEOUT_S
    while True:
        try:
            return channel.waiting(_LOOK_EVERY_S) if waits else channel.hello(_LOOK_EVERY_S)
        except ChannelTimeoutError:
            pass
        # Nobody closes the channel when the nested QEMU ends: its port stays.
        if not _lives(host, number):
            raise _failed(host, number, "ended while booting")
        if time.monotonic() > deadline:
            raise _failed(host, number, f"did not boot within {GUEST_TIMEOUT_S:.0f} s")


def _lives(host: EmulatedHost, number: int) -> bool:
    try:
        pid = host.pull(str(nested.folder(number) / "pid"), 64).decode().strip()
    except AgentError:
        # QEMU removes the file when it ends.
        return False
    return host.run(["busybox", "kill", "-0", pid]).outcome.exit_code == 0


def _failed(host: EmulatedHost, number: int, what: str) -> GuestBootError:
    lines = " | ".join(console(host, number))
    return GuestBootError(f"the nested guest {what}; its console ends: {lines}")
