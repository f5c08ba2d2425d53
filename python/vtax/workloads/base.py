"""What a workload is: it builds commands and reads results, and never starts anything itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from vtax.core.formats.model import Better, BetterFrom


@dataclass(frozen=True, slots=True)
class Reading:
    """How a value was found in what a program printed."""

    matches: int
    """The number of matches; 1 also where the user chose among several."""
    unit: str
    """The unit as printed; "" where there is none."""
    word: str = ""
    """The word behind a number without a known unit: maybe a unit that vtax does not know."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A value that one repetition gave."""

    name: str
    unit: str
    better: Better
    value: float
    ran_s: float | None = None
    """How long the kernel that gave the value ran; None: the program does not say."""
    better_from: BetterFrom | None = field(default=None, compare=False)
    """None: the workload declares the direction."""
    reading: Reading | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class MachineShape:
    """What a workload may know of the machines it will run on: the smallest of them."""

    cpus: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Command:
    """A command line with the input files it needs in its working folder."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables to add to the scrubbed base environment."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of files by their names in the working folder; the host writes them before the
    run."""
    timeout_s: float | None = None
    in_user_folder: bool = False
    """Whether it runs in the user's folder, not in that of its results."""
    stdin: bytes | None = None
    """Its standard input, read anew in each repetition; None: it has none."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the agent said about a finished command: `run` in crates/agent/PROTOCOL.md."""

    wall_s: float
    tsc_ticks: int | None
    instructions: int | None
    instructions_user: int | None
    cycles: int | None
    user_s: float
    system_s: float
    steal_s: float | None
    max_rss_bytes: int
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    exit_code: int | None
    signal: int | None
    timed_out: bool
    left_processes: int = 0
    """The processes that it left running and that were ended with it."""

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


class ResultFolder(Protocol):
    """The working folder after a run. The guest may be hostile: a file that is not regular, or too
    large, is refused with a VtaxError, and no link is followed."""

    def read_bytes(self, name: str, limit_bytes: int = 16 << 20) -> bytes: ...

    def read_text(self, name: str, limit_bytes: int = 16 << 20) -> str: ...

    """The text of a file as UTF-8, with errors replaced."""


class Workload(Protocol):
    """A program under measurement. Implementations are frozen dataclasses registered by name."""

    name: ClassVar[str]

    def parameters(self) -> dict[str, Any]:
        """The parameters that run.json keeps, as JSON values."""
        ...

    def label(self) -> str:
        """Short text for titles, e.g. ``hpcc small``."""
        ...

    def command(self, shape: MachineShape) -> Command:
        """The command line of one repetition."""
        ...

    def metrics(self, outcome: Outcome, folder: ResultFolder) -> Sequence[Metric]:
        """The values of a finished repetition.

        Raises VtaxError (one line, with the tail of the output where it helps) when the workload
        failed or failed its own check.
        """
        ...

    def needs(self) -> Sequence[str]:
        """Programs that must be on the machine's PATH, e.g. ``("mpirun", "hpcc")``."""
        ...

    def libraries(self) -> Sequence[str]:
        """Paths of programs whose resolved BLAS is recorded; empty when BLAS does not matter."""
        ...

    def expected_metrics(self, shape: MachineShape) -> Sequence[tuple[str, str, Better]]:
        """(name, unit, better) in display order; empty when only a run can tell."""
        ...


def tail(text: str, lines: int = 3) -> str:
    """The last non-empty lines of a program's output, on one line, for an error message."""
    kept = [line.strip() for line in text.splitlines() if line.strip()][-lines:]
    return " | ".join(kept)


__all__ = [
    "Command",
    "MachineShape",
    "Metric",
    "Outcome",
    "Reading",
    "ResultFolder",
    "Workload",
    "tail",
]
