"""A program that runs on in a machine around the measured one, until it is asked to end."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

from vtax.environments.agent import unless_lost
from vtax.environments.capabilities import Shell

_START = """\
umask 077 && rm -rf {folder} && mkdir -p {folder} && cd {folder} && mkfifo in &&
{{ {{ sh -c 'echo $$ > pid; exec "$@"' sh {line} <> in > out 2> err; echo $? > code; }} & }}
"""
"""The program's input is a pipe that stays open; `code` is there when the program has ended."""
_WAIT = """\
i=0; until {until}; do [ ! -e code ] || exit 1
i=$((i+1)); [ "$i" -lt {tenths} ] || exit 2; sleep 0.1; done
"""
_NOT_YET = 2
_PART_TENTHS = 300
MOST_SAID = 16 << 20
TAIL_BYTES = 4096


class Background:
    """The program, and the folder there that has its input, its output and its exit code."""

    def __init__(self, host: Shell, folder: PurePosixPath) -> None:
        self._host, self.folder = host, folder

    def start(self, argv: Sequence[str], what: str) -> None:
        """Start the program. Raises VtaxError, which says `what` could not be done."""
        script = _START.format(folder=shlex.quote(str(self.folder)), line=shlex.join(argv))
        self._host.must(["busybox", "sh", "-c", script], what, leave=True)

    def wait(self, until: str, tenths: int) -> bool:
        """Whether the shell's condition `until` became true, in this many tenths of a second, and
        before the program ended."""
        code: int | None = _NOT_YET
        while code == _NOT_YET and tenths > 0:
            # One command in the machine may take a minute.
            code = self.shell(_WAIT.format(until=until, tenths=min(tenths, _PART_TENTHS)))
            tenths -= _PART_TENTHS
        return code == 0

    def ended(self, tenths: int) -> bool:
        """Whether the program ends in this many tenths of a second."""
        return self.wait("[ -e code ]", tenths)

    def signal(self, name: str) -> None:
        """Send a signal, if the program runs."""
        self.shell(f'kill -{name} "$(cat pid)" 2> /dev/null')

    def code(self) -> int | None:
        """The exit code; None while the program runs."""
        said = self._host.run(["busybox", "cat", str(self.folder / "code")]).stdout.strip()
        return int(said) if said.isdecimal() else None

    def output(self) -> bytes:
        """What it printed. Raises VtaxError for more than 16 MiB."""
        return self._host.pull(str(self.folder / "out"), MOST_SAID)

    def errors(self) -> str:
        """The last of what it said to standard error; nothing where the machine is lost."""
        with unless_lost():
            file = str(self.folder / "err")
            return self._host.tail(file, TAIL_BYTES).decode(errors="replace")
        return ""

    def remove(self) -> None:
        """Remove the folder there."""
        self._host.run(["busybox", "rm", "-rf", str(self.folder)])

    def shell(self, script: str) -> int | None:
        """The exit code of shell commands in the folder."""
        whole = f"cd {shlex.quote(str(self.folder))} && {script}"
        return self._host.run(["busybox", "sh", "-c", whole]).outcome.exit_code
