"""Finding a kernel for QEMU guests: in /boot, or the distribution's package in the cache.

Never a download from an address of ours: `apt-get download` gets the package that this machine's
own package sources offer, and it is unpacked into the cache without being installed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtax.core import binaries, cache
from vtax.core.errors import VtaxError
from vtax.core.formats.files import write_atomic
from vtax.environments.initramfs import newc
from vtax.environments.kernel_image import MAX_IMAGE_BYTES, ModuleTree, pvh_kernel

MODULES = ("virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay")
"""Modules that the guest needs before it can see the host's tree and talk to vtax."""

DISK_MODULE = "virtio_blk"
"""Module for a guest that has a disk."""

FILE_SYSTEM_MODULES = ("crc32c_generic", "crc16", "mbcache", "jbd2", "ext4")
"""Modules for a guest whose disk has a file system. The last needs those that a kernel has: newer
ones have checksums built in."""

NETWORK_MODULES = ("failover", "net_failover", "virtio_net")
"""Modules for a guest that has a link."""

VSOCK_MODULES = (
    *("virtio_mmio", "vsock", "vmw_vsock_virtio_transport_common"),
    *("vmw_vsock_virtio_transport", "9pnet_fd"),
)
"""Modules for a guest that has no PCI bus and sees the host's tree by vsock."""

ALL_MODULES = (*MODULES, DISK_MODULE, *FILE_SYSTEM_MODULES, *NETWORK_MODULES, *VSOCK_MODULES)

META_PACKAGES = ("linux-image-amd64", "linux-image-generic")
"""Debian's and Ubuntu's names for `the current kernel`."""

DOWNLOAD_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class GuestKernel:
    """Files to boot, and the order in which init loads the modules in the initramfs."""

    release: str
    kernel: Path
    initramfs: Path
    modules: tuple[str, ...]
    tree: Path
    """The folder /lib/modules/RELEASE of the kernel, for callers that need more modules."""

    def without(self, *unused: str) -> list[str]:
        """The modules to load in a guest that does not need those of these names."""
        return [each for each in self.modules if Path(each).stem not in unused]


@dataclass(frozen=True, slots=True)
class _Source:
    release: str
    image: Path
    modules: Path


def prepare(image: Path | None = None) -> GuestKernel:
    """Make the kernel to boot ready in the cache (about 1 s the first time, then instant).

    Raises VtaxError with the remedy when no kernel can be found.
    """
    source = _given(image) if image else _found()
    return _prepared(source)


def require(kernel: GuestKernel, names: Sequence[str], purpose: str) -> None:
    """Raise VtaxError when a kernel has no module of these names, which a guest needs."""
    tree = ModuleTree(kernel.tree)
    for name in names:
        if not tree.has(name):
            raise VtaxError(f"kernel {kernel.release} has no {name}, which {purpose} needs")


def image_path(image: Path | None = None) -> Path:
    """The bzImage that `prepare` would take, as the distribution ships it."""
    return (_given(image) if image else _found()).image


def available(root: Path = Path("/")) -> str | None:
    """Where a kernel would come from, in words, without fetching it; None: from nowhere."""
    for source in (*_boot(root), *_cached()):
        return f"{source.image} ({source.release})"
    return "the distribution's package (apt-get download)" if shutil.which("apt-get") else None


def _given(image: Path) -> _Source:
    release = image.name.removeprefix("vmlinuz-")
    for modules in (Path("/lib/modules") / release, image.parent.parent / "lib/modules" / release):
        if modules.is_dir():
            return _Source(release, image, modules)
    raise VtaxError(
        f"kernel {image} has no modules: /lib/modules/{release} does not exist",
        "name the file vmlinuz-RELEASE as distributions do",
    )


def _found() -> _Source:
    for source in (*_boot(Path("/")), *_cached()):
        if _usable(source):
            return source
    _fetch()
    for source in _cached():
        if _usable(source):
            return source
    raise VtaxError("no kernel with 9p and virtio found for the QEMU guest", "use kernel=PATH")


def _usable(source: _Source) -> bool:
    tree = ModuleTree(source.modules)
    return all(tree.has(name) for name in MODULES)


def _boot(root: Path) -> Iterator[_Source]:
    for image in sorted((root / "boot").glob("vmlinuz-*"), key=_version, reverse=True):
        release = image.name.removeprefix("vmlinuz-")
        modules = root / "lib/modules" / release
        # Ubuntu does not let users read /boot/vmlinuz-*; such a file is passed over.
        if modules.is_dir() and os.access(image, os.R_OK):
            yield _Source(release, image, modules)


