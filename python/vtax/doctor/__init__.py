"""What this machine can measure, and the remedy for what it cannot: `vtax doctor`."""

from __future__ import annotations

from vtax.doctor.examine import examine
from vtax.doctor.host import Host
from vtax.doctor.model import Check, Finding, State

__all__ = ["Check", "Finding", "Host", "State", "examine"]
