"""The interrupts of this host that work for guests.

Interrupts of devices that are passed through have actions whose names begin with `vfio-` and end in
the PCI address (drivers/vfio/pci/vfio_pci_intrs.c); /proc/irq/N has a folder for each action
(kernel/irq/proc.c, register_handler_proc). The guest is the one whose process holds the device's
IOMMU group, or the device itself, open in /dev/vfio.

The others are those of network devices on PCI that carry what guests send: beside their taps on a
bridge, or below their macvtaps (links `master`, `lower_NAME` and `upper_NAME` of interfaces:
net/core/dev.c, netdev_adjacent_sysfs_add; `msi_irqs` and `irq` of devices:
Documentation/ABI/testing/sysfs-bus-pci). Other ways, such as Open vSwitch, are not known.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vtax.place import links
from vtax.place.host_advice import HostThread
from vtax.place.interrupt_advice import HostInterrupt
from vtax.place.plan import cpu_numbers

ROOT = Path("/")
IRQ = "proc/irq"
NET = "sys/class/net"
PCI = "sys/bus/pci/devices"
STATES = "sys/kernel/debug/irq/irqs"
REFUSES = frozenset({"IRQD_AFFINITY_MANAGED", "IRQD_NO_BALANCING", "IRQD_PER_CPU"})
"""States in which nobody may move an interrupt (kernel/irq/debugfs.c; irq_can_set_affinity_usr)."""
_PASSED = re.compile(r"vfio-.*\(([0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\)", re.DOTALL)
_MACVTAP = re.compile(r"/dev/tap(\d+)")
"""The device's number is that of the interface (drivers/net/macvtap.c)."""
Guests = frozenset[str | None]
"""Guests that share something; None among them: another user, or an unknown one."""
_SOMEBODY: Guests = frozenset({None})


@dataclass(frozen=True, slots=True)
class _Process:
    """A process that runs or serves guests."""

    pid: int
    guest: str | None
    devices: frozenset[str]
    """Paths in /dev that the process holds open."""


def found(
    threads: Iterable[HostThread], *, theirs: bool, root: Path = ROOT
) -> tuple[HostInterrupt, ...]:
    """Interrupts in the order of their numbers; none where no thread works for a guest.

    `theirs`: take only devices that the processes of these threads are known to hold or use. What
    cannot be read, or goes away meanwhile, is left out.
    """
    guests = {each.pid: each.guest for each in threads if each.guest is not None or each.domain}
    if not guests:
        return ()
    processes = [_Process(pid, guest, _opened(pid, root)) for pid, guest in guests.items()]
    actions = _actions(root)
    names = _of_network(processes, actions, root)
    names.update(_passed_through(processes, actions, theirs=theirs, root=root))
    known = (_interrupt(number, *name, root) for number, name in sorted(names.items()))
    return tuple(each for each in known if each)


def _passed_through(
    processes: Iterable[_Process],
    actions: Mapping[int, frozenset[str]],
    *,
    theirs: bool,
    root: Path,
) -> dict[int, tuple[str, str | None]]:
    """Name and guest of the interrupts of devices that are passed through, by number."""
    holders = {path: each.guest for each in processes for path in each.devices}
    devices: dict[str, frozenset[str]] = {}
    names = {}
    for number, own in actions.items():
        for name in sorted(own):
            if not (match := _PASSED.fullmatch(name)):
                continue
            address = match[1]
            if address not in devices:
                devices[address] = _vfio(address, root)
            held = devices[address] & holders.keys()
            if held or not theirs:
                names[number] = name, next((holders[path] for path in held), None)
    return names


def _vfio(address: str, root: Path) -> frozenset[str]:
    """Paths by which a PCI device can be held: its group's path, and its own."""
    folder = root / PCI / address
    paths = {f"/dev/vfio/devices/{name}" for name in _listed(folder / "vfio-dev")}
    with contextlib.suppress(OSError):
        paths.add(f"/dev/vfio/{(folder / 'iommu_group').readlink().name}")
    return frozenset(paths)


def _of_network(
    processes: Iterable[_Process], actions: Mapping[int, frozenset[str]], root: Path
) -> dict[int, tuple[str, str | None]]:
    """Name and guest of the interrupts of network devices, by number."""
    holders: dict[str, Guests] = {}
    for each in processes:
        for name in _interfaces(each, root):
            holders[name] = holders.get(name, frozenset()) | {each.guest}
    users: dict[str, Guests] = {}
    for name in holders:
        devices, guests = _carriers(name, holders, root)
        for device in devices:
            users[device] = users.get(device, frozenset()) | guests
    names = {}
    for device, guests in sorted(users.items()):
        guest = next(iter(guests)) if len(guests) == 1 else None
        for number in _lines(device, root) & actions.keys():
            names[number] = ", ".join(sorted(actions[number])) or device, guest
    return names


