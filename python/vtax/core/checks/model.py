"""What a check is and what it says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vtax.core.checks.host import Host


class State(StrEnum):
    """How far something can be used here."""

    OK = "ok"
    DEGRADED = "degraded"
    """It works, but figures are worse for it, or mean less."""
    MISSING = "missing"
    """It is absent, and the remedy brings it."""
    IMPOSSIBLE = "impossible"
    """It is absent, and nothing that can be done on this machine brings it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer of one check."""

    name: str
    state: State
    detail: str
    """One line: what was found."""
    remedy: str | None = None
    """One line: what to do about it; None when nothing can or need be done."""


class Check(ABC):
    """One thing that a measurement may need.

    A check only looks: it changes nothing that outlives it, and reads files through the host it
    is given, so that tests give it a fake one.
    """

    name: ClassVar[str]
    """Unique; what `--require` takes."""
    purpose: ClassVar[str] = ""
    """What vtax needs it for, in a few words; the sources of events that need it are added."""

    @abstractmethod
    def find(self, host: Host) -> Finding: ...

    def ok(self, detail: str) -> Finding:
        return Finding(self.name, State.OK, detail)

    def degraded(self, detail: str, remedy: str | None = None) -> Finding:
        return Finding(self.name, State.DEGRADED, detail, remedy)

    def missing(self, detail: str, remedy: str | None) -> Finding:
        return Finding(self.name, State.MISSING, detail, remedy)

    def impossible(self, detail: str) -> Finding:
        return Finding(self.name, State.IMPOSSIBLE, detail)
