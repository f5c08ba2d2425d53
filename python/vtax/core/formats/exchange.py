"""The folder that a guest may write, seen from the host, which must not trust it.

A hostile guest can put symbolic links, pipes or device nodes where results are expected, and can
swap them at any moment. So every access goes through a directory descriptor, follows no link,
never blocks, and reads a bounded number of bytes from regular files only.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from vtax.core.errors import VtaxError


class Exchange:
    """One repetition's working folder below a machine's writable folder."""

    def __init__(self, parent: Path, name: str) -> None:
        self.parent = parent
        self.name = name
        self.path = parent / name

    def create(self, files: Mapping[str, bytes]) -> None:
        """Make the folder, which must not exist yet, with the input files in it.

        Raises VtaxError when the folder or a file in it cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700)
            folder = self._open()
        except OSError as error:
            raise VtaxError(f"cannot make {self.path}: {error.strerror}") from None
        try:
            for name, content in files.items():
                _write_new(folder, name, content)
        except OSError as error:
            raise VtaxError(
                f"cannot write the workload's input in {self.path}: {error.strerror}",
                "free space or choose another folder with --out",
            ) from None
        finally:
            os.close(folder)

    def remove(self, name: str) -> None:
        """Remove a file, if it is still there. Raises VtaxError when the folder is gone."""
        folder = self._reopen()
        try:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
        finally:
            os.close(folder)

    def read_bytes(self, name: str, limit_bytes: int = 16 << 20) -> bytes:
        """The content of a regular file, at most `limit_bytes`.

        Raises VtaxError when it is missing, no regular file, or larger.
        """
        folder = self._reopen()
        try:
            return _read_regular(folder, name, limit_bytes)
        except OSError as error:
            raise VtaxError(f"no result file '{name}': {error.strerror}") from None
        finally:
            os.close(folder)

    def read_text(self, name: str, limit_bytes: int = 16 << 20) -> str:
        """The content as text; bytes that are not UTF-8 are replaced."""
        return self.read_bytes(name, limit_bytes).decode("utf-8", errors="replace")

    def names(self) -> list[str]:
        """The names in the folder. Raises VtaxError when the folder is gone."""
        folder = self._reopen()
        try:
            with os.scandir(folder) as entries:
                return [entry.name for entry in entries]
        finally:
            os.close(folder)

    def read_all(self) -> dict[str, bytes]:
        """The contents of all files in the folder. Raises VtaxError as `read_bytes` does."""
        return {name: self.read_bytes(name) for name in self.names()}

    def check(self) -> None:
        """Raise VtaxError when the folder is gone or replaced."""
        os.close(self._reopen())

    def _reopen(self) -> int:
        try:
            return self._open()
        except OSError as error:
            raise VtaxError(
                f"the folder of results was removed or replaced: {error.strerror}"
            ) from None

    def _open(self) -> int:
        return os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _write_new(folder: int, name: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, 0o600, dir_fd=folder), "wb") as file:
        file.write(content)


def _read_regular(folder: int, name: str, limit_bytes: int) -> bytes:
    # O_NONBLOCK: opening a pipe that the guest left here must not wait for a writer.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=folder), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise VtaxError(f"result file '{name}' is not a regular file: refused")
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise VtaxError(f"result file '{name}' is larger than {limit_bytes} bytes: refused")
    return content
