"""`net=KIND`: a network link between one machine and this host, shaped to a stated rate.

Two network namespaces without names: the *client's*, where loads are generated, and the
*service's*, where the process of the machine is. A veth pair joins them, with a token bucket filter
(tc-tbf(8)) at each end, so that utilisation has a 100 % in both directions. Behind the service's
end a guest's own interface is behind a tap or a user network in the service's namespace; a
container has the end of the pair. Guests that run side by side share one switch, or their taps a
bridge.

Each namespace is held by a process that ends when its standard input is closed, and the kernel
closes it whatever ends vtax. Interfaces and filters go with the namespace. Neither has a route to
another network, and no address of this host is used.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from vtax.core import foreign_json
from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.formats.scratch import scratch
from vtax.core.units import format_si, parse_count
from vtax.environments import hiding, sandbox
from vtax.environments.agent import Finished
from vtax.environments.base import Allocation
from vtax.environments.capabilities import (
    Capability,
    Direction,
    Link,
    LinkCounters,
    LinkKind,
    Shell,
)
from vtax.environments.hiding import Shown
from vtax.environments.machine import Machine
from vtax.environments.option_values import one_of
from vtax.environments.process_environment import ProcessEnvironment
from vtax.workloads.loads import ports
from vtax.workloads.outcomes import require_success
from vtax.workloads.variables import DEFAULT_PATH

USUAL_RATE = "1G"
KEYS = {
    "net": "kind of the link to this host (default: none; root)",
    "rate": f"bits per second of the link (default: {USUAL_RATE})",
}
"""Keys of the environments that have such links."""
SLOWEST_BITS, FASTEST_BITS = 1_000_000, 100_000_000_000
LATENCY = "20ms"
"""How long a packet may wait for tokens before it is dropped."""
BURST_S = 0.002
SMALLEST_BURST = 8 << 10
"""Bytes; it has to fit more than a packet of 1,500 bytes."""
LARGEST_BURST = 1 << 20

CLIENT = "10.213.0.1"
SERVICE = "10.213.0.2"
GATEWAY = "10.213.1.1"
GUEST = "10.213.1.2"
GUESTS = "10.213.1.0/24"
TAP, BRIDGE = "tap0", "bridge0"
TUN_DEVICE = Path("/dev/net/tun")
VHOST_DEVICE = Path("/dev/vhost-net")
SWITCH = "vde_switch"
SWITCH_SOCKET = Path("/run/vtax/switch")
"""The folder of the switch's sockets in its own box and in those of guests."""

