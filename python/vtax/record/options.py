"""The options of a recording, in the form of the recorder's command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DEFAULT_EVENTS = "default"
MACHINE_EVENTS = "default,kvm"
"""The events by default where virtual machines are recorded."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Texts go to the recorder as they are: it knows their form, their bounds and its remedies."""

    every: str | None = None
    """Length of an interval: instructions (50Mi) or time (1ms); None: whatever suits the
    machine."""
    events: str | None = None
    """Names, layers or `default`, with commas; None: whatever suits what is recorded."""
    duration: str | None = None
    guest: Path | None = None
    """The page in which a guest publishes counters (docs/record.md)."""
    overhead: bool = False
    """Measure how long the eBPF programs run."""
    counters: int | None = None
    """The most counters used at a time, by software events too; None: all that are free."""

    def arguments(self, events: str = DEFAULT_EVENTS) -> list[str]:
        """Options of `vtax-recorder record`; `events` are for an options object that names none."""
        line = ["--events", self.events or events]
        if self.every is not None:
            line += ["--every", self.every]
        if self.duration is not None:
            line += ["--for", self.duration]
        if self.guest is not None:
            line += ["--guest", str(self.guest)]
        if self.counters is not None:
            line += ["--counters", str(self.counters)]
        return [*line, "--overhead"] if self.overhead else line

    def asked(self) -> dict[str, Any]:
        """The options that were given, as run.json keeps them."""
        named = {name: value for name, value in asdict(self).items() if value}
        return {name: str(v) if isinstance(v, Path) else v for name, v in named.items()}


@dataclass(frozen=True, slots=True)
class Target:
    """What is counted on this machine: everything, a process, guests, or a command."""

    pid: int | None = None
    vm: str | None = None
    """The process of a virtual machine, or `all`."""
    command: Sequence[str] = ()

    def arguments(self) -> list[str]:
        """The end of the recorder's command line."""
        line = [] if self.pid is None else ["--pid", str(self.pid)]
        if self.vm is not None:
            line += ["--vm", self.vm]
        return [*line, "--", *self.command] if self.command else line

    @property
    def usual_events(self) -> str:
        return DEFAULT_EVENTS if self.vm is None else MACHINE_EVENTS
