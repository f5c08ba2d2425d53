"""Xen's hypervisor and toolstack: unpacked from Debian's packages, never installed."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vtax.core import binaries, cache
from vtax.core.errors import VtaxError
from vtax.core.formats.files import write_atomic
from vtax.environments import guest_kernel, packages
from vtax.environments.emulated_host import contents
from vtax.environments.emulated_host.host import HOST_PROGRAM
from vtax.environments.guest_kernel import GuestKernel
from vtax.environments.initramfs import newc
from vtax.environments.kernel_image import MAX_IMAGE_BYTES, ModuleTree, decompress

VERSION = "4.17"
SHELF = packages.Shelf("xen", f"packages of Xen {VERSION}", release="bookworm")
PACKAGES = (
    (f"xen-hypervisor-{VERSION}-amd64",),
    (f"xen-utils-{VERSION}",),
    ("xenstore-utils",),
    ("qemu-system-xen",),
)
PROGRAMS = (
    *(f"usr/lib/xen-{VERSION}/bin/{name}" for name in ("xl", "xenstored", "xenconsoled")),
    f"usr/lib/xen-{VERSION}/bin/xentrace",
    f"usr/lib/xen-{VERSION}/bin/xen-init-dom0",
    "usr/bin/xenstore-read",
    "usr/bin/xenstore-write",
    "usr/libexec/xen-qemu-system-i386",
)
"""QEMU is the back end of the guest's 9p exports (docs/misc/9pfs.pandoc of Xen)."""
KEYMAP = "usr/share/qemu/keymaps/en-us"
"""QEMU reads it although it has no display; it may be empty."""
LIBRARIES = PurePosixPath("/lib/xen")
"""Where the first domain has the toolstack's libraries."""
DOM0_MODULES = (
    "virtio_pci", "virtio_console", "virtio_blk", "9p", "9pnet_virtio",
    "xen_blkback", "xen_evtchn", "xen_gntdev", "xen_privcmd", "xenfs",
)  # fmt: skip
DOM0_LINK_MODULES = ("virtio_net", "bridge", "xen_netback")
GUEST_LINK_MODULES = ("xen_netfront",)
GUEST_MODULES = ("9p", "9pnet_xen", "overlay", "xen_blkfront")
VARIABLES = f"export PATH=/usr/lib/xen-{VERSION}/bin:/usr/bin:/bin LD_LIBRARY_PATH={LIBRARIES}"
"""The first line of a shell script that uses the toolstack."""
RECORDER = PurePosixPath("/bin/record-xen")
RECORDER_SCRIPT = f"""\
#!/bin/busybox sh
{VARIABLES}
shift
exec {HOST_PROGRAM} record-xen --buffer 8M "$@"
"""
"""The buffer of each CPU takes bursts that are several times what an emulated dom0 reads."""
TOOL = PurePosixPath("/bin/with-toolstack")
"""`vtax-host` where it finds Xen's toolstack."""
_TOOL_SCRIPT = f"""\
#!/bin/busybox sh
{VARIABLES}
exec {HOST_PROGRAM} "$@"
"""
DISK_SCRIPT = PurePosixPath("/bin/connect-disk")
_DISK_SCRIPT_TEXT = """\
#!/bin/busybox sh
[ "$1" = add ] || exit 0
device=$(xenstore-read "$XENBUS_PATH/params")
xenstore-write "$XENBUS_PATH/physical-device" "$(busybox stat -c %t:%T "$device")"
xenstore-write "$XENBUS_PATH/hotplug-status" connected
"""
INTERFACE_SCRIPT = PurePosixPath("/bin/connect-interface")
BRIDGE = "link0"
"""dom0's bridge, which joins its network card with the domU's."""
_INTERFACE_SCRIPT_TEXT = f"""\
#!/bin/busybox sh
[ "$1" = online ] || exit 0
busybox brctl addif {BRIDGE} "$vif" && busybox ip link set "$vif" up || exit 1
xenstore-write "$XENBUS_PATH/hotplug-status" connected
"""
KERNEL = PurePosixPath("/guest/kernel")
INITRAMFS = PurePosixPath("/guest/initramfs")
_LIBRARY_FOLDERS = (
    f"usr/lib/xen-{VERSION}/lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "lib/x86_64-linux-gnu",
)


@dataclass(frozen=True, slots=True)
class Domain:
    """What a domain boots besides its kernel."""

    initramfs: bytes
    modules: tuple[str, ...]


def obstacle() -> str | None:
    """Why Xen's packages cannot be had; None when they are there or can be fetched."""
    if packages.fetched(SHELF, "xen", with_needs=PACKAGES):
        return None
    return packages.obstacle(SHELF)


