"""Reading kernel images and modules: what a bzImage contains, what a module depends on."""

from __future__ import annotations

import lzma
import re
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

from vtax.core.errors import VtaxError

MAX_IMAGE_BYTES = 64 << 20
MAX_ELF_BYTES = 512 << 20
ELF_MAGIC = b"\x7fELF"

_PAYLOAD_OFFSET = 0x248
"""Position of the fields payload_offset and payload_length in the setup header (kernel doc
x86/boot)."""
_SETUP_SECTS = 0x1F1
_HEADER_MAGIC = (0x202, b"HdrS")
_PVH_NOTE = b"\x04\x00\x00\x00\x04\x00\x00\x00\x12\x00\x00\x00Xen\x00"
"""ELF note: name size 4, description size 4 (or 8), type 18 (XEN_ELFNOTE_PHYS32_ENTRY)."""


def _unzstd(data: bytes) -> bytes:
    import zstandard

    try:
        return zstandard.ZstdDecompressor().stream_reader(data).read(MAX_ELF_BYTES)
    except zstandard.ZstdError as error:
        raise VtaxError(f"damaged zstd data: {error}") from None


def _unxz(data: bytes) -> bytes:
    # The payload of a bzImage is followed by its length; a decompressor object stops before it.
    try:
        return lzma.LZMADecompressor().decompress(data, MAX_ELF_BYTES)
    except lzma.LZMAError as error:
        raise VtaxError(f"damaged xz data: {error}") from None


def _ungzip(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(data, MAX_ELF_BYTES)
    except zlib.error as error:
        raise VtaxError(f"damaged gzip data: {error}") from None


_DECOMPRESSORS: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": _ungzip,
    b"\xfd7zXZ": _unxz,
    b"\x28\xb5\x2f\xfd": _unzstd,
}


def decompress(data: bytes) -> bytes:
    """Undo gzip, xz or zstd by magic number; other data is returned as it is.

    At most 512 MiB come out. Raises VtaxError when the data is damaged.
    """
    for magic, function in _DECOMPRESSORS.items():
        if data.startswith(magic):
            return function(data)
    return data


def pvh_kernel(image: bytes) -> bytes | None:
    """The uncompressed ELF kernel inside a bzImage, if QEMU can enter it directly (PVH).

    That saves the guest from decompressing itself, which costs an emulated guest about 3 s. None
    when the image has another form or compression: the caller boots it as it is.
    """
    if image[_HEADER_MAGIC[0] : _HEADER_MAGIC[0] + 4] != _HEADER_MAGIC[1]:
        return None
    offset, length = struct.unpack_from("<II", image, _PAYLOAD_OFFSET)
    begin = ((image[_SETUP_SECTS] or 4) + 1) * 512 + offset
    try:
        kernel = decompress(image[begin : begin + length])
    except VtaxError:
        return None
    if not kernel.startswith(ELF_MAGIC) or not _has_pvh_note(kernel):
        return None
    return kernel


def _has_pvh_note(kernel: bytes) -> bool:
    wide = _PVH_NOTE[:4] + b"\x08" + _PVH_NOTE[5:]
    return _PVH_NOTE in kernel or wide in kernel


class ModuleTree:
    """The modules below /lib/modules/RELEASE, by name, compressed or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._paths = {_module_name(path): path for path in sorted(folder.rglob("*.ko*"))}
        self._builtin = set(_builtin_names(folder / "modules.builtin"))

    def has(self, name: str) -> bool:
        return name in self._paths or name in self._builtin

    def closure(self, names: Iterable[str]) -> list[tuple[str, bytes]]:
        """(name, content) of the modules and all that they depend on, in loading order.

        The dependencies come from each module's own `depends=`, not from modules.dep, which an
        unpacked package does not have. Raises VtaxError for a module that is neither here nor built
        in.
        """
        loaded: dict[str, bytes] = {}
        for name in names:
            self._load(name, loaded)
        return list(loaded.items())

    def _load(self, name: str, loaded: dict[str, bytes]) -> None:
        if name in loaded or name in self._builtin:
            return
        path = self._paths.get(name)
        if path is None:
            raise VtaxError(f"kernel module '{name}' is not below {self.folder}")
        content = decompress(path.read_bytes())
        for dependency in dependencies(content):
            # A dependency that no file provides is built into the kernel.
            if dependency in self._paths:
                self._load(dependency, loaded)
        loaded[name] = content


def dependencies(module: bytes) -> list[str]:
    """The names in a module's `depends=` (its .modinfo section is plain NUL-separated text)."""
    found = re.search(rb"(?:^|\0)depends=([\w,-]*)\0", module)
    names = found[1].decode().split(",") if found else []
    return [name.replace("-", "_") for name in names if name]


def _module_name(path: Path) -> str:
    return path.name.partition(".ko")[0].replace("-", "_")


def _builtin_names(listing: Path) -> list[str]:
    if not listing.is_file():
        return []
    return [_module_name(Path(line)) for line in listing.read_text().splitlines()]
