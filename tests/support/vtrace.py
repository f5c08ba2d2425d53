"""A reader and a writer of .vtrace by docs/trace-format.md, which share no code with vtax."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

OPERATIONS = {
    0x20: 3, 0x21: 4, 0x22: 1, 0x23: 2, 0x24: 1, 0x25: 1, 0x26: 1,
}  # fmt: skip
"""Tags of observations in a real guest, and how many fields each has."""
TABLE, ENTRY, FREE_TABLE, LOAD_CR3, INVLPG, FAULT, FETCH = OPERATIONS
ASKED = {
    0x10: 1, 0x11: 3, 0x12: 2, 0x13: 3, 0x14: 1, 0x15: 1, 0x16: 1, 0x17: 1, 0x18: 1,
}  # fmt: skip
"""Tags of what a program asks for, and how many fields each has."""
SPAWN, MAP, UNMAP, PROTECT, FORK, EXIT, SWITCH, SYSTEM_CALLS, OTHER_EXITS = ASKED
PRESENT, WRITTEN = 1, 16
PHASE, INTERVAL = 3, 4


@dataclass(frozen=True)
class Interval:
    """An interval of a sampled run."""

    recorded: bool
    blocks: tuple[int, ...]


@dataclass
class Block:
    """References, each an address and whether it writes, and what happened after them."""

    instructions: int = 0
    references: list[tuple[int, bool]] = field(default_factory=list)
    operations: list[tuple[int, ...]] = field(default_factory=list)
    ends: Interval | None = None
    """The interval that ends after it."""
    begins: int | None = None
    """The phase that begins after it."""


def blocks(path: Path) -> Iterator[Block]:
    """The blocks of a whole file; fails for a file that is cut."""
    with path.open("rb") as file:
        magic, version, flags, length, _ = struct.unpack("<8sHHII", file.read(20))
        assert (magic, version, flags) == (b"\x89VTRC\r\n\x1a", 3, 0)
        file.read(length)
        while True:
            head = file.read(16)
            stored, raw, kind, crc = struct.unpack("<IIII", head)
            payload = file.read(stored)
            assert zlib.crc32(payload, zlib.crc32(head[:12])) == crc
            if kind == 2:
                assert file.read() == b""
                return
            if kind == 1:
                payload = zstandard.ZstdDecompressor().decompress(payload, max_output_size=raw)
            yield from _records(payload)


def _records(payload: bytes) -> Iterator[Block]:
    at, previous = 0, 0
    block = Block()

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(payload):
        tag = payload[at]
        at += 1
        if tag in OPERATIONS:
            block.operations.append((tag, *(number() for _ in range(OPERATIONS[tag]))))
            continue
        if tag == PHASE:
            block.begins = number()
            continue
        if tag == INTERVAL:
            recorded = bool(number())
            block.ends = Interval(recorded, tuple(number() for _ in range(number())))
            continue
        assert tag == 1, f"tag {tag:#x}"
        yield block
        count = number()
        block = Block(number())
        for _ in range(count):
            token = payload[at]
            if token < 0x80:
                at += 1
            else:
                token = number()
            zigzag = token >> 1
            delta = (zigzag >> 1) ^ -(zigzag & 1)
            previous = (previous + delta) % (1 << 63)
            block.references.append((previous << 1, bool(token & 1)))
    yield block


def record(tag: int, *fields: int) -> bytes:
    """One record other than a block of references."""
    return bytes([tag]) + b"".join(map(_varint, fields))


def block(instructions: int, addresses: Sequence[int]) -> bytes:
    """Stores to the addresses, as the first block of a frame: at most 4,096."""
    found, previous = [b"\x01", _varint(len(addresses)), _varint(instructions)], 0
    for address in addresses:
        delta = (address >> 1) - previous
        previous = address >> 1
        zigzag = 2 * delta if delta >= 0 else -2 * delta - 1
        found.append(_varint(zigzag << 1 | 1))
    return b"".join(found)


def trace(payloads: Sequence[bytes], totals: tuple[int, int], header: bytes = b"{}") -> bytes:
    """A file with a compressed frame for each payload; `totals`: references, instructions."""
    start = struct.pack("<HHI", 2, 0, len(header))
    head = b"\x89VTRC\r\n\x1a" + start + struct.pack("<I", zlib.crc32(header, zlib.crc32(start)))
    frames = [_frame(1, zstandard.compress(raw), len(raw)) for raw in payloads]
    end = struct.pack("<QQ", *totals)
    return head + header + b"".join(frames) + _frame(2, end, len(end))


def _frame(kind: int, stored: bytes, raw: int) -> bytes:
    head = struct.pack("<III", len(stored), raw, kind)
    return head + struct.pack("<I", zlib.crc32(stored, zlib.crc32(head))) + stored


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
