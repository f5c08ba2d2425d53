"""What an environment is, and the registry by name.

A new environment is one file with one frozen dataclass. It declares its options, examples, what its
machines can do, and what it needs (`doctor` checks), and builds the command line that starts a
machine (`launch`). `--help`, `vtax doctor`, completion and docs/environments.md are made from the
declaration. Starting, talking and cleaning up is the same for all environments whose machine is one
process: `process_environment.py`.
"""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from vtax.core import binaries, plugins
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.specs import Spec, parse_spec, unknown
from vtax.environments import hiding
from vtax.environments.capabilities import C, Capability, PagingMode
from vtax.environments.hiding import Shown, View
from vtax.environments.machine_command import MachineCommand
from vtax.workloads.base import MachineShape

if TYPE_CHECKING:
    from vtax.core.checks.model import Check
    from vtax.core.clocks import Skew
    from vtax.environments.agent import Finished

BUILT_IN = (
    "native",
    "container",
    "gvisor",
    "uml",
    "qemu",
    "qemu_arm64",
    "firecracker",
    "ssh",
    "slurm",
    "libvirt",
    "lab",
    "xen",
)
"""The modules of vtax's own environments, in the order in which they are shown."""
BASELINE = "native"
"""The spec of the machine that others are compared with."""
SERVED = "uml:net=vde"
"""The spec of the cheapest machine that a process of its own serves."""


GUESTS_OWN = (Path("/dev"), Path("/proc"), Path("/run"), Path("/sys"))
"""Folders of which every guest has its own; the rest of its tree is the host's, read-only."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a machine; pure data, so that tests read command lines without running them."""

    argv: Sequence[str]
    work_inside: Path
    """The path of the writable folder inside the machine."""
    boot_timeout_s: float
    notes: Sequence[str] = ()
    """Findings of choosing this command line, e.g. why KVM is not used."""
    over_stdio: bool = False
    """Whether the agent's channel is the process's standard input and output, and its console
    standard error; otherwise the channel is the allocation's descriptor."""
    acknowledged: bool = False
    """Whether an empty line acknowledges each announcement of the agent. Where TCP carries the
    channel without TCP_NODELAY, as srun does it, a short message waits until the one before is
    acknowledged, for 40 ms if nothing is sent the other way (RFC 896, RFC 1122 section
    4.2.3.2)."""
    preamble: bytes = b""
    """Bytes to send before the agent is there to read its first request."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the process besides PATH."""
    clean_up: Sequence[Sequence[str]] = ()
    """Commands that remove what the process leaves when it does not end by itself, in order."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the campaign gives a machine: folders, CPUs, the channel's descriptor."""

    work: Path
    """Host folder that the machine may write; it exists."""
    cpus: Sequence[int]
    """Host CPUs that the machine and its VMM are kept on."""
    channel_fd: int
    namespace_pid: int | None = None
    """The process that holds the machine's network namespace; None: the machine has none of its
    own."""
    switch: Path | None = None
    """The folder with the sockets of the network's switch; None: it has no switch."""
    number: int = 0
    """Which one of the guests that run side by side it is."""


class MachineLike(Protocol):
    """What the runner needs of a started machine; tests pass a machine that boots nothing."""

    boot_s: float
    output_limit_bytes: int
    """How many bytes a command may add to the writable folder."""
    facts: dict[str, Any]
    hello: dict[str, Any]
    launch: Launch

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        timeout_s: float | None = None,
        *,
        workdir: Path | None = None,
        leave: bool = False,
    ) -> Finished:
        """Run a command: see `MachineCommand`.

        Raises VtaxError when the command cannot be started, MachineLostError when the machine is
        lost.
        """
        return self.execute(MachineCommand(argv, environment, folder, timeout_s, workdir, leave))

    def execute(self, command: MachineCommand) -> Finished: ...

    def offer(self, wanted: type[C]) -> C | None:
        """The means to use a capability; None when the machine lacks it."""
        ...

    def refresh_facts(self) -> None: ...

    def clock_skew(self) -> Skew:
        """How far the machine's clock is from this machine's."""
        ...

    def close(self) -> None: ...


