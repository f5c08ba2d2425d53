"""What a machine can do beyond running a command; asked for by type: ``machine.offer(Switch)``.

An environment declares in `offers` what its machines can do, so that a verb whose need is not met
is refused before anything boots (`require`). A started machine gives the means: each capability is
a small record of functions that its user calls. A new capability is a class here, or in another
package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from vtax.core.clocks import Skew
    from vtax.environments.agent import Finished
    from vtax.environments.base import MachineLike
    from vtax.environments.host_reading import Reading
    from vtax.environments.kvm_counters import Counters
    from vtax.environments.machine_command import MachineCommand
    from vtax.workloads.base import Outcome

PagingMode = Literal["nested", "shadow"]
LinkKind = Literal["vde", "tap", "vhost", "slirp", "veth"]
"""What joins a machine to its link: a switch process, a tap, a network stack in QEMU, a veth."""


class Capability:
    """Base class. `name` is what messages and tables call it; `about` says it in a few words."""

    name: ClassVar[str]
    about: ClassVar[str]


C = TypeVar("C", bound=Capability)


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that ended in a machine around the measured one, and what it printed."""

    outcome: Outcome
    stdout: str
    stderr: str


class Shell(Protocol):
    """A machine around the measured one, in which vtax runs commands; it has busybox."""

    def must(self, argv: Sequence[str], what: str, *, leave: bool = False) -> str: ...

    def run(self, argv: Sequence[str]) -> Completed: ...

    def push(self, path: str, content: bytes, permissions: int = 0o600) -> None: ...

    def pull(self, path: str, limit_bytes: int = 16 << 20) -> bytes: ...

    def tail(self, path: str, size: int = 64 << 10) -> bytes: ...

    def clock_skew(self) -> Skew: ...


@dataclass(frozen=True, slots=True)
class Files(Capability):
    """Access to files of any path in the machine, besides the folder of a command."""

    name: ClassVar[str] = "files"
    about: ClassVar[str] = "files can be pushed in and pulled out"

    push: Callable[[str, bytes], None]
    """Write a file, replacing an existing one."""
    pull: Callable[[str], bytes]
    """Read a regular file of at most 16 MiB. Raises VtaxError."""


@dataclass(frozen=True, slots=True)
class Guests(Capability):
    """Nested guests: a command runs in all of them at once."""

    name: ClassVar[str] = "guests"
    about: ClassVar[str] = "it has nested guests, in all of which a command runs at once"

    run: Callable[[MachineCommand], Sequence[Finished]]
    """One result per guest; the output of guest N is in the host's folder FOLDER-N."""


@dataclass(frozen=True, slots=True)
class RecordOutside(Capability):
    """A recorder outside of the machine counts what the machine does."""

    name: ClassVar[str] = "record-outside"
    about: ClassVar[str] = "a recorder outside of it counts its events"

    target: Mapping[str, Any]
    """What to record, as fields of `record.options.Target`, e.g. ``{"processes": (4711,)}``."""
    host: Shell | None = None
    """The machine that the recorder runs on; None: this one."""
    program: str = "vtax-host"
    """Where that machine has it."""


@dataclass(frozen=True, slots=True)
class RecordInside(Capability):
    """A recorder in the machine counts what its kernel and its CPU show inside."""

    name: ClassVar[str] = "record-inside"
    about: ClassVar[str] = "a recorder inside it counts its events"

    program: Callable[[], str]
    """Path of vtax-host in the machine; copies it there if need be."""


@dataclass(frozen=True, slots=True)
class CountPrograms(Capability):
    """The machine's agent counts a command's instructions and cycles, if the machine has a PMU."""

    name: ClassVar[str] = "count-programs"
    about: ClassVar[str] = "instructions and cycles of a whole program can be counted, with a PMU"

    switch: Callable[[bool], None]
    """Turn counting on or off, from the next command on."""


@dataclass(frozen=True, slots=True)
class KvmCounters(Capability):
    """KVM's counters of the (first) guest."""

    name: ClassVar[str] = "kvm-counters"
    about: ClassVar[str] = "KVM's counters of the guest can be read"

    read: Callable[[], Counters]


