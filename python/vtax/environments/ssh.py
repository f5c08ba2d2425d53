"""An existing machine that is reached by the system's `ssh`, with the user's own configuration."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import MisuseError, VtaxError
from vtax.environments import elsewhere, host_side, host_swap, mpi_hosts
from vtax.environments.agent import SHOWN_NOISE
from vtax.environments.base import Allocation, Launch, MachineLike, register
from vtax.environments.capabilities import Capability, Files, HostReadings, RecordInside
from vtax.environments.console import plain_text
from vtax.environments.elsewhere import Found
from vtax.environments.host_side import HostOf
from vtax.environments.host_swap import NO_SWAP, REFUSED, HostSwap
from vtax.environments.machine import Machine
from vtax.environments.nodes import Part, together
from vtax.environments.remote_machine import (
    RemoteMachine,
    said_by_script,
)
from vtax.environments.ssh_client import (
    ALIVE_COUNT,
    ALIVE_EVERY_S,
    CONNECT_S,
    Login,
    by_hand,
    explain,
)
from vtax.workloads.base import MachineShape


class SshClient(Check):
    """Machines elsewhere are reached by the system's ssh."""

    name = "ssh"
    purpose = "environment ssh"

    def find(self, host: Host) -> Finding:
        program = host.which("ssh")
        if program is None:
            return self.missing(
                "ssh is not installed", host.install("openssh-client", "OpenSSH's client")
            )
        version = host.run([program, "-V"])
        if version.code != 0:
            return self.missing(f"{program} does not run: {version.last_error}", None)
        return self.ok(f"{program}, {version.last_error}")


@register
@dataclass(frozen=True, slots=True)
class Ssh(elsewhere.Sized):
    """An existing machine, reached by the system's `ssh`."""

    name: ClassVar[str] = "ssh"
    keys: ClassVar[Mapping[str, str]] = {
        "login": "[user@]host[:port], for mpi= several with +; stands first, without login=",
        **mpi_hosts.KEYS,
        "cpus": "number of CPUs (default: all)",
        **host_swap.KEYS,
        **elsewhere.KEYS,
        "config": "ssh's configuration file (default: the user's)",
        **host_side.KEYS,
    }
    target_key: ClassVar[str] = "login"
    examples: ClassVar[Sequence[str]] = (
        "ssh:me@node7",
        "ssh:node7:2222,cpus=4,mem=8G",
        "ssh:node7+node8,mpi=on",
    )
    offers: ClassVar[Mapping[type[Capability], str]] = {
        Files: "ssh:HOST",
        RecordInside: "ssh:HOST",
        HostReadings: "ssh:GUEST,host=ssh:HOST",
    }
    checks: ClassVar[Sequence[type[Check]]] = (SshClient,)

    login: Login
    swap: HostSwap = NO_SWAP
    others: tuple[Login, ...] = ()
    """Further machines, on which commands run, too."""

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        given = dict(options)
        if "login" not in given and "host" in given:
            # ssh:host=NAME has no other machine whose host it could be.
            given["login"] = given.pop("host")
        if "login" not in given:
            raise MisuseError("ssh: no host is given", "write for example ssh:me@node7")
        first, *others = given["login"].split("+")
        logins = [Login.parse(each, options.get("config")) for each in (first, *others)]
        if len(set(logins)) < len(logins):
            raise MisuseError(f"ssh:{given['login']} has a host twice", "name each once")
        if not mpi_hosts.wanted("ssh", options, len(logins)) and others:
            raise MisuseError(
                f"ssh:{given['login']} has several hosts, but no mpi=on",
                "to measure each give --in several times",
            )
        host = HostOf.from_options("ssh", given["login"], given)
        if host is not None and others:
            raise MisuseError("ssh: host= is for one guest", "leave out mpi=on, or host=")
        space = HostSwap.from_options("ssh", options)
        limits = elsewhere.limits("ssh", options)
        return cls(logins[0], space, tuple(logins[1:]), host=host, **limits)

    def shape(self) -> MachineShape:
        each = [elsewhere.Sized.shape(one) for one in self._each()]
        return MachineShape(sum(one.cpus for one in each), sum(one.memory_bytes for one in each))

    def offered(self) -> frozenset[type[Capability]]:
        return frozenset({Files}) if self.others else elsewhere.Sized.offered(self)

    def boot_remedy(self) -> str:
        return f"try: {by_hand(self.login.line())}"

    def check(self) -> None:
        elsewhere.Sized.check(self)
        self.shape()

    def launch(self, allocation: Allocation) -> Launch:
        line, launch = self.served(self.swap)
        # Quoted for any shell that the user may have on the machine: the script has no single
        # quote.
        argv = [*self.login.line(), f"exec /bin/sh -c '{line}'"]
        return replace(launch, argv=argv, environment=os.environ)

    def start(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        if not self.others:
            return elsewhere.Sized.start(self, work, cpus)
        parts = [
            Part(each.login.name, len(each.own_cpus()), partial(_shared_at, each))
            for each in self._each()
        ]
        watcher = replace(self, others=(), swap=NO_SWAP)
        known = {"hosts": [part.name for part in parts]}
        with ExitStack() as stack:
            return together(parts, watcher, work, self.pushed, known, stack)

    def entered(self, work: Path, cpus: Sequence[int]) -> Machine:
        return RemoteMachine(self, work, cpus, self.pushed)

    def explain_end(self, code: int, console: Sequence[str]) -> tuple[str, str | None] | None:
        if told := said_by_script(console):
            return told
        if said := next((line for line in console if line.startswith(REFUSED)), None):
            return said.removeprefix(REFUSED), None
        return explain(self.login.line(), console) if code == 255 else None

    def description(self, facts: Mapping[str, Any]) -> str:
        kind = facts.get("virtualization", {}).get("kind", "unknown")
        what = {"none": "bare metal", "unknown": "of unknown kind"}.get(kind, f"itself {kind}")
        names = ", ".join(each.login.host for each in self._each())
        machine = f"the machines {names}, the first" if self.others else f"the machine {names},"
        return f"{machine} {what}, {self.system_said(facts)}{self.swap.said()}"

    def _each(self) -> Sequence[Self]:
        """The environment of each machine by itself."""
        return [replace(self, login=each, others=()) for each in (self.login, *self.others)]

    def found(self) -> Found:
        return _probe(tuple(self.login.line()))


def _shared_at(environment: Ssh, also: str | None) -> Ssh:
    return replace(environment, also=also)


@functools.lru_cache(maxsize=64)
def _probe(client: tuple[str, ...]) -> Found:
    """Ask a machine for its size; only once, because that decides the plan before anything is
    started."""
    try:
        done = subprocess.run(
            [*client, elsewhere.SIZE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CONNECT_S + ALIVE_EVERY_S * ALIVE_COUNT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        printed = _printed(error.stdout)
        raise VtaxError(
            f"ssh: no answer from {client[-1]}{printed}", f"try: {by_hand(client)}"
        ) from None
    found = elsewhere.size(done.stdout)
    if done.returncode != 0 or found is None:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        other = f"it does not answer as Linux does{_printed(done.stdout)}"
        reason, remedy = explain(client, lines or [other])
        raise VtaxError(f"ssh: cannot use {client[-1]}: {reason}", remedy)
    return found


def _printed(output: str | bytes | None) -> str:
    """Words about output that was not an answer."""
    raw = output if isinstance(output, bytes) else (output or "").encode()
    said = " | ".join(line.strip() for line in plain_text(raw).splitlines() if line.strip())
    return f": it printed {said[:SHOWN_NOISE]!r}" if said else ""
