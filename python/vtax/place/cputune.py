"""The part of a plan that libvirt can hold: `<cputune>` of a guest's domain XML.

libvirt pins vCPUs and I/O threads by number, and everything else of QEMU's process together as the
emulator, with its vhost threads (https://libvirt.org/formatdomain.html#cpu-tuning). Interrupts,
softirq threads and processes beside QEMU have no place there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from xml.etree import ElementTree

from vtax.place.plan import PlannedThread, cpu_list, cpu_numbers
from vtax.place.service_domain import VCPU

IO_THREAD = "io-thread"
EMULATOR = ("main-loop", "worker", "vhost")
"""Roles whose threads libvirt pins together."""
_VCPU = re.compile(r"CPU (\d{1,5})/")
_IO_THREAD = re.compile(r"IO iothread(\d{1,5})")
"""QEMU's name of an I/O thread, which has libvirt's name of the object in it."""


@dataclass(frozen=True, slots=True)
class CpuTune:
    """A fragment of domain XML, and the parts of the plan that are not in it."""

    xml: str
    left_out: tuple[str, ...]


def cputune(threads: Iterable[PlannedThread]) -> CpuTune:
    """The fragment for the threads of one guest."""
    vcpus: dict[int, str] = {}
    io_threads: dict[int, str] = {}
    emulator: set[str] = set()
    left_out = []
    for thread in threads:
        if thread.role in EMULATOR:
            emulator.add(thread.cpus)
        elif thread.role == VCPU and (found := _VCPU.match(thread.name)):
            vcpus[int(found[1])] = thread.cpus
        elif thread.role == IO_THREAD and (found := _IO_THREAD.match(thread.name)):
            io_threads[int(found[1])] = thread.cpus
        else:
            left_out.append(f"{thread.name} ({thread.role}): libvirt cannot pin it")
    if len(emulator) > 1:
        left_out.append(f"{', '.join(sorted(emulator))}: libvirt pins QEMU's other threads as one")
    root = ElementTree.Element("cputune")
    for number, cpus in sorted(vcpus.items()):
        ElementTree.SubElement(root, "vcpupin", vcpu=str(number), cpuset=cpus)
    if emulator:
        union = cpu_list(number for cpus in emulator for number in cpu_numbers(cpus))
        ElementTree.SubElement(root, "emulatorpin", cpuset=union)
    for number, cpus in sorted(io_threads.items()):
        ElementTree.SubElement(root, "iothreadpin", iothread=str(number), cpuset=cpus)
    ElementTree.indent(root)
    return CpuTune(ElementTree.tostring(root, encoding="unicode"), tuple(left_out))
