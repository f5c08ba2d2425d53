"""How much of their links guests use. The links are the tap devices that their processes hold.

A tap is found by the line `iff:` of a descriptor of /dev/net/tun in /proc/PID/fdinfo
(drivers/net/tun.c, tun_chr_show_fdinfo) and counted in /proc/PID/net/dev, of the process's own
network. It has no speed of its own: the user states what the link carries.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from vtax.place.host_advice import HostThread

ROOT = Path("/")
_IFF = "iff:\t"
Bytes = tuple[int, int]
"""Bytes received and sent."""


@contextmanager
def used(
    threads: Iterable[HostThread], rate_bits: float | None, root: Path = ROOT
) -> Iterator[dict[str, float]]:
    """Percent of the rate, by service domain, in the busier direction; filled in afterwards.

    The result is empty without a rate. Domains without a tap, or whose files may not be read, are
    left out.
    """
    found: dict[str, float] = {}
    if rate_bits is None:
        yield found
        return
    pids = {domain: set[int]() for each in threads if (domain := each.domain)}
    for each in threads:
        if each.domain:
            pids[each.domain].add(each.pid)
    own_taps = {
        domain: {(pid, name) for pid in own for name in taps(pid, root)}
        for domain, own in pids.items()
    }
    before, begin = _counted(own_taps, root), time.monotonic()
    yield found
    after, seconds = _counted(own_taps, root), time.monotonic() - begin
    for domain, first in before.items():
        if last := after.get(domain):
            most = max(end - start for start, end in zip(first, last, strict=True))
            found[domain] = max(0.0, 100.0 * 8 * most / seconds / rate_bits)


def taps(pid: int, root: Path = ROOT) -> set[str]:
    """Names of the tap devices that a process holds; none where they may not be read."""
    found = set()
    with contextlib.suppress(OSError):
        for file in (root / f"proc/{pid}/fdinfo").iterdir():
            with contextlib.suppress(OSError):
                lines = file.read_text(errors="surrogateescape").splitlines()
                found |= {line.removeprefix(_IFF) for line in lines if line.startswith(_IFF)}
    return found


def _counted(taps: Mapping[str, set[tuple[int, str]]], root: Path) -> dict[str, Bytes]:
    """Bytes of all taps of each domain, without domains that have no tap or an unreadable one."""
    found = {}
    for domain, own in taps.items():
        with contextlib.suppress(OSError, KeyError, ValueError, IndexError):
            counts = [_bytes(pid, root)[name] for pid, name in sorted(own)]
            if counts:
                found[domain] = sum(each[0] for each in counts), sum(each[1] for each in counts)
    return found


def _bytes(pid: int, root: Path) -> dict[str, Bytes]:
    """Bytes of each interface in a process's network."""
    lines = (root / f"proc/{pid}/net/dev").read_text().splitlines()[2:]
    split = [line.rpartition(":") for line in lines]
    return {
        name.strip(): (int(words[0]), int(words[8]))
        for name, _, rest in split
        if (words := rest.split())
    }