_CLIENT_END, _SERVICE_END = "client0", "service0"
_STEP_TIMEOUT_S = 20.0
_START_SWITCH = '"$1" --daemon --rcfile /dev/null --sock "$2" --tap "$3" && exec cat'
_PACKAGES = {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2", "tc": "iproute2"}
_FIRST_USE = ["qdisc", "add", "dev", "lo", "root", "tbf", "rate", "1mbit", "burst", "8k"]
_FIRST_USE += ["latency", LATENCY]
"""Arguments of a first filter on `lo` of a new namespace, not of this host."""

RunInside = Callable[..., Finished]
"""`Machine.run`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The link that a spec asks for."""

    kind: LinkKind
    rate_bits: int
    interface: str | None = None
    """The name of the guest's interface in its kernel; None: a container's, which has an address
    already."""

    @property
    def has_tap(self) -> bool:
        return self.kind in ("vde", "tap", "vhost")


@dataclass(frozen=True)
class Linked(ProcessEnvironment):
    """An environment whose machines can have a link; without slots, as `HostTree`."""

    link: Wanted | None = field(default=None, kw_only=True)

    def offered(self) -> frozenset[type[Capability]]:
        return frozenset(self.offers) - (frozenset() if self.link else {Link})

    def own_network(self, cpus: Sequence[int]) -> Network | None:
        return Network(self.link, cpus) if self.link else None


def wanted(
    environment: str, options: Mapping[str, str], kinds: Mapping[LinkKind, str | None]
) -> Wanted | None:
    """The values of the keys `net` and `rate`; `kinds` has the interface in the guest by kind of
    link.

    Raises MisuseError for a text that is no kind of link or no rate.
    """
    one_of(environment, options, "net", tuple(kinds))
    kind = next((each for each in kinds if each == options.get("net")), None)
    if kind is None:
        if "rate" in options:
            raise MisuseError(f"{environment}: rate= without net=", f"give net={next(iter(kinds))}")
        return None
    rate = parse_count(text := options.get("rate", USUAL_RATE))
    if not SLOWEST_BITS <= rate <= FASTEST_BITS:
        raise MisuseError(f"{environment}: rate={text} is not from 1M to 100G bits per second")
    return Wanted(kind, rate, kinds[kind])


def said(link: Wanted | None) -> str:
    """Words about the link for the description of a machine."""
    return f", {link.kind} link of {format_si(link.rate_bits, 'bit/s')}" if link else ""


def check(environment: str, link: Wanted | None) -> None:
    """Raise VtaxError with the remedy when this machine cannot have the link."""
    if link and (fault := _fault(Host(), (link.kind,))):
        raise VtaxError(f"{environment}: net={link.kind}: {fault[0]}", fault[1])


def sockets(allocation: Allocation) -> Mapping[Path, Path]:
    """What the box of a guest's process has to let in for the switch."""
    return {allocation.switch: SWITCH_SOCKET} if allocation.switch else {}


def devices(link: Wanted | None) -> tuple[Path, ...]:
    """Devices that the box of the machine's process has to let in for the link."""
    if link is None or not link.has_tap:
        return ()
    return (TUN_DEVICE, VHOST_DEVICE) if link.kind == "vhost" else (TUN_DEVICE,)


def offered(machine: Machine, *pids: int) -> tuple[Link, ...]:
    """The capability, where the machine has a link; `pids` as in `Link`, by default its own
    process."""
    return (machine.network.offered(*(pids or (machine.pid,))),) if machine.network else ()


def tap(number: int = 0) -> str:
    """The name of the tap of one of a machine's guests."""
    return TAP if number == 0 else f"tap{number}"


def tap_network(number: int = 0) -> str:
    """QEMU's back end for that tap (`-netdev`)."""
    return f"tap,ifname={tap(number)},script=no,downscript=no"


def user_network() -> str:
    """QEMU's user network, with the ports of loads forwarded to the guest.

    Its namespace has no way out. QEMU's own `restrict=on` would drop answers over UDP.
    """
    addresses = f"net={GUESTS},host={GATEWAY},dhcpstart={GUEST}"
    forward = ",".join(
        f"hostfwd={protocol}:{SERVICE}:{port}-{GUEST}:{port}"
        for port in ports.ALL
        for protocol in ("tcp", "udp")
    )
    return f"user,ipv6=off,{addresses},{forward}"


class Network:
    """The two namespaces of one machine, or of `guests` that run side by side, and what joins them.

    The switch, if there is one, is kept on `cpus`. Raises VtaxError when they cannot be made.
    """

    def __init__(self, link: Wanted, cpus: Sequence[int], guests: int = 1) -> None:
        self._link = link
        self._guests = guests
        self.switch: Path | None = None
        """The folder of the switch's sockets on this host."""
        self._switch_pids: tuple[int, ...] = ()
        self._ended = contextlib.ExitStack()
        with self._ended:
            self.service = self._ended.enter_context(_Namespace())
            self._client = self._ended.enter_context(_Namespace())
            self._join()
            if link.kind == "vde":
                self._start_switch(cpus)
            # Everything has been made: from here on `close` ends it.
            self._ended = self._ended.pop_all()

    @property
    def namespace_pid(self) -> int:
        """The process that holds the namespace of the machine's process."""
        return self.service.pid

    def configure(self, run: RunInside, work: Path, number: int = 0) -> None:
        """Give the interface of the machine, or of this one of its guests, its address, by `run`,
        with a folder in the machine's `work`."""
        interface = self._link.interface
        if interface is None:
            return
        exchange = Exchange(work, "link")
        steps = [f"address add {_guest(number)}/24 dev {interface}", f"link set {interface} up"]
        steps += [f"route add {CLIENT}/32 via {GATEWAY}"]
        exchange.create({"steps": _batch("link set lo up", *steps)})
        argv = [_program("ip"), "-batch", "steps"]
        done = run(argv, {"PATH": DEFAULT_PATH}, exchange.name, _STEP_TIMEOUT_S)
        require_success(f"net={self._link.kind}: ip in the guest", done.outcome, exchange)
        shutil.rmtree(exchange.path, ignore_errors=True)

    def offered(self, *pids: int) -> Link:
        """The capability of a machine that consists of these processes and their descendants."""
        return Link(
            self._link.kind,
            self._link.rate_bits,
            GUEST if self._link.has_tap else SERVICE,
            (*pids, *self._switch_pids),
            self._at_client,
            self._counters,
            _others(self._guests),
        )

    def served_by(self, host: Shell, program: str, guests: int, *pids: int) -> Link:
        """The capability of guests that a host around them serves, which has `vtax-host`."""
        return replace(self.offered(*pids), others=_others(guests), host=host, host_program=program)

    def close(self) -> None:
        """End both namespaces, with every process in them that follows vtax."""
        self._ended.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _join(self) -> None:
        peer = f"peer name {_CLIENT_END} netns {self._client.pid}"
        steps = ["link set lo up", f"link add {_SERVICE_END} type veth {peer}"]
        steps += [f"address add {SERVICE}/30 dev {_SERVICE_END}", f"link set {_SERVICE_END} up"]
        if self._link.has_tap:
            steps += self._taps()
        self.service.run(["ip", "-batch", "-"], _batch(*steps))
        steps = ["link set lo up", f"address add {CLIENT}/30 dev {_CLIENT_END}"]
        steps += [f"link set {_CLIENT_END} up", f"route add {GUESTS} via {SERVICE}"]
        self._client.run(["ip", "-batch", "-"], _batch(*steps))
        if self._link.has_tap:
            forward = "echo 1 >/proc/sys/net/ipv4/ip_forward"
            self.service.run(["/bin/sh", "-c", forward])
        for namespace, end in ((self.service, _SERVICE_END), (self._client, _CLIENT_END)):
            namespace.run(["tc", "qdisc", "add", "dev", end, "root", *_shape(self._link.rate_bits)])

    def _taps(self) -> list[str]:
        """One tap where one guest, a switch or the host around the guests uses it; else a bridge
        over one tap for each guest."""
        taps = [TAP] if self._link.kind == "vde" else [tap(each) for each in range(self._guests)]
        # The owner needs no capability to use it.
        steps = [f"tuntap add dev {each} mode tap user {os.geteuid()}" for each in taps]
        bridged = len(taps) > 1
        steps += [f"link add {BRIDGE} type bridge"] if bridged else []
        steps += [f"link set {each} master {BRIDGE}" for each in taps if bridged]
        steps += [f"address add {GATEWAY}/24 dev {BRIDGE if bridged else TAP}"]
        return steps + [f"link set {each} up" for each in (*taps, *([BRIDGE] if bridged else []))]

    def _start_switch(self, cpus: Sequence[int]) -> None:
        self.switch = self._ended.enter_context(scratch("switch"))
        box = sandbox.Box(
            None,
            hiding.view(Shown()),
            writable={self.switch: SWITCH_SOCKET},
            devices=devices(self._link),
            namespace_pid=self.service.pid,
        )
        argv = ["/bin/sh", "-c", _START_SWITCH, "sh", _program(SWITCH), str(SWITCH_SOCKET), TAP]
        argv = sandbox.pinned(cpus, sandbox.command(box, argv))
        holder = self._ended.enter_context(_Holder(argv, "no switch"))
        self._switch_pids = (holder.pid,)

    def _at_client(self, argv: Sequence[str]) -> list[str]:
        # This program reads what a guest answers, so it is held like a guest.
        found = shutil.which(argv[0], path=DEFAULT_PATH) or shutil.which(argv[0])
        path = {"PATH": DEFAULT_PATH}
        box = sandbox.Box(
            None, hiding.view(Shown()), environment=path, namespace_pid=self._client.pid
        )
        return sandbox.command(box, [found or argv[0], *argv[1:]])

    def _counters(self) -> LinkCounters:
        return LinkCounters(
            sent=self.service.sent(_SERVICE_END), received=self._client.sent(_CLIENT_END)
        )


class _Holder:
    """A process that ends when its standard input is closed, as long as this is open.

    Its last program is cat, which answers when the rest is ready. Raises VtaxError, beginning with
    `failure`, when it does not.
    """

    def __init__(self, argv: Sequence[str], failure: str) -> None:
        self._process = subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            env={"PATH": DEFAULT_PATH},
        )
        self.pid = self._process.pid
        assert self._process.stdin and self._process.stdout and self._process.stderr
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"\n")
        if not self._process.stdout.read(1):
            reason = self._process.stderr.read().decode(errors="replace").strip()
            self.close()
            raise VtaxError(f"{failure}: {reason}", "run 'vtax doctor'")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Namespace(_Holder):
    """A new network namespace, as long as this is open or something else is in it."""

    def __init__(self) -> None:
        super().__init__([_program("unshare"), "--net", "cat"], "no network namespace")

    def run(self, argv: Sequence[str], text: bytes = b"") -> str:
        """Run a program of this host in the namespace and return its output. Raises VtaxError."""
        program = [_program(argv[0]), *argv[1:]]
        done = subprocess.run(
            [*sandbox.joining(self.pid), *program],
            input=text,
            capture_output=True,
            timeout=_STEP_TIMEOUT_S,
            check=False,
            env={"PATH": DEFAULT_PATH},
        )
        if done.returncode != 0:
            reason = " ".join(done.stderr.decode(errors="replace").split())
            raise VtaxError(f"cannot make the link: {argv[0]}: {reason}", "run 'vtax doctor'")
        return done.stdout.decode(errors="replace")

    def sent(self, interface: str) -> Direction:
        """What has gone through the filter of an interface.

        Packets are those of the interface: the filter does not count packets that a guest has not
        cut.
        """
        filtered = self.run(["tc", "-json", "-statistics", "qdisc", "show", "dev", interface])
        passed = self.run(["ip", "-json", "-statistics", "link", "show", "dev", interface])
        try:
            (tbf,), (own,) = foreign_json.parse(filtered), foreign_json.parse(passed)
            packets = int(own["stats64"]["tx"]["packets"])
            return Direction(int(tbf["bytes"]), packets, int(tbf["drops"]))
        except (ValueError, KeyError, TypeError):
            raise VtaxError(f"the link's counters are not understood: {filtered:.80}") from None