def _interfaces(process: _Process, root: Path) -> set[str]:
    """Taps and macvtaps of a process in this network namespace: in another one the same name is
    another interface."""
    if not _same_network(process.pid, root):
        return set()
    numbers = {match[1] for path in process.devices if (match := _MACVTAP.fullmatch(path))}
    macvtaps = {
        name
        for name in (_listed(root / NET) if numbers else ())
        if _text(root / NET / name / "ifindex") in numbers
    }
    return links.taps(process.pid, root) | macvtaps


def _same_network(pid: int, root: Path) -> bool:
    with contextlib.suppress(OSError):
        own, its = ((root / f"proc/{each}/ns/net").readlink() for each in ("self", pid))
        return own == its
    return False


def _carriers(name: str, holders: Mapping[str, Guests], root: Path) -> tuple[set[str], Guests]:
    """Devices that carry what an interface sends, and all guests whose interfaces are beside it."""
    devices: set[str] = set()
    beside = {name}
    if ports := _listed(root / NET / name / "master/brif"):
        for port in ports:
            below = _devices(port, root)
            devices |= below
            beside |= set() if below else {port}
    else:
        for lower in _linked(name, "lower_", root):
            devices |= _devices(lower, root)
            beside |= _linked(lower, "upper_", root)
    guests = (holders.get(each, _SOMEBODY) for each in beside)
    return devices, frozenset[str | None]().union(*guests)


def _devices(name: str, root: Path) -> set[str]:
    """The interface itself if it is a device; otherwise the devices below it, as with a bond or
    VLAN."""
    seen: set[str] = set()
    left, devices = [name], set[str]()
    while left:
        each = left.pop()
        if each in seen:
            continue
        seen.add(each)
        if (root / NET / each / "device").exists():
            devices.add(each)
        else:
            left += _linked(each, "lower_", root)
    return devices


def _lines(device: str, root: Path) -> set[int]:
    """Interrupts of a network device; for virtio they are those of the PCI device above it."""
    folder = (root / NET / device / "device").resolve()
    for each in (folder, folder.parent):
        if messages := _listed(each / "msi_irqs"):
            return {number for name in messages if (number := _number(name)) is not None}
        if number := _number(_text(each / "irq")):
            return {number}
    return set()


def _actions(root: Path) -> dict[int, frozenset[str]]:
    """Names of the actions of each interrupt."""
    names = {}
    for entry in _listed(root / IRQ):
        if (number := _number(entry)) is None:
            continue
        with contextlib.suppress(OSError), os.scandir(root / IRQ / entry) as files:
            names[number] = frozenset(each.name for each in files if each.is_dir())
    return names


def _interrupt(number: int, name: str, guest: str | None, root: Path) -> HostInterrupt | None:
    folder = root / IRQ / str(number)
    file = folder / "smp_affinity_list"
    try:
        cpus = cpu_numbers(file.read_text().strip())
        # Since Linux 6.12 nobody may write this file for an interrupt that cannot be moved.
        writable = bool(file.stat().st_mode & 0o200)
    except (OSError, ValueError):
        return None
    states = _text(root / STATES / str(number)).split()
    return HostInterrupt(
        number=number,
        name=name,
        guest=guest,
        cpus=cpus,
        # The node is -1 where it is not known.
        node=_number(_text(folder / "node")),
        movable=writable and not REFUSES.intersection(states),
    )


def _opened(pid: int, root: Path) -> frozenset[str]:
    """Paths of the devices that a process has open."""
    paths = set()
    folder = root / f"proc/{pid}/fd"
    for name in _listed(folder):
        with contextlib.suppress(OSError):
            paths.add(str((folder / name).readlink()))
    return frozenset(path for path in paths if path.startswith("/dev/"))


def _linked(name: str, prefix: str, root: Path) -> set[str]:
    """Interfaces just below or above an interface."""
    entries = _listed(root / NET / name)
    return {each.removeprefix(prefix) for each in entries if each.startswith(prefix)}


def _listed(folder: Path) -> list[str]:
    """The sorted names in a folder; empty where it cannot be read."""
    with contextlib.suppress(OSError):
        return sorted(each.name for each in folder.iterdir())
    return []


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text(errors="surrogateescape").strip()
    return ""


def _number(text: str) -> int | None:
    """A number that is not negative, as the kernel writes it."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
