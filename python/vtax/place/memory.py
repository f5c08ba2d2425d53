"""Which NUMA node holds a guest's memory.

/proc/PID/numa_maps says of each mapping how many pages each node has, and their size
(proc_pid_numa_maps(5); fs/proc/task_mmu.c, show_numa_map). The kernel walks the page tables for
it, so it is read once for each guest, and only where there are several nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from vtax.core.errors import VtaxError
from vtax.core.formats.files import read_bounded
from vtax.place.host_advice import HostThread
from vtax.place.service_domain import RUNS_A_GUEST

ROOT = Path("/")
NODES = "sys/devices/system/node"
SHARE = 0.75
"""The share of a guest's memory on one node that makes this its node: vtax's own choice."""
MAX_BYTES = 16 << 20
"""The most bytes of numa_maps; for a process with more mappings the node is not known."""
_PAGES = re.compile(r"N(\d+)=(\d+)")
_PAGE_KB = re.compile(r"kernelpagesize_kB=(\d+)")


def located(threads: Iterable[HostThread], root: Path = ROOT) -> tuple[HostThread, ...]:
    """Threads with the node of their guest's memory; unchanged on a host with one node."""
    threads = tuple(threads)
    if len(list((root / NODES).glob("node[0-9]*"))) < 2:
        return threads
    guests = {each.guest for each in threads if each.guest is not None}
    nodes = {guest: _node_of_guest(guest, threads, root) for guest in guests}
    return tuple(
        each if each.guest is None else replace(each, memory_node=nodes[each.guest])
        for each in threads
    )


def _node_of_guest(guest: str, threads: Sequence[HostThread], root: Path) -> int | None:
    """The node of a guest's largest process: of those that run it, otherwise of those that serve
    it."""
    own = [each for each in threads if each.guest == guest]
    running = {each.pid for each in own if each.role in RUNS_A_GUEST}
    pids = running or {each.pid for each in own if each.service}
    resident = {pid: _resident_pages(pid, root) for pid in sorted(pids)}
    return node(max(resident, key=lambda pid: resident[pid]), root) if resident else None


def node(pid: int, root: Path = ROOT) -> int | None:
    """The node that holds a process's memory; None: no single one does, or it is not known."""
    try:
        text = read_bounded(root / f"proc/{pid}/numa_maps", MAX_BYTES).decode(errors="replace")
        kilobytes = _kilobytes(text)
    except (OSError, ValueError, VtaxError):
        return None
    total = sum(kilobytes.values())
    most = max(kilobytes, key=lambda each: kilobytes[each], default=None)
    return most if most is not None and 0 < SHARE * total <= kilobytes[most] else None


def _kilobytes(text: str) -> dict[int, int]:
    """Kilobytes by node. Raises ValueError for pages of no size."""
    found: dict[int, int] = {}
    for line in text.splitlines():
        # Spaces in the name of a mapped file are escaped.
        words = line.split(" ")
        pages = [match for word in words if (match := _PAGES.fullmatch(word))]
        sizes = [match for word in words if (match := _PAGE_KB.fullmatch(word))]
        if not pages:
            continue
        if len(sizes) != 1:
            raise ValueError(line)
        for match in pages:
            own = int(match[1])
            found[own] = found.get(own, 0) + int(match[2]) * int(sizes[0][1])
    return found


def _resident_pages(pid: int, root: Path) -> int:
    """A process's resident pages; 0 where they are not known: then any other process is larger."""
    try:
        return int((root / f"proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