def _others(guests: int) -> tuple[str, ...]:
    return tuple(_guest(number) for number in range(1, guests))


def _guest(number: int) -> str:
    """The address of one of a machine's guests, the first of which is number 0."""
    return str(ipaddress.IPv4Address(GUEST) + number)


def _shape(rate_bits: int) -> list[str]:
    burst = min(LARGEST_BURST, max(SMALLEST_BURST, round(rate_bits / 8 * BURST_S)))
    return ["tbf", "rate", f"{rate_bits}bit", "burst", str(burst), "latency", LATENCY]


def _batch(*steps: str) -> bytes:
    return "".join(f"{step}\n" for step in steps).encode()


def _program(name: str) -> str:
    if found := shutil.which(name, path=DEFAULT_PATH):
        return found
    raise VtaxError(f"net=: {name} is missing", f"install {_PACKAGES.get(name, 'vde2')}")


def _fault(host: Host, kinds: Sequence[LinkKind]) -> tuple[str, str | None] | None:
    """Why this machine cannot have links of these kinds, and the remedy."""
    for name, package in _PACKAGES.items():
        if host.which(name) is None:
            return f"{name} is not installed", host.install(package, package)
    if host.euid != 0:
        return "needs root: only root may make network namespaces and filters", "run vtax as root"
    unshare = str(host.which("unshare"))
    made = host.run([unshare, "--net", "true"])
    if made.code != 0:
        outside = "run vtax outside of the container it is in"
        return f"this machine lets root make no network namespace: {made.last_error}", outside
    filtered = host.run([unshare, "--net", str(host.which("tc")), *_FIRST_USE])
    if filtered.code != 0:
        return f"no token bucket filter (sch_tbf): {filtered.last_error}", "modprobe sch_tbf"
    if {"vde", "tap", "vhost"} & set(kinds) and not host.exists(str(TUN_DEVICE)):
        return f"{TUN_DEVICE} is missing", "modprobe tun"
    if "vhost" in kinds and not host.exists(str(VHOST_DEVICE)):
        return f"{VHOST_DEVICE} is missing", "modprobe vhost_net"
    if "vde" in kinds and host.which(SWITCH) is None:
        return f"{SWITCH} is not installed", host.install("vde2", "vde2")
    return None


class Links(Check):
    """Loads reach a machine over a link of its own, in network namespaces, shaped to a rate."""

    name = "link"
    purpose = "machines with net="

    def find(self, host: Host) -> Finding:
        if fault := _fault(host, ("veth", "slirp")):
            return self.missing(*fault)
        if fault := _fault(host, ("tap", "vde")):
            return self.degraded(f"container, gvisor and qemu:net=slirp only: {fault[0]}", fault[1])
        return self.ok("network namespaces, token bucket filters, taps and vde_switch")
