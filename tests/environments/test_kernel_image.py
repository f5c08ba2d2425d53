"""Kernels and modules for guests: images are taken apart, module order is right."""

import gzip
import lzma
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from vtax.core.errors import VtaxError
from vtax.environments import build, guest_kernel
from vtax.environments.initramfs import newc
from vtax.environments.kernel_image import ModuleTree, decompress, dependencies, pvh_kernel

KERNEL = b"\x7fELF" + b"\0" * 60 + b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0" + b"\0" * 64


def bzimage(payload: bytes) -> bytes:
    """A boot image with one setup sector and the payload right behind it."""
    head = bytearray(1024)
    head[0x1F1] = 1
    head[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", head, 0x248, 0, len(payload))
    return bytes(head) + payload


@pytest.mark.parametrize(
    "compress", [gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress]
)
def test_the_kernel_inside_is_found(compress) -> None:  # type: ignore[no-untyped-def]
    # bzImages carry the uncompressed length behind the stream.
    assert pvh_kernel(bzimage(compress(KERNEL) + b"\x10\0\0\0")) == KERNEL


@pytest.mark.parametrize(
    "image",
    [b"", b"MZ" * 600, bzimage(b"\x02\x21\x4c\x18" + b"lz4"), bzimage(gzip.compress(b"no ELF"))],
)
def test_other_images_are_booted_as_they_are(image: bytes) -> None:
    assert pvh_kernel(image.ljust(0x260, b"\0")) is None


@given(st.binary(max_size=400))
def test_a_damaged_payload_is_no_kernel(data: bytes) -> None:
    for magic in (b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"):
        assert pvh_kernel(bzimage(magic + data)) is None


def module(depends: str) -> bytes:
    return b"\x7fELF...\0license=GPL\0depends=" + depends.encode() + b"\0name=x\0"


def test_modules_are_ordered_by_what_they_need(tmp_path: Path) -> None:
    content = {
        "9p.ko": module("9pnet,netfs"),
        "9pnet.ko.xz": lzma.compress(module("")),
        "netfs.ko.gz": gzip.compress(module("fscache-core")),
        "fscache-core.ko": module(""),
    }
    for name, data in content.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "modules.builtin").write_text("kernel/drivers/virtio/virtio_pci.ko\n")
    tree = ModuleTree(tmp_path)
    order = [name for name, _ in tree.closure(["virtio_pci", "9p"])]
    assert order == ["9pnet", "fscache_core", "netfs", "9p"]
    assert all(data.startswith(b"\x7fELF") for _, data in tree.closure(["9p"]))
    with pytest.raises(VtaxError, match="'overlay' is not below"):
        tree.closure(["overlay"])


@given(st.binary(max_size=200))
def test_any_bytes_have_dependencies(data: bytes) -> None:
    assert all(name.isascii() for name in dependencies(data))
    if not data.startswith((b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")):
        assert decompress(data) == data


def test_an_archive_is_what_cpio_reads(tmp_path: Path) -> None:
    import shutil
    import subprocess

    if not shutil.which("cpio"):
        pytest.skip("cpio is not installed: the archive cannot be read back")
    data = newc({"init": b"#!run", "modules/a.ko": b"\x7fELF" * 3}, ("modules",))
    argv = ["cpio", "--extract", "--quiet", "--no-absolute-filenames"]
    subprocess.run(argv, input=data, cwd=tmp_path, check=True)
    assert (tmp_path / "init").read_bytes() == b"#!run"
    assert (tmp_path / "init").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "modules/a.ko").read_bytes() == b"\x7fELF" * 3
    assert data == newc({"init": b"#!run", "modules/a.ko": b"\x7fELF" * 3}, ("modules",))


def small_kernel(root: Path, names: Sequence[str]) -> Path:
    """The image of a kernel that has these modules built in, and no others."""
    image, tree = root / "boot/vmlinuz-6-small", root / "lib/modules/6-small"
    image.parent.mkdir(parents=True)
    image.write_bytes(bzimage(gzip.compress(KERNEL)))
    tree.mkdir(parents=True)
    (tree / "modules.builtin").write_text("".join(f"kernel/{name}.ko\n" for name in names))
    return image


def test_a_small_kernel_may_lack_what_its_guest_does_not_use(tmp_path: Path) -> None:
    image = small_kernel(tmp_path / "a", (*guest_kernel.MODULES, "virtio_blk"))
    found = guest_kernel.prepare(image)
    assert (found.release, found.modules) == ("6-small", ())
    guest_kernel.require(found, ["virtio_blk"], "a disk")
    with pytest.raises(VtaxError, match="kernel 6-small has no ext4, which disk= needs"):
        guest_kernel.require(found, ["virtio_blk", "ext4"], "disk=")
    with pytest.raises(VtaxError, match="has no virtio_net, which net= needs"):
        build(f"qemu:kernel={image},net=tap")._require_modules(found)  # type: ignore[attr-defined]
    first, *others = guest_kernel.MODULES
    with pytest.raises(VtaxError, match=f"kernel module '{first}' is not below"):
        guest_kernel.prepare(small_kernel(tmp_path / "b", others))
