"""Network namespaces that stand for hosts: a bridge joins them with each other and with this
host."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import Self

import pytest


class Namespaces:
    """Two namespaces. `addresses` are theirs by their names, which are host names, too."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            pytest.skip("network namespaces need root")
        self._bridge = f"vx{os.getpid()}"
        network = f"10.214.{os.getpid() % 256}"
        self._own = f"{network}.254"
        self.addresses = {
            f"{self._bridge}{letter}": f"{network}.{n}" for n, letter in ((1, "a"), (2, "b"))
        }

    def inside(self, name: str, hidden: object) -> list[str]:
        """The command line that runs another one as that host, with the folder `hidden` to
        itself."""
        script = 'hostname "$1"; mount -t tmpfs none "$2" && shift 2 && exec "$@"'
        line = ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", script, "sh"]
        return [*line, name, str(hidden)]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self.__exit__)
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("address", "add", f"{self._own}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for name, address in self.addresses.items():
                _ip("netns", "add", name)
                _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
                _ip("link", "set", name, "master", self._bridge, "up")
                _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth0")
                for each in ("lo", "eth0"):
                    _ip("-n", name, "link", "set", each, "up")
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.addresses:
            _ip("netns", "del", name, must=False)
            # A namespace ends with its last process, which may be later.
            _ip("link", "del", name, must=False)
        _ip("link", "del", self._bridge, must=False)


def _ip(*words: str, must: bool = True) -> None:
    subprocess.run(["ip", *words], check=must, stderr=None if must else subprocess.DEVNULL)
