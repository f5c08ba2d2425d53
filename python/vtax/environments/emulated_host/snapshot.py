"""Saved emulated hosts in the cache: complete or absent, bounded in number, never removed while in
use.

Each is a folder SHAPE-KEY with the files `ram`, `state` and `meta.json`. SHAPE stands for what the
user asked for, KEY for everything that the saved machine consists of; so an update of QEMU or of
the agent gives a new key, and the old snapshot of that shape is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from vtax.core import cache, foreign_json
from vtax.core.errors import VtaxError

FORMAT = 1
_LOCK = "lock"
_META = "meta.json"
_TEMPORARY = ".making-"


@dataclass(frozen=True, slots=True)
class Name:
    """Identifies a snapshot; both parts are short digests."""

    shape: str
    key: str

    def __str__(self) -> str:
        return f"{self.shape}-{self.key}"


def name(shape: Mapping[str, Any], files: Iterable[Path], versions: Iterable[str]) -> Name:
    """The name for a shape, the files the machine is made of, and whatever else it depends on.

    Files count by path, size and time of change: reading 130 MB would cost more than restoring.
    """
    asked = json.dumps([FORMAT, dict(shape)], sort_keys=True)
    stats = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    whole = json.dumps([asked, sorted(stats), list(versions)])
    return Name(_digest(asked), _digest(whole))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Snapshot:
    """A complete snapshot, held: it is not removed before `release`."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock: int | None = lock
        try:
            self.meta: Mapping[str, Any] = foreign_json.parse_object((folder / _META).read_text())
            self.state = (folder / "state").read_bytes()
        except (OSError, ValueError) as error:
            self.release()
            raise VtaxError(f"the snapshot {folder} is damaged: {error}", "remove it") from None

    @property
    def ram(self) -> Path:
        return self.folder / "ram"

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def discard(self) -> None:
        """Remove the snapshot, unless another process holds it too."""
        self.release()
        _remove_unused(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Store:
    """The snapshots in one folder, of which there are at most `keep`."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder = folder
        self._keep = keep

    def find(self, wanted: Name) -> Snapshot | None:
        """The snapshot, held against removal; None when there is none."""
        folder = self._folder / str(wanted)
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        fcntl.flock(lock, fcntl.LOCK_SH)
        if not _still_there(folder / _LOCK, lock):
            os.close(lock)
            return None
        os.utime(folder)
        return Snapshot(folder, lock)

    @contextlib.contextmanager
    def making(self, wanted: Name) -> Iterator[Path]:
        """A folder to fill with `ram` and `state`; it becomes the snapshot when the block ends.

        Only one process at a time makes a snapshot of a shape: a second maker should wait with
        `one_maker` and look again.
        """
        self._remove_abandoned()
        folder = self._folder / f"{_TEMPORARY}{os.getpid()}-{wanted}"
        folder.mkdir(mode=0o700)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
            folder.rename(self._folder / str(wanted))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            os.close(lock)
        self._evict(wanted)

    def one_maker(self, wanted: Name) -> contextlib.AbstractContextManager[None]:
        """The lock of the process that makes snapshots of this shape."""
        return cache.locked(self._folder / wanted.shape)

    def complete(self, folder: Path, state: bytes, meta: Mapping[str, Any]) -> None:
        """Write the state and description of the memory that is in `folder` already.

        Raises VtaxError when the files cannot be written.
        """
        try:
            (folder / "state").write_bytes(state)
            (folder / _META).write_text(json.dumps(dict(meta)))
        except OSError as error:
            reason = f"cannot save the emulated host: {error.strerror}"
            raise VtaxError(reason, "free space or use snapshot=off") from None

    def _evict(self, newest: Name) -> None:
        """Remove other snapshots of the same shape, then the least recently used ones beyond the
        bound."""
        found = sorted(self._snapshots(), key=_used, reverse=True)
        others = [path for path in found if path.name != str(newest)]
        stale = [path for path in others if path.name.startswith(f"{newest.shape}-")]
        kept = [path for path in others if path not in stale]
        for path in (*stale, *kept[self._keep - 1 :]):
            _remove_unused(path)

    def _snapshots(self) -> list[Path]:
        return [path.parent for path in self._folder.glob(f"[0-9a-f]*/{_META}")]

    def _remove_abandoned(self) -> None:
        """Remove what a killed maker left: its lock ended with it."""
        for path in self._folder.glob(f"{_TEMPORARY}*"):
            _remove_unused(path)


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _remove_unused(folder: Path) -> None:
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # Its maker was killed, or removed it, between two steps.
        return shutil.rmtree(folder, ignore_errors=True)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _still_there(folder / _LOCK, lock):
            # The lock's file goes first: a process that opens it later finds it gone.
            (folder / _LOCK).unlink()
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return None
    finally:
        os.close(lock)
    return None


def _still_there(path: Path, descriptor: int) -> bool:
    """Whether the file that was locked is still the one at `path`."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False
