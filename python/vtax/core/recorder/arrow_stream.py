"""The whole messages of an Arrow IPC stream whose writer may have been killed in the middle of one.

A stream is a sequence of messages: 0xFFFFFFFF, the length of the metadata (int32), the metadata (a
flatbuffer), and a body of the length that the metadata names (Arrow columnar format 1.5,
"Encapsulated message format"). polars refuses a stream that ends within a message; cut at the last
whole one, every row before that message is read. No library in use does that: polars yields the
rows only to a caller that knows their number, and pyarrow, which yields them batch by batch, takes
170 MB on disk.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from io import BytesIO

CONTINUATION = b"\xff\xff\xff\xff"
END = CONTINUATION + b"\0\0\0\0"
_HEADER_TYPE_SLOT, _HEADER_SLOT, _BODY_LENGTH_SLOT = 1, 2, 3
"""Slots of the table `Message`: version, header type, header, bodyLength."""
_RECORD_BATCH = 3
_LENGTH_SLOT = 0
"""Slot of the table `RecordBatch`."""


@dataclass(frozen=True, slots=True)
class Whole:
    """The part of a stream that is whole."""

    stream: BytesIO
    """The whole messages, with a proper end of stream."""
    torn_bytes: int
    """Bytes of the unfinished message at the end."""
    rows: int
    """The sum of what the messages say, before any row is read."""


def whole_messages(content: bytes) -> Whole:
    """The stream up to its last whole message. Raises ValueError when its schema is not whole."""
    end = rows = 0
    while (found := _message(content, end)) is not None:
        end, more = found
        rows += more
    if end == 0:
        raise ValueError("the stream ends before its schema")
    cut = len(content) - end
    return Whole(BytesIO(content[:end] + END), 0 if content[end:] == END else cut, rows)


def _message(content: bytes, start: int) -> tuple[int, int] | None:
    """The end of the message that starts at `start`, and its rows; None after the last whole
    message."""
    if content[start : start + 4] != CONTINUATION or len(content) < start + 8:
        return None
    (size,) = struct.unpack_from("<i", content, start + 4)
    metadata = start + 8
    if size <= 0 or metadata + size > len(content):
        return None
    message = content[metadata : metadata + size]
    try:
        (root,) = struct.unpack_from("<I", message, 0)
        body, rows = _integer(message, root, _BODY_LENGTH_SLOT, "<q"), 0
        if _integer(message, root, _HEADER_TYPE_SLOT, "<B") == _RECORD_BATCH:
            header = _place(message, root, _HEADER_SLOT)
            (to,) = struct.unpack_from("<I", message, header)
            rows = _integer(message, header + to, _LENGTH_SLOT, "<q")
    except struct.error:
        return None
    end = metadata + size + body
    return (end, rows) if body >= 0 and rows >= 0 and end <= len(content) else None


def _integer(message: bytes, table: int, slot: int, form: str) -> int:
    """A field of a table; 0 when the flatbuffer leaves it out as the default."""
    place = _place(message, table, slot)
    return int(struct.unpack_from(form, message, place)[0]) if place != table else 0


def _place(message: bytes, table: int, slot: int) -> int:
    """The position of a table's field; the table's own position where the field is left out."""
    (back,) = struct.unpack_from("<i", message, table)
    vtable = table - back
    if vtable < 0:
        raise struct.error("the vtable lies before the metadata")
    (vtable_size,) = struct.unpack_from("<H", message, vtable)
    at = 4 + 2 * slot
    if at + 2 > vtable_size:
        return table
    (offset,) = struct.unpack_from("<H", message, vtable + at)
    return table + int(offset)