def hypervisor() -> Path:
    """Xen's image, uncompressed, in the cache (10 s the first time, for the packages).

    Raises VtaxError with the remedy when the packages cannot be had.
    """
    tree = _tree()
    packed = next(tree.glob("boot/xen-*.gz"), None)
    if packed is None:
        raise VtaxError(f"the package {PACKAGES[0][0]} has no hypervisor", f"remove {tree}")
    if packed.stat().st_size > MAX_IMAGE_BYTES:
        raise VtaxError(f"{packed} is larger than 64 MiB: not a hypervisor")
    image = cache.folder("xen") / packed.stem
    with cache.locked(image):
        if not image.is_file():
            write_atomic(image, decompress(packed.read_bytes()))
    return image


def own_files() -> list[Path]:
    """The files of this machine that dom0 has besides Xen's packages, for a domU's sake."""
    found = [contents.busybox()]
    with contextlib.suppress(VtaxError):
        found.append(binaries.find(HOST_PROGRAM.name))
    return found


def kernel(image: Path | None) -> GuestKernel:
    """The kernel of all domains. Raises VtaxError when it cannot be the first domain's."""
    found = guest_kernel.prepare(image)
    tree = ModuleTree(found.tree)
    for module in (*DOM0_MODULES, *GUEST_MODULES):
        if not tree.has(module):
            raise VtaxError(
                f"the kernel {found.release} has no module {module}: it cannot be Xen's dom0",
                "use xen:kernel= with a kernel of linux-image-amd64, not of a cloud image",
            )
    return found


def guest(kernel: GuestKernel, *, linked: bool = False) -> Domain:
    """A domU, which has nothing but the agent until it sees dom0's exports."""
    wanted = GUEST_MODULES + (GUEST_LINK_MODULES if linked else ())
    modules = ModuleTree(kernel.tree).closure(wanted)
    files = {"init": binaries.find("vtax-agent").read_bytes(), **_files(modules)}
    return Domain(newc(files, ("dev", "modules", "proc", "sys", "tmp")), _paths(modules))


def first_domain(kernel: GuestKernel, guest: Domain, *, linked: bool = False) -> Domain:
    """A dom0 that starts such guests; it takes about 0.3 s and 160 MB."""
    wanted = DOM0_MODULES + (DOM0_LINK_MODULES if linked else ())
    modules, own = ModuleTree(kernel.tree).closure(wanted), _tree()
    files = {"init": binaries.find("vtax-agent").read_bytes(), **_files(modules)}
    files |= {"bin/busybox": contents.busybox().read_bytes()}
    files |= {name: (own / name).read_bytes() for name in PROGRAMS}
    files |= _libraries(own) | {KEYMAP: b""} | _recorder()
    scripts = {DISK_SCRIPT: _DISK_SCRIPT_TEXT, INTERFACE_SCRIPT: _INTERFACE_SCRIPT_TEXT}
    files |= {str(path.relative_to("/")): text.encode() for path, text in scripts.items()}
    files[str(KERNEL.relative_to("/"))] = kernel.kernel.read_bytes()
    files[str(INITRAMFS.relative_to("/"))] = guest.initramfs
    return Domain(newc(files, contents.folders(files)), _paths(modules))


def _recorder() -> dict[str, bytes]:
    """`vtax-host`, also under the name that is asked to `record` Xen's events; nothing where it is
    not installed."""
    try:
        program = binaries.find(HOST_PROGRAM.name)
    except VtaxError:
        return {}
    found = {LIBRARIES / path.name: path.read_bytes() for path in contents.needed(program)}
    found[HOST_PROGRAM] = program.read_bytes()
    found |= {RECORDER: RECORDER_SCRIPT.encode(), TOOL: _TOOL_SCRIPT.encode()}
    return {str(path).lstrip("/"): content for path, content in found.items()}


def _tree() -> Path:
    return packages.fetch(SHELF, "xen", with_needs=PACKAGES)


def _files(modules: Sequence[tuple[str, bytes]]) -> dict[str, bytes]:
    return {f"modules/{name}.ko": content for name, content in modules}


def _paths(modules: Sequence[tuple[str, bytes]]) -> tuple[str, ...]:
    return tuple(f"/modules/{name}.ko" for name, _ in modules)


def _libraries(tree: Path) -> dict[str, bytes]:
    """What the toolstack's programs load, by the path in the first domain."""
    found: dict[str, bytes] = {}
    for name in PROGRAMS:
        folders = [tree / each for each in _LIBRARY_FOLDERS]
        for path in contents.libraries(tree / name, folders):
            # The loader's path is in the programs; the rest is found by a variable.
            is_loader = path.name.startswith("ld-linux")
            place = path if is_loader else LIBRARIES / path.name
            found[str(place).lstrip("/")] = path.read_bytes()
    return found
