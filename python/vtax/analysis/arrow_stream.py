"""The whole messages of an Arrow IPC stream whose writer may have been killed in the middle of one.

A stream is a sequence of messages: 0xFFFFFFFF, the length of the metadata (int32), the metadata (a
flatbuffer), and a body of the length that the metadata names (Arrow columnar format 1.5,
"Encapsulated message format"). polars refuses a stream that ends within a message; cut at the last
whole one, every row before it is read. No library in use does that: polars gives the rows only to
who knows their number before, and pyarrow, which gives them batch by batch, takes 170 MB on disk.
"""

from __future__ import annotations

import struct
from io import BytesIO

CONTINUATION = b"\xff\xff\xff\xff"
END = CONTINUATION + b"\0\0\0\0"
_BODY_LENGTH_SLOT = 3
"""Of the table `Message`: version, header type, header, bodyLength."""


def whole_messages(content: bytes) -> tuple[BytesIO, int]:
    """The stream up to its last whole message, ended properly, and the bytes cut off.

    Raises ValueError when not even the schema is whole.
    """
    end = 0
    while (following := _end_of_message(content, end)) is not None:
        end = following
    if end == 0:
        raise ValueError("the stream ends before its schema")
    cut = len(content) - end
    return BytesIO(content[:end] + END), 0 if content[end:] == END else cut


def _end_of_message(content: bytes, start: int) -> int | None:
    """Where the message that starts there ends; None at the end of what is whole."""
    if content[start : start + 4] != CONTINUATION or len(content) < start + 8:
        return None
    (size,) = struct.unpack_from("<i", content, start + 4)
    metadata = start + 8
    if size <= 0 or metadata + size > len(content):
        return None
    try:
        body = _body_length(content[metadata : metadata + size])
    except struct.error:
        return None
    end = metadata + size + body
    return end if body >= 0 and end <= len(content) else None


def _body_length(metadata: bytes) -> int:
    """`Message.bodyLength` (int64), 0 when the flatbuffer leaves it out as the default."""
    (table,) = struct.unpack_from("<I", metadata, 0)
    (back,) = struct.unpack_from("<i", metadata, table)
    vtable = table - back
    if vtable < 0:
        raise struct.error("the vtable lies before the metadata")
    (vtable_size,) = struct.unpack_from("<H", metadata, vtable)
    slot = 4 + 2 * _BODY_LENGTH_SLOT
    if slot + 2 > vtable_size:
        return 0
    (offset,) = struct.unpack_from("<H", metadata, vtable + slot)
    return int(struct.unpack_from("<q", metadata, table + offset)[0]) if offset else 0
