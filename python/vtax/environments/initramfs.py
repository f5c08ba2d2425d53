"""A cpio archive in the format `newc` (kernel doc driver-api/early-userspace/buffer-format).

This uses no library: the format is one header per file, and existing tools write to disk first.
"""

from __future__ import annotations

from collections.abc import Mapping

_DIRECTORY = 0o040755
_PROGRAM = 0o100755
_TRAILER = "TRAILER!!!"


def newc(programs: Mapping[str, bytes], folders: tuple[str, ...] = ()) -> bytes:
    """An archive of executable files (path without leading slash to content) and folders.

    The same input gives the same bytes: no times, no owners.
    """
    parts = [_entry(number, name, b"", _DIRECTORY) for number, name in enumerate(folders, 1)]
    parts += [
        _entry(number, name, content, _PROGRAM)
        for number, (name, content) in enumerate(programs.items(), len(folders) + 1)
    ]
    parts.append(_entry(0, _TRAILER, b"", 0))
    return b"".join(parts)


def _entry(inode: int, name: str, content: bytes, mode: int) -> bytes:
    encoded = name.encode() + b"\0"
    links = 2 if mode == _DIRECTORY else 1
    fields = (inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return _padded(header + encoded) + _padded(content)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
