"""Temporary folders and files that a later run removes where `kill -9` ended their owner.

An owner holds a lock (flock(2)), which ends with it; whoever gets the lock may remove what it
guards. Names alone prove nothing, because anybody may write into TMPDIR.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "vtax-"
LOCK = ".vtax-scratch"
"""The file in a folder that the folder's owner has locked."""


@contextlib.contextmanager
def scratch(purpose: str) -> Iterator[Path]:
    """A new folder in TMPDIR, removed at the end; folders of killed owners are removed first.

    Raises OSError when the folder cannot be made.
    """
    sweep()
    with tempfile.TemporaryDirectory(
        prefix=f"{PREFIX}{purpose}-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        # The folder gets its name when it is locked, so that others only ever see it locked.
        unnamed = folder / f"{LOCK}.new"
        with held(unnamed):
            unnamed.rename(folder / LOCK)
            yield folder


def sweep() -> int:
    """Remove the folders of killed owners; return how many there were."""
    removed = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{LOCK}"):
        removed += _removed_if_left(folder.parent)
    return removed


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """Make a file and hold its lock. Raises OSError when it cannot be made."""
    flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_left(pattern: str, folder: Path) -> None:
    """Remove the files of this pattern in a folder whose owners were killed."""
    for path in folder.glob(pattern):
        with contextlib.suppress(OSError), _taken(path):
            path.unlink()


def _removed_if_left(folder: Path) -> bool:
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            return False
        with _taken(folder / LOCK):
            shutil.rmtree(folder)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _taken(path: Path) -> Iterator[None]:
    """Hold the lock of a regular file of this user's; raises OSError where another process holds
    it."""
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{path} is another's")
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
