"""Files that are written whole and read within bounds."""

from __future__ import annotations

import contextlib
import glob
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from vtax.core.errors import VtaxError
from vtax.core.formats.scratch import held, remove_left

if TYPE_CHECKING:
    import polars


@contextlib.contextmanager
def replacing(path: Path, remedy: str = "free space there") -> Iterator[Path]:
    """A temporary path to write to, which becomes `path` when all went well.

    A reader sees the whole file or none, also after kill -9; the next writer removes what that
    leaves. Raises VtaxError when the file cannot be written; an earlier file is then unchanged.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        remove_left(f".{glob.escape(path.name)}.*.tmp", path.parent)
        with held(temporary):
            yield temporary
            temporary.replace(path)
    except OSError as error:
        raise VtaxError(f"cannot write {path}: {error.strerror or error}", remedy) from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def write_atomic(path: Path, content: bytes, remedy: str = "free space there") -> None:
    """Write bytes as one whole file; see `replacing`."""
    with replacing(path, remedy) as temporary:
        temporary.write_bytes(content)


def write_table(path: Path, table: polars.DataFrame, remedy: str = "free space there") -> None:
    """Write a table as one whole Parquet file; see `replacing`."""
    content = io.BytesIO()
    table.write_parquet(content)
    write_atomic(path, content.getvalue(), remedy)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises VtaxError for a pipe or a device, which would be waited for, and OSError when it cannot
    be opened.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise VtaxError(f"{path} is not a regular file: refused")
    return file


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """The content of a file of at most `limit_bytes`.

    Raises VtaxError for a larger file or one that is not regular, OSError when it cannot be read.
    """
    with open_regular(path) as file:
        content = file.read(limit_bytes + 1)
    if len(content) > limit_bytes:
        raise VtaxError(f"{path} is larger than {limit_bytes} bytes: refused")
    return content
