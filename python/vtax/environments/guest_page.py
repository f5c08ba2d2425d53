"""Let a guest publish its counters in a page that the host samples (docs/record.md)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange

if TYPE_CHECKING:
    from vtax.environments.base import MachineLike

FILE = "guest-page"
"""The page's name in the machine's writable folder."""
FOLDER = "guest-page.run"
AGENT = "/run/vtax/vtax-agent"
"""The agent's path in a guest."""
BEGIN_TIMEOUT_S = 20.0
END_TIMEOUT_S = 20.0

_START = ': >published; : >errors; "$0" guest "$@" >published 2>errors & echo $! >pid'
_STOP = """read -r pid <pid; kill "$pid" 2>/dev/null; i=0
while [ -e "/proc/$pid" ] && [ "$i" -lt 100 ]; do sleep 0.1; i=$((i+1)); done"""


@dataclass(slots=True)
class Published:
    """A guest's page, while the guest publishes."""

    path: Path
    """The page on the host: what `vtax-host record --guest` takes."""
    final: dict[str, Any] | None = None
    """What the publisher printed at its end (`vtax-agent guest`)."""


@contextmanager
def published(
    machine: MachineLike,
    work: Path,
    *,
    device: bool = False,
    every: str = "10ms",
    applications: Sequence[str] = (),
) -> Iterator[Published]:
    """Publish in a guest until the block ends; the arguments are those of `begin`."""
    page = begin(machine, work, device=device, every=every, applications=applications)
    try:
        yield page
    finally:
        end(machine, work, page)


def begin(
    machine: MachineLike,
    work: Path,
    *,
    device: bool = False,
    every: str = "10ms",
    applications: Sequence[str] = (),
) -> Published:
    """Let a guest publish until `end` is called or the guest ends.

    `work` is the host's side of the machine's writable folder. `device`: publish through the memory
    of the guest's ivshmem device (`qemu:page=on`), otherwise by writing a file in that folder.
    Raises VtaxError when the publisher does not begin, with what it said.
    """
    page = Published(work / FILE)
    inside = str(machine.launch.work_inside / FILE)
    options = ["--every", every] + ([] if device else ["--page", inside])
    if applications:
        options += ["--app", ",".join(applications)]
    exchange = Exchange(work, FOLDER)
    exchange.create({})
    _shell(machine, _START, AGENT, *options)
    _await_page(page.path, exchange)
    return page


def end(machine: MachineLike, work: Path, page: Published) -> None:
    """End the publisher, and keep what it prints in `page`."""
    _shell(machine, _STOP)
    page.final = _final(Exchange(work, FOLDER))


def _shell(machine: MachineLike, script: str, *arguments: str) -> None:
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
    argv = ["/bin/sh", "-c", script, *arguments]
    machine.run(argv, environment, FOLDER, timeout_s=END_TIMEOUT_S, leave=True)


def _await_page(path: Path, exchange: Exchange) -> None:
    """Wait for the first whole publication."""
    deadline = time.monotonic() + BEGIN_TIMEOUT_S
    while time.monotonic() < deadline:
        if has_begun(path):
            return
        if said := exchange.read_text("errors").strip():
            raise VtaxError(f"the guest does not publish its counters: {said}")
        time.sleep(0.02)
    raise VtaxError(f"the guest has not published its counters within {BEGIN_TIMEOUT_S:.0f} s")


def has_begun(path: Path) -> bool:
    """Whether something was published in the page."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        head = file.read(32)
    # This is the time stamp: the names alone are written before it.
    return head.startswith(b"VTAXPAGE") and len(head) == 32 and any(head[24:32])


def _final(exchange: Exchange) -> dict[str, Any] | None:
    try:
        return foreign_json.parse_object(exchange.read_text("published"))
    except ValueError:
        return None
