"""Passing on what is written to files while a command runs in a machine."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Self

EVERY_S = 0.1
_CHUNK = 1 << 20


class Following:
    """A context in which the content of files in `folder` goes to streams as they grow, to the last
    byte.

    The machine may put anything into the folder: no link is followed, and only regular files are
    read.
    """

    def __init__(self, folder: Path, streams: Mapping[str, BinaryIO]) -> None:
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        self._read = dict.fromkeys(streams, 0)
        self._streams = streams
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        os.close(self._folder)

    def _follow(self) -> None:
        last = False
        while not last:
            last = self._over.wait(EVERY_S)
            for name, stream in self._streams.items():
                # The file is not there yet; or the stream's reader has gone, which does not end the
                # command.
                with contextlib.suppress(OSError):
                    self._pass_on(name, stream)

    def _pass_on(self, name: str, stream: BinaryIO) -> None:
        # Opening a pipe must not wait for its writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with os.fdopen(os.open(name, flags, dir_fd=self._folder), "rb") as file:
            file.seek(self._read[name])
            while content := file.read(_CHUNK):
                self._read[name] += len(content)
                stream.write(content)
                stream.flush()
