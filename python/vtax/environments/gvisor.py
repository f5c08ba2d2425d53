"""gVisor: a kernel in a process of the host, which answers the system calls of programs."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from vtax.core import binaries
from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import VtaxError
from vtax.core.matching import matching
from vtax.core.units import format_bytes
from vtax.environments import host_swap, link, sandbox
from vtax.environments.base import (
    Allocation,
    HostTree,
    Launch,
    allowed_cpus,
    host_memory_bytes,
    register,
)
from vtax.environments.capabilities import Capability, Files, Link, LinkKind, RecordOutside
from vtax.environments.host_swap import NO_SWAP, USUAL_SWAPPINESS, HostSwap, refused
from vtax.environments.machine import Machine
from vtax.environments.option_values import cpu_count, guest_memory, one_of
from vtax.workloads.base import MachineShape

PLATFORMS = ("systrap", "ptrace", "kvm")
AGENT_INSIDE = Path("/run/vtax/vtax-agent")
BUNDLE = Path("/run/vtax/bundle")
STATE = Path("/run/vtax/state")
"""Both paths are in the box's own /run and go with it."""
ROOT_NETWORK_SIGN = "/proc/sys/net/core"
"""runsc takes a namespace with a file rmem_default in this folder for the host's own, and refuses
it; with newer kernels (such as 6.18) every namespace has this file."""
CGROUP_PREFIX = "vtax-gvisor-"
LINKS: Mapping[LinkKind, str | None] = {"veth": None}
SMALLEST_BYTES = 64 << 20
BOOT_TIMEOUT_S = 60.0
KILLED = 128 + 9
"""Exit code of runsc when its sandbox was killed."""
OVERLAY = "--overlay2=root:memory"
NEWER = "put a newer runsc on the PATH (gvisor.dev/docs/user_guide/install)"

_CAPABILITIES = (
    "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT",
)  # fmt: skip
"""Capabilities of root inside, as podman gives them to a container; none of them holds on the
host."""
_WRITE_BUNDLE = 'printf %s "$1" >"$2"; shift 2; exec "$@"'


class Runsc(Check):
    """gVisor's runtime; the version decides how system calls are caught."""

    name = "gvisor"
    purpose = "environment gvisor"

    def find(self, host: Host) -> Finding:
        program = host.which("runsc")
        if program is None:
            return self.missing("runsc is not installed", host.install("runsc", "gVisor's runsc"))
        version = host.run([program, "--version"])
        flags = host.run([program, "flags"])
        if version.code != 0:
            return self.missing(f"{program} does not run: {version.last_error}", NEWER)
        if "overlay2" not in flags.stdout + flags.stderr:
            return self.missing(f"{version.first_line} is too old: it has no --overlay2", NEWER)
        if host.euid != 0:
            return self.missing(f"{version.first_line}: runsc needs root", "run vtax as root")
        if "systrap" not in flags.stdout + flags.stderr:
            return self.degraded(f"{version.first_line}: ptrace only, which is slower", NEWER)
        return self.ok(version.first_line)


