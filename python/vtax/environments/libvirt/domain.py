"""A domain of libvirt's: what the stock `virsh` is asked about it, and how its answers read."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

from vtax.core import foreign_json
from vtax.core.errors import MisuseError, VtaxError
from vtax.environments.lease import LEASE_S
from vtax.environments.ssh_client import Login

ANSWER_S = 40.0
LOOK_S = 0.05
AGENT_S = 20
"""Time for the guest agent to answer; an emulated guest may be slow."""
MOST_XML = 4 << 20
MOST_WORD = 200
PORT = re.compile(r"vtax-[0-9a-f]{1,16}-[0-9a-f]{12}")
"""What vtax calls a port: with the time at which it was made, in seconds since 1970."""
_FACTS: Mapping[str, tuple[str, str | None]] = {
    "domain": ("name", None),
    "uuid": ("uuid", None),
    "type": (".", "type"),
    "machine": ("os/type", "machine"),
    "cpu_mode": ("cpu", "mode"),
    "cpu_model": ("cpu/model", None),
    "vcpus": ("vcpu", None),
    "memory_bytes": ("currentMemory[@unit='KiB']", None),
}
"""Facts by the place in the domain's XML: an element, and its attribute or None for its text."""
_BLOCKED = (
    "allow guest-exec and guest-exec-status in the guest (RHEL: FILTER_RPC_ARGS, BLOCK_RPCS or "
    "BLACKLIST_RPC in /etc/sysconfig/qemu-ga), and restart qemu-guest-agent there"
)
_REMEDIES = (
    ("agent is not configured", "give the domain the channel org.qemu.guest_agent.0, and install "
     "qemu-guest-agent in it"),
    ("agent is not connected", "install and start qemu-guest-agent in the guest"),
    ("has been disabled", _BLOCKED),
    ("failed to get domain", "look at: {virsh} list --all"),
    ("failed to connect", "start libvirt's daemon, or give connect=; try: {virsh} uri"),
)  # fmt: skip
"""What virsh says, and what to do."""
_STATES = {"shut off": "start", "crashed": "start", "paused": "resume"}
"""What virsh calls a domain that does not run, and its command that makes it run."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A domain, by its name or UUID; `connect` is its libvirt's URI, None: virsh's default."""

    name: str
    connect: str | None = None

    def virsh(self, *arguments: str) -> list[str]:
        """The command line of virsh for this domain's libvirt."""
        own = ["--connect", self.connect] if self.connect else []
        return ["virsh", *own, *arguments]

    def line(self, command: str, *options: str) -> list[str]:
        """The command line of a virsh command about this domain."""
        return self.virsh(command, f"--domain={self.name}", *options)

    def ask(self, command: str, *options: str, stdin: str = "") -> str:
        """What a virsh command about this domain prints; raises VtaxError when it fails."""
        return self.run(self.line(command, *options), stdin)

    def agent(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The answer of the guest agent; raises VtaxError when there is none."""
        text = json.dumps({"execute": command, "arguments": arguments})
        said = self.ask("qemu-agent-command", f"--timeout={AGENT_S}", f"--cmd={text}")
        try:
            return dict(foreign_json.parse_object(said)["return"])
        except (KeyError, TypeError, ValueError):
            raise self.fault(f"the guest agent's answer is not understood: {said:.80}") from None

    def execute(self, *arguments: str) -> int:
        """Start the guest's shell with these arguments; returns its process in the guest."""
        options = {"path": "/bin/sh", "arg": list(arguments), "capture-output": True}
        pid = self.agent("guest-exec", **options).get("pid")
        return pid if isinstance(pid, int) else -1

    def ended(self, pid: int, within_s: float) -> tuple[int, str, str]:
        """The exit code of what `execute` started, and what it wrote to stdout and stderr.

        Raises VtaxError when it has not ended in time.
        """
        deadline = time.monotonic() + within_s
        while not (found := self.agent("guest-exec-status", pid=pid)).get("exited"):
            if time.monotonic() > deadline:
                raise self.fault("the guest's shell does not end")
            time.sleep(LOOK_S)
        code = found.get("exitcode")
        return code if isinstance(code, int) else 1, _text(found, "out"), _text(found, "err")

    def require_running(self) -> None:
        """Raise VtaxError with the remedy when the domain does not run."""
        state = self.ask("domstate").strip()
        if state != "running":
            command = _STATES.get(state)
            typed = command and shlex.join(self.virsh(command, self.name))
            raise self.fault(f"the domain is {state}", typed)

    def facts(self) -> dict[str, Any]:
        """What libvirt knows of the domain, as it runs; what it does not say is absent.

        Raises VtaxError when the domain is unknown, or no domain of QEMU's.
        """
        xml = self._xml()
        if xml.get("type") not in ("kvm", "qemu"):
            raise self.fault(f"it is a domain of {xml.get('type')!s:.40}, not of QEMU")
        known = {name: _said(xml, *where) for name, where in _FACTS.items()}
        known["vcpus"] = _said(xml, "vcpu", "current") or known["vcpus"]
        version = self.run(self.virsh("version", "--daemon"))
        for name, words in (("hypervisor", "Running hypervisor"), ("libvirt", "against daemon")):
            found = re.search(f"{words}: (.+)$", version, re.MULTILINE)
            known[name] = found[1] if found else None
        facts: dict[str, Any] = {name: text[:MOST_WORD] for name, text in known.items() if text}
        for name, unit in (("vcpus", 1), ("memory_bytes", 1024)):
            text = facts.pop(name, "")
            facts |= {name: int(text) * unit} if re.fullmatch("[0-9]{1,15}", text) else {}
        return facts

    def ports(self) -> Iterator[tuple[str, str, bool]]:
        """vtax's ports: name, path of the socket, and whether the guest has it open."""
        for channel in self._xml().iterfind("devices/channel"):
            name = _said(channel, "target", "name") or ""
            if PORT.fullmatch(name):
                opened = _said(channel, "target", "state") == "connected"
                yield name, _said(channel, "source", "path") or "", opened

    def reach(self) -> list[str]:
        """What comes before a command line that is to run where the domain is.

        Raises MisuseError for a transport over which vtax reaches no port.
        """
        uri = urlsplit(self.connect or self.run(self.virsh("uri")).strip())
        transport = uri.scheme.partition("+")[2]
        if not uri.netloc and transport in ("", "unix"):
            return []
        if transport == "ssh":
            return Login.parse(uri.netloc, None).line()
        raise MisuseError(
            f"libvirt: connect={uri.geturl()}: vtax reaches domains of this machine and over ssh",
            "write connect=qemu+ssh://HOST/system",
        )

    def detach(self, port: str) -> list[str]:
        """The command line that takes a port from the domain."""
        return self.line("detach-device-alias", f"--alias={alias(port)}", "--live")

    def sweep(self) -> None:
        """Take away ports that no agent has open, and whose vtax was killed with all it started."""
        for name, _, opened in self.ports():
            if not opened and time.time() - int(name.split("-")[1], 16) > LEASE_S:
                with contextlib.suppress(VtaxError):  # another run was faster
                    self.run(self.detach(name))

    def fault(self, what: str, remedy: str | None = None) -> VtaxError:
        """An error about this domain."""
        return VtaxError(f"libvirt:{self.name}: {what}", remedy)

    def _xml(self) -> ElementTree.Element:
        text = self.ask("dumpxml")
        # libvirt declares no entities, which could grow without bounds.
        if len(text) > MOST_XML or "<!DOCTYPE" in text:
            raise self.fault("its XML is not as libvirt writes it")
        try:
            return ElementTree.fromstring(text)
        except ElementTree.ParseError as error:
            raise self.fault(f"its XML is not understood: {error}") from None

    def run(self, line: Sequence[str], stdin: str = "") -> str:
        try:
            done = subprocess.run(
                list(line),
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=ANSWER_S,
                # ssh, which virsh may start, must not ask at the terminal.
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
                check=False,
            )
        except FileNotFoundError:
            raise VtaxError("virsh is missing", "apt-get install libvirt-clients") from None
        except subprocess.TimeoutExpired:
            raise self.fault(f"virsh does not answer within {ANSWER_S:.0f} s") from None
        if done.returncode == 0:
            return done.stdout
        said = " ".join(done.stderr.replace("error:", " ").split()) or "virsh says nothing"
        remedy = next((do for words, do in _REMEDIES if words in said), None)
        raise self.fault(said, remedy and remedy.format(virsh=shlex.join(self.virsh())))


def alias(port: str) -> str:
    """What libvirt calls the device of a port; it demands this beginning of a user's names."""
    return f"ua-{port}"


def _said(xml: ElementTree.Element, path: str, attribute: str | None) -> str | None:
    """An attribute, or the text, of the element at a path."""
    found = xml.find(path)
    return None if found is None else found.get(attribute) if attribute else found.text


def _text(answer: Mapping[str, Any], name: str) -> str:
    """The decoded output of a program, given the guest agent's answer about it."""
    with contextlib.suppress(TypeError, ValueError):
        return base64.b64decode(answer.get(f"{name}-data", "")).decode(errors="replace")
    return ""
