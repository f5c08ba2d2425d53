"""A container of podman or docker: the host's kernel, behind namespaces, limits and a filter."""

from __future__ import annotations

import csv
import functools
import io
import os
import re
import resource
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, ClassVar, Literal, Self

from vtax.core import binaries, cache, foreign_json
from vtax.core.checks.host import Host, run_program
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.units import format_bytes
from vtax.environments import host_swap, link, sandbox
from vtax.environments.base import (
    Allocation,
    HostTree,
    Launch,
    MachineLike,
    allowed_cpus,
    host_memory_bytes,
    register,
)
from vtax.environments.capabilities import (
    Capability,
    Files,
    Link,
    LinkKind,
    RecordInside,
    RecordOutside,
)
from vtax.environments.hiding import View
from vtax.environments.host_swap import NO_SWAP, SWAPPINESS, USUAL_SWAPPINESS, HostSwap, refused
from vtax.environments.lease import Renewal, lease
from vtax.environments.machine import Machine
from vtax.environments.option_values import cpu_count, guest_memory, one_of
from vtax.workloads.base import MachineShape

Engine = Literal["podman", "docker"]

AGENT_INSIDE = Path("/run/vtax/vtax-agent")
LINKS: Mapping[LinkKind, str | None] = {"veth": None}
SMALLEST_BYTES = 16 << 20
ENGINE_TIMEOUT_S = 30.0
BOOT_TIMEOUT_S = 60.0
MOST_PROCESSES = 32768
KILLED = 128 + 9
"""Exit code of an engine whose container was killed."""

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
_NOT_SHARED = ("/proc", "/sys", "/dev", "/run", "/tmp", "/snap")
"""Folders of the host's tree that the container does not get: it has its own, or must not see the
host's sockets."""
_NO_FILES = frozenset({"autofs", "binfmt_misc", "cgroup", "cgroup2", "fusectl", "nsfs", "overlay"})
"""Types of file systems that hold no files of users."""


class ContainerEngine(Check):
    """Containers are started by podman or docker."""

    name = "container"
    purpose = "environment container"

    def find(self, host: Host) -> Finding:
        program = host.which("podman")
        if program is None:
            if host.which("docker"):
                return self.degraded(
                    "docker is installed, podman is not: only with image=",
                    host.install("podman", "podman"),
                )
            return self.missing("podman is not installed", host.install("podman", "podman"))
        version = host.run([program, "--version"])
        if version.code != 0:
            return self.missing(f"{program} does not run: {version.last_error}", None)
        if host.exists("/sys/fs/cgroup/unified") and not host.which("runc"):
            return self.missing(
                "crun refuses this host's mixture of control groups 1 and 2",
                host.install("runc", "runc"),
            )
        if host.euid != 0:
            return self.degraded(
                f"{version.first_line}, rootless: the host's tree is read-only inside, and limits "
                "need control groups of version 2",
                "run vtax as root",
            )
        return self.ok(version.first_line)


class ContainerMachine(Machine):
    """A container, whose agent has a lease that is renewed."""

    _renewal: Renewal | None = None

    def __init__(self, environment: Container, work: Path, cpus: Sequence[int]) -> None:
        super().__init__(environment, work, cpus)
        self._renewal = Renewal(self._agent.renew)

    def kill(self) -> None:
        if self._renewal is not None:
            self._renewal.end()
        super().kill()


