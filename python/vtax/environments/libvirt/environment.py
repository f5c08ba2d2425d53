"""`libvirt:DOMAIN`: a virtual machine that runs already, entered by its guest agent."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import shlex
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import MisuseError
from vtax.environments import elsewhere, host_side
from vtax.environments.base import Allocation, Launch, register
from vtax.environments.capabilities import Capability, Files, HostReadings, RecordInside
from vtax.environments.host_side import HostOf
from vtax.environments.libvirt.domain import Domain
from vtax.environments.machine import Machine
from vtax.environments.remote_machine import RemoteMachine, said_by_script

_RELAY = "vtax.environments.libvirt.relay"
_KINDS = {"kvm": "under KVM", "qemu": "emulated (TCG)"}
MOST_NAMES = 8
PROBE_S = 20.0


class LibvirtClient(Check):
    """Virtual machines of libvirt are reached by its `virsh`."""

    name = "libvirt"
    purpose = "environment libvirt"

    def find(self, host: Host) -> Finding:
        program = host.which("virsh")
        if program is None:
            remedy = host.install("libvirt-clients", "libvirt's virsh")
            return self.missing("virsh is not installed", remedy)
        answer = host.run([program, "list", "--name"])
        if answer.code != 0:
            said = f"{program} is there, but libvirt does not answer: {answer.last_error}"
            return self.degraded(said, "start libvirt's daemon, or give connect=; try: virsh uri")
        names = answer.stdout.split()
        shown = ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
        return self.ok(f"{program}; domains that run: {shown or 'none'}")


@register
@dataclass(frozen=True, slots=True)
class Libvirt(elsewhere.Sized):
    """A virtual machine of libvirt's that runs already, entered by its guest agent."""

    name: ClassVar[str] = "libvirt"
    keys: ClassVar[Mapping[str, str]] = {
        "domain": "name or UUID of the domain; stands first, without domain=",
        "connect": "libvirt's URI, e.g. qemu+ssh://hyp1/system (default: virsh's)",
        "cpus": "number of CPUs (default: all)",
        **elsewhere.KEYS,
        "host": host_side.KEYS["host"],
    }
    target_key: ClassVar[str] = "domain"
    examples: ClassVar[Sequence[str]] = (
        "libvirt:web1",
        "libvirt:web1,connect=qemu+ssh://hyp1/system",
    )
    offers: ClassVar[Mapping[type[Capability], str]] = {
        Files: "libvirt:DOMAIN",
        RecordInside: "libvirt:DOMAIN",
        HostReadings: "libvirt:DOMAIN,host=ssh:HOST",
    }
    checks: ClassVar[Sequence[type[Check]]] = (LibvirtClient,)

    domain: Domain

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        if "domain" not in options:
            raise MisuseError("libvirt: no domain is given", "write for example libvirt:web1")
        domain = Domain(options["domain"], options.get("connect"))
        known = {key: options[key] for key in ("host", "dir", "domain") if key in options}
        # QEMU does not call its guest by the UUID, but has it.
        if "host" not in options or _is_uuid(domain.name):
            del known["domain"]
        host = HostOf.from_options("libvirt", domain.name, known)
        return cls(domain, host=host, **elsewhere.limits("libvirt", options))

    def boot_remedy(self) -> str:
        return f"look at: {shlex.join(self.domain.line('domstate'))}"

    def launch(self, allocation: Allocation) -> Launch:
        line, launch = self.served()
        port = f"vtax-{int(time.time()):x}-{secrets.token_hex(6)}"
        own = (self.domain.name, self.domain.connect or "", port, line)
        return replace(
            launch,
            argv=[sys.executable, "-P", "-m", _RELAY, *own],
            environment=os.environ,
            clean_up=[self.domain.detach(port)],
        )

    def entered(self, work: Path, cpus: Sequence[int]) -> Machine:
        self.domain.require_running()
        self.domain.sweep()
        return DomainMachine(self, work, cpus)

    def explain_end(self, code: int, console: Sequence[str]) -> tuple[str, str | None] | None:
        return said_by_script(console)

    def description(self, facts: Mapping[str, Any]) -> str:
        known = facts.get("libvirt", {})
        kind = _KINDS.get(known.get("type"), "of unknown kind")
        what = f"the virtual machine {self.domain.name}, {kind}, {known.get('hypervisor', 'QEMU')}"
        return f"{what}, {self.system_said(facts)}"

    def found(self) -> elsewhere.Found:
        return _probe(self.domain)


class DomainMachine(RemoteMachine):
    """A machine whose facts have what libvirt knows of it."""

    def __init__(self, environment: Libvirt, work: Path, cpus: Sequence[int]) -> None:
        self._domain = environment.domain.facts()
        super().__init__(environment, work, cpus, environment.pushed)

    def refresh_facts(self) -> None:
        super().refresh_facts()
        self.facts = {**self.facts, "libvirt": self._domain}


def _is_uuid(name: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(uuid.UUID(name))
    return False


@functools.lru_cache(maxsize=64)
def _probe(domain: Domain) -> elsewhere.Found:
    """Ask a domain for its size, as it says without vtax's agent; only once."""
    domain.facts()
    domain.require_running()
    domain.reach()
    _, said, error = domain.ended(domain.execute("-c", elsewhere.SIZE), PROBE_S)
    if found := elsewhere.size(said):
        return found
    raise domain.fault(f"the guest does not answer as Linux does: {(said + error):.80}")