@register
@dataclass(frozen=True, slots=True)
class Gvisor(HostTree, link.Linked):
    """gVisor's `runsc`: a kernel in user space between a container and the host's."""

    name: ClassVar[str] = "gvisor"
    keys: ClassVar[Mapping[str, str]] = {
        "platform": "systrap, ptrace or kvm (default: systrap where runsc has it, else ptrace)",
        "cpus": "number of CPUs (default: all)",
        "mem": "memory limit, swap included (default: none)",
        **host_swap.KEYS,
        **link.KEYS,
    }
    examples: ClassVar[Sequence[str]] = (
        "gvisor",
        "gvisor:platform=ptrace,cpus=1,mem=1G",
        "gvisor:mem=256M,swap=1G",
        "gvisor:net=veth",
    )
    offers: ClassVar[Mapping[type[Capability], str]] = {
        Files: "gvisor",
        RecordOutside: "gvisor",
        Link: "gvisor:net=veth",
    }
    checks: ClassVar[Sequence[type[Check]]] = (Runsc, link.Links)
    cleans_up: ClassVar[bool] = True

    platform: str | None = None
    """None: systrap where runsc has it, else ptrace."""
    cpus: int | None = None
    memory_bytes: int | None = None
    swap: HostSwap = NO_SWAP

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        one_of("gvisor", options, "platform", PLATFORMS)
        cpus = cpu_count("gvisor", "cpus", options["cpus"]) if "cpus" in options else None
        memory = options.get("mem")
        return cls(
            options.get("platform"),
            cpus,
            guest_memory("gvisor", memory, SMALLEST_BYTES) if memory else None,
            HostSwap.from_options("gvisor", options),
            link=link.wanted("gvisor", options, LINKS),
        )

    def shape(self) -> MachineShape:
        cpus = self.cpus or len(allowed_cpus())
        return MachineShape(cpus, self.memory_bytes or host_memory_bytes())

    def memory_limit(self) -> int | None:
        return self.memory_bytes

    def agent_inside(self) -> str:
        return str(AGENT_INSIDE)

    def boot_remedy(self) -> str:
        return "run 'vtax doctor'"

    def check(self) -> None:
        binaries.find("vtax-agent")
        sandbox.bubblewrap()
        program = _program()
        flags = _flags(program)
        if "overlay2" not in flags:
            raise VtaxError("gvisor: this runsc is too old: it has no --overlay2", NEWER)
        if self.platform == "systrap" and "systrap" not in flags:
            raise VtaxError("gvisor: this runsc is too old for platform=systrap", NEWER)
        if os.geteuid() != 0:
            raise VtaxError("gvisor: runsc needs root", "run vtax as root")
        self.swap.check("gvisor")
        link.check("gvisor", self.link)

    def launch(self, allocation: Allocation) -> Launch:
        program = _program()
        _remove_old_cgroups()
        name = f"{CGROUP_PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        runsc = [program, "--root", str(STATE), f"--platform={self._platform()}"]
        # Its own network stack takes over the interfaces of the namespace that runsc is in.
        stack = "none" if self.link is None else "sandbox"
        runsc += [f"--network={stack}", OVERLAY, "run", "-bundle", str(BUNDLE), name]
        # The box ends with vtax, also after kill -9, and its /run hides the host's sockets.
        box = [] if (pid := allocation.namespace_pid) is None else sandbox.joining(pid)
        box += [str(sandbox.bubblewrap()), "--dev-bind", "/", "/"]
        box += [*sandbox.covering(self.view(), program), "--proc", "/proc"]
        box += ["--tmpfs", "/run", "--dir", str(BUNDLE), "--dir", str(STATE)]
        box += ["--tmpfs", ROOT_NETWORK_SIGN] if self.link else []
        box += ["--ro-bind", str(binaries.find("vtax-agent")), str(AGENT_INSIDE)]
        box += ["--bind", str(allocation.work), str(sandbox.WORK)]
        box += ["--unshare-pid", "--die-with-parent", "--"]
        bundle = json.dumps(_bundle(name, allocation.cpus, self._memory(), self.link))
        write = ["/bin/sh", "-c", _WRITE_BUNDLE, "sh", bundle, str(BUNDLE / "config.json")]
        return Launch(
            self.swap.around(sandbox.pinned(allocation.cpus, [*box, *write, *runsc])),
            work_inside=sandbox.WORK,
            boot_timeout_s=BOOT_TIMEOUT_S,
            over_stdio=True,
            clean_up=[self.swap.sweep()],
        )

    def capabilities(self, machine: Machine) -> Sequence[Capability]:
        seen = RecordOutside({"processes": (machine.pid,)})
        return (Files(machine.push, machine.pull), seen, *link.offered(machine))

    def explain_end(self, code: int, console: Sequence[str]) -> tuple[str, str | None] | None:
        if code == KILLED and self.memory_bytes is not None:
            limit = format_bytes(self.memory_bytes)
            return f"killed, as by its memory limit of {limit}", "give it more memory with mem="
        return refused(console)

    def description(self, facts: Mapping[str, Any]) -> str:
        limit = format_bytes(self.memory_bytes) if self.memory_bytes else None
        memory = f"memory limited to {limit}" if limit else "no memory limit"
        memory += self.swap.said()
        release = facts.get("kernel", {}).get("release", "?")
        return (
            f"gVisor ({_version(_program())}, {self._platform()}), which calls itself Linux "
            f"{release}, {self.shape().cpus} CPU, {memory}{link.said(self.link)}"
        )

    def _memory(self) -> Mapping[str, int]:
        """The limits for `linux.resources.memory` of the OCI specification."""
        if self.memory_bytes is None:
            return {}
        both = self.memory_bytes + self.swap.bytes
        # With control groups 2, runsc leaves swappiness out.
        may = {"swappiness": USUAL_SWAPPINESS} if self.swap else {}
        return {"limit": self.memory_bytes, "swap": both, **may}

    def _platform(self) -> str:
        if self.platform is not None:
            return self.platform
        return "systrap" if "systrap" in _flags(_program()) else "ptrace"