@register
@dataclass(frozen=True, slots=True)
class Container(HostTree, link.Linked):
    """A container on this machine's kernel, started by podman or docker."""

    name: ClassVar[str] = "container"
    keys: ClassVar[Mapping[str, str]] = {
        "engine": "podman or docker (default: podman)",
        "runtime": "runc or crun (default: the engine's; runc where crun cannot run)",
        "image": "an image on this machine (default: none, the host's tree)",
        "cpus": "number of CPUs (default: all)",
        "mem": "memory limit, swap included (default: none)",
        **host_swap.KEYS,
        "network": "yes or no: the engine's network (default: no)",
        **link.KEYS,
    }
    examples: ClassVar[Sequence[str]] = (
        "container",
        "container:cpus=1,mem=1G",
        "container:mem=256M,swap=1G",
        "container:image=debian:12,runtime=crun",
        "container:net=veth,rate=500M",
    )
    offers: ClassVar[Mapping[type[Capability], str]] = {
        Files: "container",
        RecordOutside: "container",
        RecordInside: "container",
        Link: "container:net=veth",
    }
    checks: ClassVar[Sequence[type[Check]]] = (ContainerEngine, link.Links)
    cleans_up: ClassVar[bool] = True

    engine: Engine = "podman"
    runtime: str | None = None
    image: str | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    network: bool = False
    swap: HostSwap = NO_SWAP
    pushed: tuple[Path, ...] = ()

    @classmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        engine: Engine = "docker" if options.get("engine") == "docker" else "podman"
        one_of("container", options, "engine", ("podman", "docker"))
        one_of("container", options, "runtime", ("runc", "crun"))
        one_of("container", options, "network", ("yes", "no"))
        image = options.get("image")
        if image is not None and not _IMAGE.fullmatch(image):
            raise MisuseError(f"container: image={image} is not a name of an image")
        if engine == "docker" and image is None:
            raise MisuseError(
                "container: docker cannot run the host's tree", "give image=, or engine=podman"
            )
        cpus = cpu_count("container", "cpus", options["cpus"]) if "cpus" in options else None
        memory = options.get("mem")
        limit = guest_memory("container", memory, SMALLEST_BYTES) if memory else None
        network = options.get("network") == "yes"
        wanted = link.wanted("container", options, LINKS)
        if wanted and (network or engine == "docker"):
            raise MisuseError("container: net=veth is for podman, and without network=yes")
        runtime = options.get("runtime")
        space = HostSwap.from_options("container", options)
        return cls(engine, runtime, image, cpus, limit, network, space, link=wanted)

    def shape(self) -> MachineShape:
        cpus = self.cpus or len(allowed_cpus())
        return MachineShape(cpus, self.memory_bytes or host_memory_bytes())

    def memory_limit(self) -> int | None:
        return self.memory_bytes

    def sees_host_files(self) -> bool:
        return self.image is None

    def has_folder(self, folder: Path) -> bool:
        # An overlay on / does not show a file system on /tmp; without root, /tmp is always new.
        own_tmp = not self._is_root() or Path("/tmp").is_mount()
        apart = own_tmp and folder.is_relative_to("/tmp")
        return not apart and link.Linked.has_folder(self, folder)

    def with_pushed(self, paths: Sequence[Path]) -> Self:
        return replace(self, pushed=tuple(paths)) if self.image else self

    def agent_inside(self) -> str:
        return str(AGENT_INSIDE)

    def check(self) -> None:
        binaries.find("vtax-agent")
        self.swap.check("container")
        program = _program(self.engine)
        runtime = self._runtime()
        if runtime is not None and not _which(runtime):
            raise VtaxError(f"container: {runtime} is missing", f"apt-get install {runtime}")
        if self.engine == "docker" and not _ok([program, "version"]):
            raise VtaxError("container: docker's daemon does not answer", "try: docker version")
        if self.image is not None and not _ok([program, "image", "inspect", self.image]):
            raise VtaxError(
                f"container: there is no image '{self.image}' here",
                f"{self.engine} pull {self.image}",
            )
        link.check("container", self.link)

    def launch(self, allocation: Allocation) -> Launch:
        program = _program(self.engine)
        name = f"vtax-{os.getpid()}-{secrets.token_hex(4)}"
        runtime = self._runtime()
        line = [program, *(["--runtime", runtime] if runtime and self.engine == "podman" else [])]
        line += ["run", "-i", "--rm", "--name", name, "--log-driver", "none"]
        line += ["--runtime", runtime] if runtime and self.engine == "docker" else []
        line += self._network(allocation)
        line += ["--security-opt", "label=disable", *_process_limits()]
        refused = self._limits_refused()
        if refused is None:
            line += ["--cpuset-cpus", ",".join(map(str, allocation.cpus))]
            line += self._memory()
        line += _bind(allocation.work, sandbox.WORK)
        line += _read_only(binaries.find("vtax-agent"), AGENT_INSIDE) + self._tree()
        line += ["serve", *lease(), "--cpus", ",".join(map(str, allocation.cpus))]
        notes = [f"The memory limit is not enforced: {refused}."] if refused else []
        return Launch(
            self.swap.around(sandbox.pinned(allocation.cpus, line)),
            work_inside=sandbox.WORK,
            boot_timeout_s=BOOT_TIMEOUT_S,
            notes=notes if self.memory_bytes else (),
            over_stdio=True,
            environment=os.environ,
            clean_up=[[program, "rm", "--force", name], self.swap.sweep()],
        )

    def start(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        return ContainerMachine(self, work, cpus)

    def capabilities(self, machine: Machine) -> Sequence[Capability]:
        argv = machine.launch.argv
        name = argv[argv.index("--name") + 1]
        first = _first_process(_program(self.engine), name)
        recorder = str(binaries.find("vtax-host"))
        return (
            Files(machine.push, machine.pull),
            RecordOutside({"processes": (first,)}),
            RecordInside(lambda: recorder),
            *link.offered(machine, first),
        )

    def explain_end(self, code: int, console: Sequence[str]) -> tuple[str, str | None] | None:
        if code == KILLED and self.memory_bytes is not None:
            limit = format_bytes(self.memory_bytes)
            return f"killed, as by its memory limit of {limit}", "give it more memory with mem="
        return refused(console)

    def boot_remedy(self) -> str:
        return "run 'vtax doctor'"

    def description(self, facts: Mapping[str, Any]) -> str:
        limit = format_bytes(self.memory_bytes) if self.memory_bytes else None
        memory = f"memory limited to {limit}" if limit else "no memory limit"
        memory += self.swap.said()
        tree = f"image {self.image}" if self.image else "the host's tree"
        by = f"{self.engine}, {runtime}" if (runtime := self._runtime()) else self.engine
        rootless = "" if self._is_root() else "rootless, "
        release = facts.get("kernel", {}).get("release", "?")
        return (
            f"container ({by}, {rootless}{tree}) on Linux {release}, "
            f"{self.shape().cpus} CPU, {memory}{link.said(self.link)}"
        )

    def _network(self, allocation: Allocation) -> list[str]:
        if allocation.namespace_pid is not None:
            return ["--network", f"ns:/proc/{allocation.namespace_pid}/ns/net"]
        return [] if self.network else ["--network", "none"]

    def _runtime(self) -> str | None:
        """crun refuses a host on which version 2 of control groups is mounted beside version 1."""
        mixed = Path("/sys/fs/cgroup/unified").exists()
        return self.runtime or ("runc" if mixed and self.engine == "podman" else None)

    def _is_root(self) -> bool:
        return self.engine == "docker" or os.geteuid() == 0

    def _limits_refused(self) -> str | None:
        """Why the engine cannot set limits; None: it can."""
        return None if self._is_root() else _rootless_limits(_program(self.engine))

    def _memory(self) -> list[str]:
        """The engine's options that limit memory."""
        if self.memory_bytes is None:
            return []
        both = self.memory_bytes + self.swap.bytes
        line = ["--memory", str(self.memory_bytes), "--memory-swap", str(both)]
        if self.swap and SWAPPINESS.exists():
            line += ["--memory-swappiness", str(USUAL_SWAPPINESS)]
        return line

    def _tree(self) -> list[str]:
        """Options for the container's root, and the program that is started in it."""
        agent = str(AGENT_INSIDE)
        if self.image is not None:
            pushed = [part for path in self.pushed for part in _read_only(path.resolve())]
            return [*pushed, "--user", "0", "--pull", "never", "--entrypoint", agent, self.image]
        if self._is_root():
            # Without --read-only: podman 4.3 would copy all of the host's /run.
            return [
                *_volumes(_file_systems(), self.view(), overlaid=True),
                "--rootfs",
                "/:O",
                agent,
            ]
        # A user may not overlay root's files: the folders of / go one by one onto an empty root.
        folders = [path for path in sorted(Path("/").iterdir()) if str(path) not in _NOT_SHARED]
        folders_of_root = [path for path in folders if path.is_dir() and not path.is_symlink()]
        binds = _volumes(folders_of_root, self.view(), overlaid=False)
        links = [path for path in folders if path.is_symlink()]
        return [*binds, "--read-only", "--rootfs", str(_skeleton(links)), agent]


def _program(engine: Engine) -> str:
    if found := _which(engine):
        return found
    raise VtaxError(f"container: {engine} is missing", "apt-get install podman")


def _which(program: str) -> str | None:
    # runc is among the administrator's programs.
    return shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _ok(argv: Sequence[str]) -> bool:
    return _ask(argv) is not None


def _ask(argv: Sequence[str]) -> str | None:
    """The answer of an engine; None when it fails."""
    done = run_program(argv, ENGINE_TIMEOUT_S)
    return done.stdout if done.code == 0 else None


def _process_limits() -> list[str]:
    """podman asks for 1,048,576 of each limit, which fails where the hard limit is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, most = resource.getrlimit(resource.RLIMIT_NPROC)
    processes = MOST_PROCESSES if most == resource.RLIM_INFINITY else min(most, MOST_PROCESSES)
    files = f"nofile={soft}:{hard}"
    return ["--ulimit", files, "--ulimit", f"nproc={processes}:{processes}"]


def _read_only(path: Path, inside: PurePath | None = None) -> list[str]:
    return _bind(path, inside or path, "readonly")


def _bind(source: Path, inside: PurePath, *options: str) -> list[str]:
    return _mount("type=bind", f"source={source}", f"destination={inside}", *options)


def _mount(*fields: str) -> list[str]:
    """The option --mount, which takes any path: comma-separated values, quoted where need be.

    `-v` has no way to write a colon.
    """
    row = io.StringIO()
    # Characters that may end a line are quoted, too.
    csv.writer(row, lineterminator="\r\n").writerow(fields)
    return ["--mount", row.getvalue().removesuffix("\r\n")]


def _volumes(shared: Sequence[Path], view: View, *, overlaid: bool) -> list[str]:
    """Options for the host's folders `shared`, and for what hides secrets in the tree.

    `overlaid`: visible folders inside a hidden one can be written, in memory. Raises VtaxError for
    a path that podman cannot be given.
    """
    line = [part for path in shared if not view.hides(path) for part in _read_only(path)]
    for path, covered in view.covered.items():
        if not covered and path not in shared:
            line += _overlaid(path) if overlaid and path.is_dir() else _read_only(path)
        elif covered and path.is_dir():
            # Otherwise podman fills it with what it is to hide.
            line += _mount("type=tmpfs", f"destination={path}", "notmpcopyup")
        elif covered:
            line += _read_only(Path(os.devnull), path)
    return line


def _overlaid(path: Path) -> list[str]:
    if set(str(path)) & set(":,\\"):
        raise VtaxError(
            f"container: podman lays nothing over a path with a colon or comma: {path}",
            "give the folder another name, or work outside of hidden folders",
        )
    return ["-v", f"{path}:{path}:O"]


def _file_systems() -> list[Path]:
    """Mount points of other file systems with files, which an overlay on / does not show."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point, kind = before.split()[4], after.split()[0]
        apart = any(point == each or point.startswith(each + "/") for each in _NOT_SHARED)
        plain = not apart and point != "/" and "\\" not in point
        # Mounts that engines make for their containers are not the host's own.
        own = kind not in _NO_FILES and "/containers/" not in point
        if plain and own and Path(point).is_dir():
            found.append(Path(point))
    return found


def _skeleton(links: Sequence[Path]) -> Path:
    """An empty root with the host's links such as /bin; kept in the cache, because it is the same
    for every container."""
    root = cache.folder("container-root")
    for original in links:
        copy = root / original.name
        if not copy.is_symlink() or copy.readlink() != original.readlink():
            copy.unlink(missing_ok=True)
            copy.symlink_to(original.readlink())
    return root


@functools.lru_cache(maxsize=4)
def _rootless_limits(program: str) -> str | None:
    """Why rootless podman cannot set limits; None: it can."""
    try:
        told = _ask([program, "info", "--format", "json"]) or "{}"
        host = foreign_json.parse_object(told).get("host")
    except ValueError:
        host = None
    host = host if isinstance(host, Mapping) else {}
    if host.get("cgroupVersion") != "v2":
        return "rootless podman needs version 2 of control groups"
    missing = {"memory", "cpuset"} - set(host.get("cgroupControllers") or ())
    return f"{', '.join(sorted(missing))} not delegated to this user" if missing else None


@functools.lru_cache(maxsize=64)
def _first_process(program: str, name: str) -> int:
    """The number of the container's first process on this machine."""
    answer = (_ask([program, "inspect", "--format", "{{.State.Pid}}", name]) or "").strip()
    if not answer.isdecimal() or answer == "0":
        raise VtaxError(f"container: {name} has no process")
    return int(answer)