def _cached() -> Iterator[_Source]:
    folder = cache.folder("kernels")
    for package in sorted(folder.glob("package-*"), key=_version, reverse=True):
        for source in _boot(package):
            yield source
        for source in _boot_usr(package):
            yield source


def _boot_usr(package: Path) -> Iterator[_Source]:
    """Sources in packages that ship their modules below /usr/lib, as newer ones do."""
    for image in package.glob("boot/vmlinuz-*"):
        release = image.name.removeprefix("vmlinuz-")
        modules = package / "usr/lib/modules" / release
        if modules.is_dir():
            yield _Source(release, image, modules)


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", path.name))


def _fetch() -> None:
    """Get the distribution's current kernel package into the cache."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        raise VtaxError(
            "no kernel for the QEMU guest in /boot, and no apt-get to fetch one",
            "install a distribution kernel or use qemu:kernel=PATH",
        )
    package = _image_package()
    target = cache.folder("kernels") / f"package-{package}"
    with cache.locked(target):
        if target.is_dir():
            return
        work = target.with_name(f".fetch-{os.getpid()}")
        work.mkdir()
        try:
            for name in (package, *_module_packages(package)):
                _unpack(name, work)
            work.rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _image_package() -> str:
    """The package that the meta package stands for, e.g. linux-image-6.1.0-56-amd64."""
    for meta in META_PACKAGES:
        listing = _output(["apt-cache", "depends", meta])
        for line in listing.splitlines():
            found = re.match(r"\s*Depends: (linux-image-\d\S+)", line)
            if found:
                return found[1]
    raise VtaxError(
        "no kernel for the QEMU guest: the package lists know none of "
        + " and ".join(META_PACKAGES),
        "run 'apt-get update', or use qemu:kernel=PATH",
    )


def _module_packages(image: str) -> Sequence[str]:
    """The packages of modules that belong to an image: Ubuntu ships them apart, Debian's image has
    them."""
    release = image.removeprefix("linux-image-")
    names = (f"linux-modules-{release}", f"linux-modules-extra-{release}")
    return [name for name in names if _output(["apt-cache", "show", name])]


def _unpack(package: str, target: Path) -> None:
    folder = target / "deb"
    folder.mkdir(exist_ok=True)
    # Without this, apt warns that its own user cannot write into the cache folder.
    fetch = ["apt-get", "-q", "-o", "APT::Sandbox::User=", "download", package]
    done = subprocess.run(
        fetch, cwd=folder, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False
    )
    archives = list(folder.glob("*.deb"))
    if done.returncode != 0 or not archives:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise VtaxError(
            f"cannot fetch the guest's kernel package {package}: {reason}",
            "run 'apt-get update', or use qemu:kernel=PATH",
        )
    subprocess.run(["dpkg-deb", "-x", str(archives[0]), str(target)], check=True)
    shutil.rmtree(folder)


def _output(argv: Sequence[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout if done.returncode == 0 else ""


def _prepared(source: _Source) -> GuestKernel:
    agent = binaries.find("vtax-agent").read_bytes()
    image = _bounded(source.image)
    folder = cache.folder("guests") / f"{source.release}-{_digest(image, bytes(source.modules))}"
    wanted = " ".join(ALL_MODULES).encode()
    initramfs = folder / f"initramfs-{_digest(agent, wanted)}"
    listing = folder / "modules"
    with cache.locked(folder):
        if not (initramfs.is_file() and listing.is_file()):
            _fill(folder, initramfs, source, agent, image)
    modules = tuple(listing.read_text().split())
    return GuestKernel(source.release, folder / "kernel", initramfs, modules, source.modules)


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _bounded(image: Path) -> bytes:
    if image.stat().st_size > MAX_IMAGE_BYTES:
        raise VtaxError(f"kernel {image} is larger than 64 MiB: not a bzImage")
    return image.read_bytes()


def _fill(folder: Path, initramfs: Path, source: _Source, agent: bytes, image: bytes) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    tree = ModuleTree(source.modules)
    # A kernel that somebody made small may lack what its guests do not use (`require`).
    modules = tree.closure(each for each in ALL_MODULES if each in MODULES or tree.has(each))
    programs = {"init": agent} | {f"modules/{name}.ko": content for name, content in modules}
    if not (folder / "kernel").is_file():
        write_atomic(folder / "kernel", pvh_kernel(image) or image)
    for old in folder.glob("initramfs-*"):
        # Initramfs of another agent, or with other modules. A guest that still boots has it open.
        old.unlink(missing_ok=True)
    write_atomic(initramfs, newc(programs, ("modules", "proc", "sys", "dev")))
    # This comes last: together with the initramfs it marks the folder as complete.
    names = "\n".join(f"/modules/{name}.ko" for name, _ in modules)
    write_atomic(folder / "modules", names.encode())
