"""Folders that vtax can always make again: unpacked kernels, initramfs images, probe results."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from vtax.core.errors import VtaxError


def home() -> Path | None:
    """The home folder of the user; None: HOME is not set, and the user has no entry in
    /etc/passwd."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def base() -> Path:
    """``$XDG_CACHE_HOME``, by default ``~/.cache``. Raises VtaxError when there is neither."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named)
    if (own := home()) is None:
        raise VtaxError("there is no home folder to keep a cache in", "set HOME or XDG_CACHE_HOME")
    return own / ".cache"


def folder(name: str) -> Path:
    """The folder vtax/NAME of `base`, made if it does not exist.

    Raises VtaxError when the folder cannot be made.
    """
    path = base() / "vtax" / name
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise VtaxError(
            f"cannot make the cache folder {path}: {error.strerror}", "set XDG_CACHE_HOME"
        ) from None
    return path


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock beside `path`, so that two vtax do not fill it at the same time."""
    with (path.parent / f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