class Environment(ABC):
    """Where a workload can run. Implementations are frozen dataclasses.

    In help and docs, the first line of the class's docstring says what the environment is.
    """

    name: ClassVar[str]
    keys: ClassVar[Mapping[str, str]]
    """The help text of each option."""
    target_key: ClassVar[str | None] = None
    """The key whose value may stand alone as the first part of a spec."""
    examples: ClassVar[Sequence[str]] = ()
    """Specs that show the options."""
    offers: ClassVar[Mapping[type[Capability], str]] = {}
    """What its machines can do, each with the shortest spec of a machine that can do it."""
    checks: ClassVar[Sequence[type[Check]]] = ()
    """What `vtax doctor` looks for; several environments may name the same check."""
    is_guest: ClassVar[bool] = True
    is_remote: ClassVar[bool] = False
    """It runs on another machine: neither the CPUs nor the files of this machine are used."""
    own_counter: ClassVar[bool] = False
    """Its processor's time stamp counter is not this machine's: its own facts have the rate."""
    cleans_up: ClassVar[bool] = False
    """Its agent ends what runs in it, and itself, when its channel closes; it is killed if it does
    not."""

    @classmethod
    @abstractmethod
    def from_options(cls, options: Mapping[str, str]) -> Self:
        """Build the environment from the spec's options; keys are known, values are still text."""

    @abstractmethod
    def shape(self) -> MachineShape:
        """CPUs and memory that the workload will have."""

    def memory_limit(self) -> int | None:
        """The limit that keeps programs from using more memory, in bytes; None: only the host's
        size."""
        return self.shape().memory_bytes

    def sees_host_files(self) -> bool:
        """Whether programs of this machine are in the environment under the same path."""
        return not self.is_remote

    def emulates_clock(self) -> bool:
        """Whether the machine's clock counts instructions, and does not follow the host's."""
        return False

    def has_host_clock(self) -> bool:
        """Whether the machine's programs read the clock of the host's own kernel."""
        return False

    def with_pushed(self, paths: Sequence[Path]) -> Self:
        """The same environment with these files and folders brought into it, where they are
        missing."""
        return self

    def slowed_by(self) -> frozenset[str] | None:
        """Ways to slow the host around the machine, which serves it, by their names in `vtax-host
        place backends`; None: threads of this host serve it."""
        return None

    def has_folder(self, folder: Path) -> bool:
        """Whether programs find this machine's folder in it, under the same absolute path."""
        return self.sees_host_files() and not any(folder.is_relative_to(own) for own in GUESTS_OWN)

    def with_shown(self, shown: Shown) -> Self:
        """The same environment whose guest sees these files, where it has the host's tree."""
        return self

    def view(self) -> View:
        """Which of the host's files its guest does not see, where the guest has the host's tree."""
        return View({})

    def offered(self) -> frozenset[type[Capability]]:
        """What a machine with these options can do."""
        return frozenset(self.offers)

    def host_cpus(self) -> int:
        """How many of this host's CPUs one of its machines is worth, where no machine is
        compared."""
        return self.shape().cpus

    def for_builtin(self) -> Self:
        """The same environment for a workload of vtax-agent, which needs none of this machine's
        files."""
        return self

    def agent_inside(self) -> str:
        """The path of vtax-agent, and with it the built-in workloads, in the machine."""
        return str(binaries.find("vtax-agent"))

    def boot_remedy(self) -> str:
        """What to try when the machine did not come up."""
        return "give it more memory or run 'vtax doctor'"

    @abstractmethod
    def check(self) -> None:
        """Raise VtaxError with the remedy when something that `launch` needs is missing."""

    def session(self) -> AbstractContextManager[None]:
        """What all machines of a campaign stand on, such as an allocation of a cluster's nodes.

        It is entered before the first machine starts, and left when the last one has ended.
        """
        return nullcontext()

    @abstractmethod
    def start(self, work: Path, cpus: Sequence[int]) -> MachineLike:
        """Start a machine that may write the folder `work` and is kept on `cpus`."""

    @abstractmethod
    def description(self, facts: Mapping[str, Any]) -> str:
        """What the machine really is, in words, given its facts."""


@dataclass(frozen=True)
class HostTree(Environment):
    """An environment whose guest sees the host's tree without its secrets.

    It has no slots, so that it can be one of several base classes.
    """

    shown: Shown = field(default=Shown(), kw_only=True)
    """What the guest sees although it is hidden by default."""

    def with_shown(self, shown: Shown) -> Self:
        return replace(self, shown=shown)

    def view(self) -> View:
        return hiding.view(self.shown) if self.sees_host_files() else View({})