@dataclass(frozen=True, slots=True)
class HostReadings(Capability):
    """The host that the machine is a guest of, where vtax has an agent, too."""

    name: ClassVar[str] = "host-readings"
    about: ClassVar[str] = "what it costs its own host can be read there"

    read: Callable[[], Reading]
    """Totals of the host; where it is lost they are absent, with the reason."""


@dataclass(frozen=True, slots=True)
class Switch(Capability):
    """Running guests are switched between nested and shadow paging."""

    name: ClassVar[str] = "switch"
    about: ClassVar[str] = "running guests can be switched between nested and shadow paging"

    to: Callable[[PagingMode], Mapping[str, Any]]
    """Switch the guests, and return the report. Raises VtaxError when the guests were not
    switched."""
    mode: Callable[[], PagingMode]
    """The paging mode that the guests are in."""


@dataclass(frozen=True, slots=True)
class Pause(Capability):
    """The machine can be stopped and continued."""

    name: ClassVar[str] = "pause"
    about: ClassVar[str] = "it can be paused and resumed"

    pause: Callable[[], None]
    resume: Callable[[], None]


@dataclass(frozen=True, slots=True)
class GuestPage(Capability):
    """The guest publishes its counters in a page that a recorder outside samples."""

    name: ClassVar[str] = "guest-page"
    about: ClassVar[str] = "the guest can publish its counters in a page (docs/record.md)"

    seen_at: Path | None = None
    """The page as the recorder of `RecordOutside` sees it; None: where the guest's folder is."""
    published: bool = False
    """Whether somebody outside the guest publishes it all the time."""
    guests: Sequence[tuple[MachineLike, Path]] = ()
    """The guests, and the host's side of each one's writable folder; empty: the machine itself."""
    device: bool = False
    """Whether the page is the memory of a device instead of a file in that folder."""


@dataclass(frozen=True, slots=True)
class Nodes(Capability):
    """The machine is several nodes, on one of which all repetitions of a round run."""

    name: ClassVar[str] = "nodes"
    about: ClassVar[str] = "rounds visit several nodes in turn"

    turn: Callable[[int], bool]
    """Make the node of this round current; return whether nothing has run on it yet."""
    current: Callable[[], str]
    """The name of the node that is current."""
    notes: Callable[[], Sequence[str]]
    """How the nodes differ, in sentences."""


@dataclass(frozen=True, slots=True)
class Direction:
    """What one end of a link has sent since the machine was started."""

    bytes: int
    """Bytes with Ethernet's headers."""
    packets: int
    """Packets as they were handed over: one may have 64 KiB where the kernel cuts it later."""
    drops: int
    """Packets that the filter dropped."""


@dataclass(frozen=True, slots=True)
class LinkCounters:
    """Both directions of a link."""

    sent: Direction
    """What the machine sent."""
    received: Direction
    """What the client sent, without dropped packets, which never reached the machine."""


@dataclass(frozen=True, slots=True)
class Link(Capability):
    """A link of the machine's own, shaped to a rate, with a place for clients at its other end."""

    name: ClassVar[str] = "link"
    about: ClassVar[str] = "it has a link to this host, shaped to a stated rate"

    kind: LinkKind
    rate_bits: int
    """Bits per second, in each direction."""
    address: str
    """The address at which clients reach the machine; a user network forwards
    `workloads.loads.ports` alone."""
    pids: tuple[int, ...]
    """Processes of this host that make up the machine and its network, with all their
    descendants."""
    client: Callable[[Sequence[str]], list[str]]
    """The command line that runs a program at the other end. The program ends when its starter
    does."""
    counters: Callable[[], LinkCounters]
    others: tuple[str, ...] = ()
    """Addresses of the machine's further guests, which are as `Guests` counts them."""
    host: Shell | None = None
    """The host around the machine that serves it; None: threads of this host do."""
    host_program: str = "vtax-host"
    """Where that host has it."""


ALL: tuple[type[Capability], ...] = (
    Files,
    Guests,
    RecordOutside,
    RecordInside,
    CountPrograms,
    KvmCounters,
    HostReadings,
    Switch,
    Pause,
    GuestPage,
    Nodes,
    Link,
)
"""vtax's own capabilities, in the order of the table in docs/environments.md."""


def offered(capabilities: Sequence[Capability], wanted: type[C]) -> C | None:
    """The first of `capabilities` that is of the type `wanted`."""
    return next((each for each in capabilities if isinstance(each, wanted)), None)
