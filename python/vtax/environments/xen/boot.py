"""Bring dom0 up to running domUs, and let waiting domUs in."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from vtax.core.errors import VtaxError
from vtax.environments.agent import MachineLostError, unless_lost
from vtax.environments.channel import ChannelTimeoutError
from vtax.environments.emulated_host import exports
from vtax.environments.emulated_host.emulator import Emulator
from vtax.environments.emulated_host.host import EmulatedHost
from vtax.environments.xen import dom0

GUEST_TIMEOUT_S = 120.0
"""A domU takes 10 s on an idle machine."""
NOISE_BYTES = 64 << 10
"""What a domU's kernel may print before the agent is ready."""
_LOOK_EVERY_S = 2.0
_ABOUT_A_DOMU = re.compile(r"\(XEN\).*(\bd[1-9]\d*(v\d+)?\b|[Dd]omain [1-9])")
_OUT_OF_MEMORY = re.compile("Out of memory: Killed")
_LINES = 20
"""How many lines of the console to look at."""


def start_domus(
    emulator: Emulator, host: EmulatedHost, domains: Sequence[dom0.Domain]
) -> tuple[dict[str, Any], ...]:
    """Start the toolstack and the domUs, and wait until each waits to be let in.

    Raises VtaxError with the end of a domU's console when that domU does not come up.
    """
    host.must(dom0.shell(dom0.toolstack_script()), "start Xen's toolstack", leave=True)
    # One after the other: each has the CPU that they share while it boots.
    return tuple(_start(emulator, host, domain) for domain in domains)


def let_in(emulator: Emulator, host: EmulatedHost) -> tuple[dict[str, Any], ...]:
    """Give waiting domUs the real host's tree, and return their hellos.

    Raises VtaxError when a domU does not come up in time.
    """
    host.enter()
    host.must(dom0.shell(exports.share_script()), "share the host's tree with its domUs")
    found = []
    for number, channel in enumerate(emulator.guests):
        try:
            found.append(channel.let_in(GUEST_TIMEOUT_S, NOISE_BYTES))
        except VtaxError:
            what = "did not come up" if not _state(host, number) else "ended"
            raise _failed(emulator, number, what) from None
    return tuple(found)


def lost_guest(emulator: Emulator, host: EmulatedHost, number: int, what: str) -> MachineLostError:
    """The error for a domU that does not answer."""
    state = ""
    with unless_lost():
        state = _state(host, number)
    if state == dom0.BROKEN:
        what = f"lost its files: its back end in dom0 ended{_reason(emulator, _OUT_OF_MEMORY)}"
        return MachineLostError(f"{dom0.name(number)} {what}")
    if state == dom0.GONE:
        what = f"crashed or powered off{_reason(emulator, _ABOUT_A_DOMU)}"
        return MachineLostError(f"{dom0.name(number)} {what}", "give it more memory")
    # dom0 may have ended xl, which told of the domU's end, and not the domU.
    return MachineLostError(f"{dom0.name(number)} {what}{_reason(emulator, _OUT_OF_MEMORY)}")


def _start(emulator: Emulator, host: EmulatedHost, domain: dom0.Domain) -> dict[str, Any]:
    configuration = dom0.configuration(domain, dom0.own_boot(domain.number))
    host.push(str(dom0.configuration_file(domain.number)), configuration.encode())
    script = dom0.start_script(domain.number)
    host.must(dom0.shell(script), f"create {dom0.name(domain.number)}", leave=True)
    return _await_guest(emulator, host, domain.number)


def _await_guest(emulator: Emulator, host: EmulatedHost, number: int) -> dict[str, Any]:
    channel, deadline = emulator.guests[number], time.monotonic() + GUEST_TIMEOUT_S
    while True:
        try:
            return channel.waiting(_LOOK_EVERY_S, NOISE_BYTES)
        except ChannelTimeoutError:
            pass
        if _state(host, number):
            raise _failed(emulator, number, "ended while booting")
        if time.monotonic() > deadline:
            raise _failed(emulator, number, f"did not boot within {GUEST_TIMEOUT_S:.0f} s")


def _failed(emulator: Emulator, number: int, what: str) -> VtaxError:
    said = emulator.guests[number].noise.decode(errors="replace").split("\n")
    lines = " | ".join([line.strip() for line in said if line.strip()][-4:]) or "(nothing)"
    reason = _reason(emulator, _ABOUT_A_DOMU)
    return VtaxError(f"{dom0.name(number)} {what}{reason}; its console ends: {lines}")


def _reason(emulator: Emulator, about: re.Pattern[str]) -> str:
    """The last of what Xen and dom0 said about something."""
    said = [line for line in emulator.console.last_lines(_LINES) if about.search(line)]
    return f": {said[-1].removeprefix('(XEN) ')!r}" if said else ""


def _state(host: EmulatedHost, number: int) -> str:
    """GONE, BROKEN, or nothing for a domU that lives."""
    return host.run(dom0.shell(dom0.state_script(number))).stdout.strip()
