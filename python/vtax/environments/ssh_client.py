"""The system's `ssh`, with the user's own configuration."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from vtax.core.errors import MisuseError, VtaxError

CONNECT_S = 15
ALIVE_EVERY_S, ALIVE_COUNT = 5, 3
"""ssh gives up a connection that is silent for the product of the two."""
_HOST = re.compile(
    r"((?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?)([A-Za-z0-9_][A-Za-z0-9._-]*|\[[0-9A-Za-z:.%]+\])(?::([0-9]+))?"
)
"""User, host and port; nothing that begins with a hyphen, which would be an option of ssh."""
_REASONS = (
    ("has changed and you have requested strict checking", "its host key has changed",
     "find out why; then remove the old one with ssh-keygen -R, and connect once: {by_hand}"),
    ("Host key verification failed", "its host key is not known here",
     "connect once by hand: {by_hand}"),
    ("Permission denied", "it accepts none of ssh's keys for this user",
     "make this work without a password, e.g. by ssh-copy-id: {by_hand}"),
    ("not responding", "the connection has been silent for too long", None),
)  # fmt: skip
"""What ssh says, the reason in a few words, and the remedy."""


@dataclass(frozen=True, slots=True)
class Login:
    """Where to log in, and as whom."""

    host: str
    """With the user, where one is given."""
    port: int | None = None
    config: str | None = None
    """ssh's configuration file; None: the user's."""

    @classmethod
    def parse(cls, text: str, config: str | None) -> Self:
        """``me@node7:22``, ``node7``, ``[::1]:22`` as ssh takes them; raises MisuseError for
        anything else."""
        match = _HOST.fullmatch(text)
        if match is None or not 0 < int(match[3] or 22) < 65536:
            raise MisuseError(f"ssh: '{text}' is not [user@]host[:port]", "e.g. ssh:me@node7:22")
        port = int(match[3]) if match[3] else None
        return cls(match[1] + match[2].strip("[]"), port, config)

    @property
    def name(self) -> str:
        """What messages call the machine."""
        return f"{self.host}:{self.port}" if self.port else self.host

    def line(self) -> list[str]:
        """The command line up to what is to run there; raises VtaxError without ssh."""
        program = shutil.which("ssh")
        if program is None:
            raise VtaxError("ssh is missing", "apt-get install openssh-client")
        line = [program, "-T", "-x", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}"]
        line += ["-o", f"ServerAliveInterval={ALIVE_EVERY_S}"]
        line += ["-o", f"ServerAliveCountMax={ALIVE_COUNT}"]
        if self.config is not None:
            line += ["-F", self.config]
        if self.port is not None:
            line += ["-p", str(self.port)]
        return [*line, "--", self.host]


def explain(client: Sequence[str], lines: Sequence[str]) -> tuple[str, str | None]:
    """Why ssh failed, given what it said, and the remedy."""
    said, typed = " | ".join(lines), by_hand(client)
    for words, reason, remedy in _REASONS:
        if words in said:
            return reason, remedy.format(by_hand=typed) if remedy else None
    return lines[-1] if lines else "ssh says nothing", f"try: {typed}"


def by_hand(client: Sequence[str]) -> str:
    """The command that a user would type to reach the same machine."""
    own = [part for option in ("-F", "-p") if option in client for part in _pair(client, option)]
    return shlex.join(["ssh", *own, client[-1], "true"])


def _pair(client: Sequence[str], option: str) -> Sequence[str]:
    at = client.index(option)
    return client[at : at + 2]
