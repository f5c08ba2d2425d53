"""Counters that a Python program lets vtax record beside hardware and kernel events.

    from vtax.counters import counters

    with counters("requests", "errors") as count:
        count.add("requests")

    vtax-host record --app requests,errors --out run -- python program.py

The columns are `app.requests` and `app.errors`. Where nobody wants counters (there is no folder
/run/vtax/app, or the one named by VTAX_APP_DIR) adding does nothing. No other module of vtax is
loaded, and only the standard library.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FOLDER = Path("/run/vtax/app")
FOLDER_VARIABLE = "VTAX_APP_DIR"

# docs/record.md
_BYTES = 4096
_MAGIC = b"VTAXPAGE"
_VERSION = 1
_NAME_BYTES = 56
_ENTRY_BYTES = 64
_WORDS = _ENTRY_BYTES // 8
_MOST = 63
_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")


class Counters:
    """Named counters of this process; threads may add at any time."""

    def __init__(self, names: tuple[str, ...], page: memoryview | None) -> None:
        self._page = page
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._values = dict.fromkeys(names, 0)
        self._words = {name: _WORDS * (index + 2) - 1 for index, name in enumerate(names)}

    def add(self, name: str, amount: int = 1) -> None:
        """Add to a counter. Raises KeyError for a name that was not registered, ValueError below 0.

        A forked child adds to a copy, which nobody sees.
        """
        if amount < 0:
            raise ValueError("a counter only grows")
        with self._lock:
            value = (self._values[name] + amount) % (1 << 64)
            self._values[name] = value
            if self._page is not None and self._process == os.getpid():
                # One store of 64 bits: a reader sees the old number or the new one.
                self._page[self._words[name]] = value

    def value(self, name: str) -> int:
        """What has been added so far."""
        return self._values[name]


def include_folder() -> Path:
    """Where `vtax_counters.h` is, for `cc -I`."""
    return Path(__file__).parent / "include"


@contextmanager
def counters(*names: str) -> Iterator[Counters]:
    """Register counters `app.NAME` until the block ends.

    There are at most 63 names, each of at most 52 characters: a-z, 0-9, `_`, and dots between
    these. Raises ValueError for other names. A recorder can still read the counts after the block.
    """
    for name in names:
        if not _NAME.fullmatch(name) or len(f"app.{name}") > _NAME_BYTES:
            raise ValueError(f"{name!r} is not a name of a counter: use a-z, 0-9, _ and dots")
    if len(names) > _MOST or len(set(names)) < len(names):
        raise ValueError(f"at most {_MOST} counters, each with a name of its own")
    folder = Path(os.environ.get(FOLDER_VARIABLE) or FOLDER)
    if not folder.is_dir():
        yield Counters(names, None)
        return
    try:
        descriptor, path = tempfile.mkstemp(prefix=f".{os.getpid()}-", dir=folder)
    except OSError:
        # The folder is somebody else's.
        yield Counters(names, None)
        return
    with os.fdopen(descriptor, "r+b") as file:
        # The collector takes the lock as a sign that the process lives.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file.write(_page(names))
        file.flush()
        with (
            mmap.mmap(file.fileno(), _BYTES) as page,
            memoryview(page) as view,
            view.cast("Q") as words,
        ):
            whole = Path(path)
            whole.rename(whole.with_name(f"{whole.name.removeprefix('.')}.page"))
            yield Counters(names, words)


def _page(names: tuple[str, ...]) -> bytes:
    page = bytearray(_BYTES)
    struct.pack_into("<8sQ3QQQ", page, 0, _MAGIC, _VERSION, 0, 0, 0, len(names), 1)
    for index, name in enumerate(names):
        start = _ENTRY_BYTES * (index + 1)
        struct.pack_into(f"{_NAME_BYTES}s", page, start, f"app.{name}".encode())
    return bytes(page)
