"""An OpenSSH server on loopback with keys of its own, for tests; it ends with its block."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from namespaces import Namespaces
from process_watch import descendants

SSHD = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")


class SshServer:
    """A running server. `config` is the client's configuration, with the host key known.

    `inside`: the command line that runs another one where the server is, which has the address.
    """

    def __init__(
        self,
        folder: Path,
        setting: str = "",
        address: str = "127.0.0.1",
        inside: Sequence[str] = (),
    ) -> None:
        if SSHD is None or shutil.which("ssh") is None:
            pytest.skip("no OpenSSH server and client: apt-get install openssh-server")
        # sshd drops privileges into this folder, which systemd would make.
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.folder, self.address = folder, address
        folder.mkdir(mode=0o700)
        self.port = _free_port()
        self.known_hosts = folder / "known_hosts"
        self.config = folder / "config"
        keygen("host", folder)
        keygen("user", folder)
        (folder / "authorized").write_text((folder / "user.pub").read_text())
        self.know("host")
        self.config.write_text(
            f"Host {address}\nUserKnownHostsFile {self.known_hosts}\n"
            "GlobalKnownHostsFile /dev/null\n"
            f"IdentityFile {folder / 'user'}\nIdentitiesOnly yes\nStrictHostKeyChecking yes\n"
        )
        (folder / "sshd_config").write_text(
            f"ListenAddress {address}\nPort {self.port}\nHostKey {folder / 'host'}\n"
            f"AuthorizedKeysFile {folder / 'authorized'}\nStrictModes no\nUsePAM no\n"
            f"PasswordAuthentication no\nPermitRootLogin yes\nPidFile none\nMaxStartups 100\n"
            f"{setting}\n"
        )
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(
            [*inside, SSHD, "-D", "-e", "-f", str(folder / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        self._await()

    @property
    def spec(self) -> str:
        return f"ssh:{self.address}:{self.port},config={self.config}"

    def know(self, key: str) -> None:
        """Let the client know this key as the server's, and no other."""
        public = (self.folder / f"{key}.pub").read_text()
        self.known_hosts.write_text(f"[{self.address}]:{self.port} {public}")

    def sessions(self) -> list[int]:
        """The processes of open connections, with all that they started."""
        return descendants(self.process.pid)

    def signal(self, number: int) -> None:
        """Signal the server's side of all connections, and nothing that runs in them.

        SIGKILL cuts them, SIGSTOP makes them a black hole.
        """
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("sshd"):
                    os.kill(pid, number)

    def __enter__(self) -> SshServer:
        return self

    def __exit__(self, *_: object) -> None:
        left = self.sessions()
        self.process.kill()
        self.process.wait()
        self.log.close()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _await(self) -> None:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection((self.address, self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.02)
        self.process.kill()
        raise AssertionError(f"sshd did not start: {(self.folder / 'log').read_text()}")


@contextlib.contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[SshServer, SshServer]]:
    """Servers on two hosts, each with `folder / "far"` to itself; the `config` of the first is for
    both."""
    far = folder / "far"
    far.mkdir(parents=True)
    with Namespaces() as joined, contextlib.ExitStack() as stack:
        first, second = (
            stack.enter_context(
                SshServer(folder / name, address=address, inside=joined.inside(name, far))
            )
            for name, address in joined.addresses.items()
        )
        first.config.write_text(first.config.read_text() + second.config.read_text())
        yield first, second


def keygen(name: str, folder: Path) -> None:
    line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
    subprocess.run(line, check=True, stdin=subprocess.DEVNULL)


def _free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])
