"""Tables of run folders as Parquet, read without trusting them.

A few kilobytes can claim to be billions of rows. So the table's size in memory is taken from the
metadata, and bounded by the file's own size, before any row is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vtax.core.errors import VtaxError
from vtax.core.formats.files import open_regular
from vtax.core.units import format_bytes

if TYPE_CHECKING:
    import polars as pl

MAX_BYTES = 4 << 30
"""The limit in memory, and for a file: most machines have no room for more."""
FREE_BYTES = 256 << 20
"""In memory: a table up to this size may have so small a file that the file's size says nothing."""
MOST_PACKED = 64
"""The most that a table of measurements is larger in memory than in its file; 5 to 20 times were
seen."""
VALUE_BYTES = 8
LONGEST_TEXT = 1 << 16
"""The most bytes of one text in a table."""

Schema = Mapping[str, "pl.DataType"]
Choose = Callable[[Sequence[str]], Sequence[str]]
"""Chooses the wanted columns among those that there are."""


def read(path: Path, choose: Choose = lambda names: names, limit: int = MAX_BYTES) -> pl.DataFrame:
    """The wanted columns of a table.

    Raises VtaxError for a file that is not regular, not Parquet, or larger than measurements are.
    """
    import polars as pl

    size = _size(path, limit)
    with unless_damaged(path):
        table = pl.scan_parquet(path, glob=False)
        names = choose(table.collect_schema().names())
        require_size(path, size, table.select(pl.len()).collect().item(), len(names))
        found = table.select(names).collect()
    require_plain(path, found)
    return found


def schemas(paths: Sequence[Path], limit: int = MAX_BYTES) -> list[Schema | VtaxError]:
    """The columns of each table that `read` would read, or why it would not, by metadata alone.

    Texts without end are not seen. The rows of all tables are counted at once, which is much faster
    than one by one.
    """
    import polars as pl

    found: list[Schema | VtaxError] = []
    for path in paths:
        try:
            with unless_damaged(path):
                _size(path, limit)
                found.append(pl.scan_parquet(path, glob=False).collect_schema())
        except VtaxError as error:
            found.append(error)
    good = {n: each for n, each in enumerate(found) if not isinstance(each, VtaxError)}
    lengths = [pl.scan_parquet(paths[n], glob=False).select(pl.len()) for n in good]
    with unless_damaged("a table"):
        counted = pl.collect_all(lengths)
    for (n, schema), rows in zip(good.items(), counted, strict=True):
        try:
            require_size(paths[n], _size(paths[n], limit), rows.item(), len(schema))
        except VtaxError as error:
            found[n] = error
    return found


def _size(path: Path, limit: int) -> int:
    with open_regular(path) as file:
        size = file.seek(0, 2)
    if size > limit:
        raise VtaxError(f"{path} is larger than {format_bytes(limit)}: refused")
    return size


@contextlib.contextmanager
def unless_damaged(what: object) -> Iterator[None]:
    """Raise VtaxError, which names `what`, where polars cannot read a file."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        said = (str(error).splitlines() or ["it cannot be read"])[0]
        raise VtaxError(f"{what} is damaged: {said}") from None


def require_size(path: Path, file_bytes: int, rows: int, columns: int) -> None:
    """Raise VtaxError for a table that is too large for its file."""
    wanted = rows * columns * VALUE_BYTES
    if wanted > min(MAX_BYTES, max(FREE_BYTES, MOST_PACKED * file_bytes)):
        raise VtaxError(
            f"{path} claims {rows} rows of {columns} columns, {format_bytes(wanted)}, in a file of "
            f"{format_bytes(file_bytes)}: refused"
        )


def require_plain(path: Path, table: pl.DataFrame) -> None:
    """Raise VtaxError for columns that are neither numbers nor short texts."""
    import polars as pl

    for name, kind in table.schema.items():
        if kind.is_nested() or kind in (pl.Object, pl.Binary):
            raise VtaxError(f"{path} is damaged: its column {name:.80} has {kind}, not values")
        if kind == pl.String:
            longest = table[name].str.len_bytes().max()
            if isinstance(longest, int) and longest > LONGEST_TEXT:
                raise VtaxError(f"{path} is damaged: its column {name:.80} has texts without end")
