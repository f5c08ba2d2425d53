"""The lease of an agent: it ends itself when nobody renews it any more.

The end of its input tells an agent on a pipe that vtax is gone. A connection may break without a
word, though, and podman loses the end of its input when it comes while it attaches.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

LEASE_S = 30
"""The agent ends itself and what it runs when no frame has come for this long."""
RENEW_EVERY_S = 5.0


def lease() -> list[str]:
    """Options of `vtax-agent serve`."""
    return ["--lease", str(LEASE_S)]


class Renewal:
    """Renews a lease again and again until it is ended."""

    def __init__(self, renew: Callable[[], None]) -> None:
        self._renew = renew
        self._ended = threading.Event()
        threading.Thread(target=self._go_on, daemon=True).start()

    def end(self) -> None:
        """Renew no more."""
        self._ended.set()

    def _go_on(self) -> None:
        while not self._ended.wait(RENEW_EVERY_S):
            self._renew()
