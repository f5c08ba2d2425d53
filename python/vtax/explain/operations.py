"""What a bill has lines for: which counts, which price, what is on other lines."""

from __future__ import annotations

from dataclasses import dataclass

CALLS = "system calls"
CLOCKS = "clock readings"
FAULTS = "page faults"
PROCESSES = "processes"
WAITING = "waiting"
PAUSES = "pauses between calls"
USER_CODE = ("user_integer", "user_float", "user_branch", "user_call", "user_mixed")
"""The prices of a program's own instructions."""
USUAL_CODE = ("user_mixed",)
"""The one that is most like a program: it has more code than a loop."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A line of the bill."""

    name: str
    """As a reader sees it."""
    group: str
    price: str
    """The operation of `vtax prices`."""
    columns: tuple[str, ...] = ()
    """The recorder's columns that count it."""
    less: tuple[str, ...] = ()
    """Columns whose counts are taken off."""
    at_most: tuple[str, ...] = ()
    """Columns of which there are at least as many; empty: any count is possible."""
    bytes_column: str | None = None
    """The recorder's column with the bytes of all of them."""
    by_user_time: bool = False
    """Whether its size is the program's user time between two of them, in nanoseconds, and it costs
    what one costs more than one without a pause."""
    by_faults_there: bool = False
    """Whether its size is how many faults the environment takes for one of them, by its kernel's
    own count."""
    per_price: float = 1.0
    """How many of what is counted one priced operation has."""
    without_faults: bool = False
    """Whether the price includes page faults, which are lines of their own."""
    own_calls: float | None = None
    """How many of the calls that the price includes are on no other line; None: all."""
    without: tuple[tuple[str, float], ...] = ()
    """Operations that the price includes and that are lines of their own, and how many."""
    by_switches: bool = False
    """Whether it is counted by the kernel's count of context switches by waiting."""
    assumed: str = ""
    """Why the price need not be that of what is counted."""


OPENED = ("calls.open", "calls.create")


def _call(name: str, price: str | None = None, **how: object) -> Operation:
    """A class of system calls, by the recorder's column of its name."""
    return Operation(name, CALLS, price or name, (f"calls.{name}",), **how)  # type: ignore[arg-type]


_OPERATIONS: tuple[Operation, ...] = (
    _call("null"),
    _call("clock_call"),
    Operation("clock reading", CLOCKS, "clock", ("calls.clock",)),
    _call("stat"),
    _call("fstat"),
    _call("fcntl"),
    _call("open"),
    # A descriptor that was not opened is a duplicate, a pipe or a socket.
    _call("close", at_most=OPENED),
    Operation("close of a duplicate", CALLS, "close_duplicate", ("calls.close",), less=OPENED),
    _call("getdents", bytes_column="calls.getdents_bytes"),
    _call("readlink"),
    _call("read", bytes_column="calls.read_bytes"),
    _call("write", bytes_column="calls.write_bytes"),
    _call("create"),
    _call("unlink"),
    _call("rename"),
    _call("mkdir"),
    _call("fsync"),
    _call("mmap"),
    _call("munmap"),
    _call("mprotect"),
    _call("brk"),
    _call("signal_install"),
    _call("signal_mask"),
    _call("signal"),
    _call("poll"),
    _call("epoll"),
    _call("futex"),
    _call("socket", per_price=2.0, assumed="all calls on sockets by the price of send and recv"),
    Operation("failed exec", CALLS, "stat", ("calls.exec",), less=("sched.execs",),
              assumed="programs that were looked for and not there, by the price of stat"),
    _call("wait", "null", assumed="by the price of the emptiest call; a fork's price has its wait"),
    _call("other", "null", assumed="calls without a class, by the price of the emptiest call"),
    Operation("anonymous fault", FAULTS, "fault_anonymous", ("faults.anonymous",)),
    Operation("file fault", FAULTS, "fault_file", ("faults.file",), by_faults_there=True),
    Operation("copy-on-write fault", FAULTS, "fault_cow", ("faults.cow",)),
    Operation("minor fault", FAULTS, "fault_anonymous", ("faults.minor",),
              assumed="page faults of unknown kind, by the price of anonymous ones"),
    Operation("fork", PROCESSES, "fork", ("calls.fork",), without_faults=True, own_calls=2),
    Operation("exec", PROCESSES, "exec", ("sched.execs",), without_faults=True,
              own_calls=5, without=(("vfork", 1.0),)),
    Operation("thread", PROCESSES, "thread", ("calls.thread",), without_faults=True, own_calls=1),
    Operation("sleep", WAITING, "sleep", ("calls.sleep",)),
    Operation("context switch", WAITING, "switch", by_switches=True, without=(("pipe", 0.5),)),
)  # fmt: skip

_ALL_CALLS = dict.fromkeys(
    column
    for each in _OPERATIONS
    for column in each.columns
    if column.startswith("calls.") and each.group == CALLS
)

OPERATIONS: tuple[Operation, ...] = (
    *_OPERATIONS,
    # Prices are those of calls without a pause between them.
    Operation(PAUSES, PAUSES, "late_call", tuple(_ALL_CALLS), by_user_time=True),
)  # fmt: skip
