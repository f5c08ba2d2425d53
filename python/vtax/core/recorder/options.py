"""The options of a recording, by the names and in the form of the recorder's command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from vtax.core.clocks import Skew

GUEST = "guest"


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """The recorder declares them, and knows their form, their bounds and its remedies:
    `vtax record --help`."""

    given: Mapping[str, str] = field(default_factory=dict)
    """Texts by name; empty for an option without a value."""
    pages: Sequence[Path] = ()
    """The pages of guests as the recorder sees them; empty: the one that was given, if any."""

    @classmethod
    def of(cls, **given: str) -> Self:
        """Options such as ``every="1ms"``."""
        return cls(given)

    @property
    def guest(self) -> Path | None:
        """The page in which a guest publishes counters (docs/record.md)."""
        return Path(self.given[GUEST]) if GUEST in self.given else None

    def with_pages(self, pages: Sequence[Path]) -> Self:
        """These options, with the guests' pages where the recorder sees them."""
        return replace(self, pages=pages)

    def with_clock(self, guest: Skew, host: Skew) -> Self:
        """These options, with how far a guest's clock is from its host's, by how far both are from
        this machine's."""
        offset, within = guest.offset_ns - host.offset_ns, guest.within_ns + host.within_ns
        return replace(self, given={**self.given, "guest-clock": f"{offset},{within}"})

    def arguments(self) -> list[str]:
        """Options of `vtax-host record`."""
        # Join with "=", so that no value becomes an option.
        given = [
            (name, text) for name, text in self.given.items() if name != GUEST or not self.pages
        ]
        given += [(GUEST, str(page)) for page in self.pages]
        return [f"--{name}={text}" if text else f"--{name}" for name, text in given]

    def asked(self) -> dict[str, Any]:
        """The options that were given, as run.json keeps them."""
        return {
            name: int(text) if text.isdecimal() else text or True
            for name, text in self.given.items()
        }


@dataclass(frozen=True, slots=True)
class Target:
    """What is counted on this machine: everything, processes, guests, or a command."""

    processes: Sequence[int] = ()
    vm: str | None = None
    """The process of a virtual machine, or `all`."""
    command: Sequence[str] = ()

    def arguments(self) -> list[str]:
        """The end of the recorder's command line."""
        line = ["--pid", ",".join(map(str, self.processes))] if self.processes else []
        if self.vm is not None:
            line += ["--vm", self.vm]
        return [*line, "--", *self.command] if self.command else line
