"""Loads by name, and whether their programs are here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.specs import unknown
from vtax.workloads.loads.base import Load
from vtax.workloads.loads.disk import disk_loads
from vtax.workloads.loads.http import Ab, Wrk
from vtax.workloads.loads.inside import references
from vtax.workloads.loads.iperf import Tcp, Udp
from vtax.workloads.loads.netperf import Datagrams, RequestResponse, Stream

LOADS: Mapping[str, Load] = {
    each.name: each
    for each in (
        Wrk("http", "pages of 8 KiB over one connection (nginx, wrk)", 1),
        Wrk("http10", "the same over ten connections", 10),
        Ab("ab", "the same by ApacheBench over ten connections that are kept", 10),
        Tcp("tcp", "one TCP stream from the machine (iperf3)", inward=False),
        Tcp("tcp-in", "one TCP stream to the machine", inward=True),
        Udp("udp", "datagrams of 1,470 bytes from the machine, as fast as the link is"),
        Stream("netperf-tcp", "netperf's TCP_STREAM: one TCP stream to the machine"),
        Datagrams("netperf-udp", "netperf's UDP_STREAM: datagrams of 1,470 bytes to the machine"),
        RequestResponse("netperf-rr", "netperf's TCP_RR: a byte to the machine and one back"),
        *disk_loads(),
        *references(),
    )
}
PACKAGES = {
    "nginx": "nginx-light",
    "wrk": "wrk",
    "ab": "apache2-utils",
    "iperf3": "iperf3",
    "fio": "fio",
}
"""Debian's package of each program."""
OPTIONAL = {
    "netperf": "netperf",
    "dbench": "dbench",
    "sysbench": "sysbench",
    "bonnie++": "bonnie++",
    "postmark": "postmark",
}
"""Packages of programs that setup does not install: Debian has netperf in non-free, and the others
serve to compare with a paper."""


def named(names: Sequence[str]) -> tuple[Load, ...]:
    """The loads of these names, each once. Raises MisuseError for an unknown name, and without
    names."""
    if not names:
        raise MisuseError("no load is named", f"known: {', '.join(LOADS)}")
    for name in names:
        if name not in LOADS:
            raise unknown("load", name, LOADS)
    return tuple(LOADS[name] for name in dict.fromkeys(names))


def check(load: Load) -> None:
    """Raise VtaxError with the remedy when a program that a load needs is not installed."""
    host = Host()
    packages = {**PACKAGES, **OPTIONAL}
    for program in load.needs:
        if program in packages and host.which(program) is None:
            package = packages[program]
            raise VtaxError(
                f"load {load.name}: {program} is not installed", host.install(package, package)
            )


class LoadPrograms(Check):
    """Servers and clients of loads."""

    name = "loads"
    purpose = "loads of machines with net="

    def find(self, host: Host) -> Finding:
        lacking = [each for each in PACKAGES if host.which(each) is None]
        if not lacking:
            optional = [each for each in OPTIONAL if host.which(each) is not None]
            return self.ok(", ".join([*PACKAGES, *optional]))
        packages = " ".join(PACKAGES[each] for each in lacking)
        without = [each.name for each in LOADS.values() if set(each.needs) & set(lacking)]
        detail = f"no {', '.join(lacking)}: no load {', '.join(without)}"
        remedy = host.install(packages, packages)
        if len(lacking) == len(PACKAGES):
            return self.missing(detail, remedy)
        return self.degraded(detail, remedy)
