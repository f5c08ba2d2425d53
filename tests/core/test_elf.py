"""The header of ELF programs, against readelf and for made-up programs."""

from __future__ import annotations

import platform
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtax.core import binaries, elf


def made(machine: int, loader: bytes = b"", *, bits: int = 64, order: str = "<") -> bytes:
    """The smallest program that has a header, and a segment if it has a loader."""
    count = 1 if loader else 0
    length = len(loader) + 1
    formats = {64: ("QQQ", "IIQQQQQQ", 64, 56), 32: ("III", "IIIIIIII", 52, 32)}
    words, segment_format, begin, size = formats[bits]
    head = elf.MAGIC + bytes((bits // 32, "?<>".index(order), 1)) + bytes(9)
    rest = 0, begin, 0, 0, begin, size, count, 0, 0, 0
    head += struct.pack(f"{order}HHI{words}IHHHHHH", 2, machine, 1, *rest)
    at = begin + size
    in_file = (4, at, 0, 0, length, 0, 0, 1) if bits == 64 else (at, 0, 0, length, 0, 4, 1, 0)
    segment = struct.pack(f"{order}{segment_format}", 3, *in_file[: len(segment_format) - 1])
    return head + segment * count + loader + b"\0" * count


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("order", ["<", ">"])
def test_made_programs(tmp_path: Path, bits: int, order: str) -> None:
    program = tmp_path / "program"
    program.write_bytes(made(183, b"/lib/ld.so", bits=bits, order=order))
    assert elf.read(program) == elf.Header("aarch64", "/lib/ld.so")
    program.write_bytes(made(9999, bits=bits, order=order))
    assert elf.read(program) == elf.Header("number 9999", None) and elf.is_static(program)


def test_it_says_what_readelf_says() -> None:
    for program in (Path(sys.executable).resolve(), binaries.find("vtax-agent")):
        command = ["readelf", "--program-headers", "--wide", str(program)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        loader = re.search(r"interpreter: (\S+)\]", said)
        header = elf.Header(platform.machine(), loader[1] if loader else None)
        assert elf.read(program) == header


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, kept: int
) -> None:
    program = tmp_path_factory.getbasetemp() / "program"
    program.write_bytes(made(62, b"/x")[:kept] + noise)
    found = elf.read(program)
    assert found is None or isinstance(found.machine, str)