def _program() -> str:
    if found := shutil.which("runsc"):
        return found
    raise VtaxError("gvisor: runsc is missing", "apt-get install runsc")


@functools.lru_cache(maxsize=4)
def _flags(program: str) -> str:
    """What runsc prints about its flags."""
    return _said([program, "flags"])


@functools.lru_cache(maxsize=4)
def _version(program: str) -> str:
    match = re.search(r"version (\S+)", _said([program, "--version"]))
    return match[1] if match else "version not known"


def _said(argv: Sequence[str]) -> str:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10.0, check=False)
        return done.stdout + done.stderr
    return ""


def _bundle(
    name: str, cpus: Sequence[int], memory: Mapping[str, int], linked: link.Wanted | None
) -> Mapping[str, Any]:
    """The configuration of the OCI runtime specification: the host's tree, and a network if asked
    for."""

    def mount(target: str, kind: str, source: str, *options: str) -> dict[str, Any]:
        return {
            "destination": target, "type": kind, "source": source, "options": list(options)
        }  # fmt: skip

    # gVisor takes the number of its CPUs and the size of its memory from its control group.
    limits: dict[str, Any] = {"cpu": {"cpus": ",".join(map(str, cpus))}}
    if memory:
        limits["memory"] = memory
    kinds = ("bounding", "effective", "permitted")
    # runsc refuses a network without a named namespace; it is in the right one already.
    network = {"type": "network"} | ({"path": "/proc/self/ns/net"} if linked else {})
    return {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [str(AGENT_INSIDE), "serve"],
            "env": ["PATH=/usr/bin:/bin"],
            "cwd": "/",
            "capabilities": {kind: list(_CAPABILITIES) for kind in kinds},
        },
        "root": {"path": "/", "readonly": False},
        "hostname": "vtax-guest",
        "mounts": [
            mount("/proc", "proc", "proc"),
            mount("/sys", "sysfs", "sysfs", "ro"),
            mount("/dev", "tmpfs", "tmpfs"),
            mount("/dev/shm", "tmpfs", "tmpfs"),
            mount("/run", "tmpfs", "tmpfs"),
            mount(str(AGENT_INSIDE), "bind", str(AGENT_INSIDE), "bind", "ro"),
            mount(str(sandbox.WORK), "bind", str(sandbox.WORK), "bind", "rw"),
        ],
        "linux": {
            "cgroupsPath": f"/{name}",
            "resources": limits,
            "namespaces": [*({"type": each} for each in ("pid", "ipc", "uts", "mount")), network],
        },
    }


def _remove_old_cgroups() -> None:
    """Remove the empty control groups of a killed vtax; otherwise runsc removes its own."""
    for folder in matching(Path("/sys/fs/cgroup"), f"**/{CGROUP_PREFIX}*"):
        owner = folder.name.removeprefix(CGROUP_PREFIX).partition("-")[0]
        if not Path("/proc", owner).exists():
            with contextlib.suppress(OSError):
                folder.rmdir()
