"""Running the checks: all at once, each within its time, none able to spoil the others."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding, State
from vtax.doctor.checks import registered

LIMIT_S = 1.9
"""The limit for all checks together; they run side by side, so it is also the limit of each."""


def examine(
    host: Host | None = None, checks: Sequence[Check] | None = None, limit_s: float = LIMIT_S
) -> list[Finding]:
    """One finding for each check, in the order of the checks."""
    host = host or Host()
    checks = registered() if checks is None else checks
    answers: queue.SimpleQueue[Finding] = queue.SimpleQueue()
    for check in checks:
        # Daemon threads: a check that hangs in the kernel must not keep vtax from ending.
        threading.Thread(target=lambda c=check: answers.put(_find(c, host)), daemon=True).start()

    found: dict[str, Finding] = {}
    deadline = time.monotonic() + limit_s
    while len(found) < len(checks):
        try:
            finding = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        found[finding.name] = finding
    late = f"not known: no answer within {limit_s:g} s"
    return [
        found.get(check.name, Finding(check.name, State.MISSING, late, "run vtax doctor again"))
        for check in checks
    ]


def _find(check: Check, host: Host) -> Finding:
    try:
        return check.find(host)
    except Exception as error:  # a fault in one check is that check's finding
        kind = type(error).__name__
        return Finding(
            check.name, State.MISSING, f"not known: the check failed ({kind}: {error})", None
        )