class ProgramHost(Protocol):
    """A host of guests that runs this machine's programs; a context manager that ends it."""

    output: Path
    """The folder where `stdout` and `stderr` grow while a command runs."""

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        workdir: Path,
        timeout_s: float | None = None,
        stdin: bytes | None = None,
    ) -> Finished: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class PagingEnvironment(HostTree):
    """An environment whose machines have guests under nested or under shadow paging."""

    @abstractmethod
    def start_host(self, work: Path, cpus: Sequence[int], kept: Path | None) -> ProgramHost:
        """The host of the guests, without guests; what programs write into `kept` is kept.

        `work` is an empty folder. Raises VtaxError when it does not come up.
        """

    @abstractmethod
    def with_paging(self, mode: PagingMode) -> Self:
        """The same environment with this paging mode from the start."""

    @abstractmethod
    def paging_obstacle(self, mode: PagingMode) -> str | None:
        """Why its machines cannot run guests under this mode; None when they can."""


def working_folder(asked: Path | None, environments: Mapping[str, Environment]) -> Path | None:
    """The folder where command lines run: the one that was asked for, else the current one.

    None stands for the folder of their results: no folder was asked for, and an environment lacks
    the current one, so that all run alike. Raises MisuseError when an environment lacks the folder
    that was asked for.
    """
    folder = Path(asked or ".").resolve()
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        name = os.fsencode(folder)
        raise MisuseError(f"the folder {name!r} is not UTF-8", "work in another") from None
    lacking = [label for label, each in environments.items() if not each.has_folder(folder)]
    if asked is None:
        return None if lacking else folder
    if not folder.is_dir():
        raise MisuseError(f"--workdir {asked}: it is not a folder")
    if lacking:
        raise MisuseError(
            f"--workdir {asked}: {', '.join(lacking)} does not have this machine's {folder}",
            "leave it out, or name a folder outside /dev, /proc, /run and /sys",
        )
    return folder


E = TypeVar("E", bound=type[Environment])

_REGISTERED: dict[str, type[Environment]] = {}


def register(cls: E) -> E:
    """Class decorator: make the environment known by its name."""
    _REGISTERED[cls.name] = cls
    return cls


@functools.cache
def registry() -> Mapping[str, type[Environment]]:
    """All environments by name: vtax's own, then those of other packages (`vtax.core.plugins`)."""
    for module in BUILT_IN:
        import_module(f"vtax.environments.{module}")
    own = {name: _REGISTERED[name] for name in (each.replace("_", "-") for each in BUILT_IN)}
    return own | plugins.load(plugins.ENVIRONMENTS, own, _fault)


def _fault(name: str, plugin: Any) -> str | None:
    if not (isinstance(plugin, type) and issubclass(plugin, Environment)):
        return "it is not a class derived from vtax.environments.base.Environment"
    if wrong := plugins.missing(plugin, ("name", "keys")):
        return wrong
    return None if plugin.name == name else f"its class is called '{plugin.name}'"


def build(text: str) -> Environment:
    """Build the environment of a spec text.

    Raises MisuseError for an unknown name or key (with the nearest one) or a bad value.
    """
    return from_spec(parse_spec(text))


def from_spec(spec: Spec) -> Environment:
    """Build the environment of a parsed spec.

    Raises MisuseError for an unknown environment or key, or an invalid value.
    """
    cls = registry().get(spec.name)
    if cls is None:
        raise unknown("environment", spec.name, registry())
    options = dict(spec.options)
    if spec.target is not None:
        if cls.target_key is None:
            raise MisuseError(f"environment '{spec}': '{spec.target}' is not key=value")
        if cls.target_key in options:
            raise MisuseError(f"environment '{spec}': '{cls.target_key}' is given twice")
        options[cls.target_key] = spec.target
    for key in options:
        if key not in cls.keys:
            raise unknown(f"key for environment '{spec.name}':", key, cls.keys)
    return cls.from_options(options)


def offering(wanted: type[Capability]) -> tuple[str, ...]:
    """The shortest spec of each environment that has a capability."""
    return tuple(cls.offers[wanted] for cls in registry().values() if wanted in cls.offers)


def with_paging_modes() -> type[PagingEnvironment]:
    """The first environment that has both paging modes. Raises VtaxError without one."""
    for cls in registry().values():
        if issubclass(cls, PagingEnvironment):
            return cls
    raise VtaxError("no environment has nested and shadow paging")


def require(environment: Environment, wanted: type[Capability], what: str) -> None:
    """Raise MisuseError, naming the environments that can, unless this one has a capability.

    `what` names what needs the capability, e.g. an option of the command line.
    """
    if wanted not in environment.offered():
        raise MisuseError(
            f"{what}: {environment.name} does not offer '{wanted.name}' ({wanted.about})",
            f"environments that do: {', '.join(offering(wanted)) or 'none'}",
        )


def allowed_cpus() -> list[int]:
    """The host CPUs that this process may use, in order."""
    return sorted(os.sched_getaffinity(0))


def host_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
