"""Links of machines: specs, started processes, what passes, and that nothing stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from command_line import command
from process_watch import descendants, ended, eventually
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.core.checks.host import Host, Output
from vtax.core.checks.model import State
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.environments import build, link
from vtax.environments.base import Allocation, MachineLike
from vtax.environments.capabilities import Link, LinkCounters
from vtax.environments.lease import LEASE_S
from vtax.environments.link import Links, Network, Wanted
from vtax.environments.process_environment import ProcessEnvironment
from vtax.workloads.loads import ports

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make network namespaces")
LINKED = (
    "uml:mem=256M,net=vde",
    "uml:mem=256M,net=tap",
    "qemu:accel=tcg,mem=512M,net=tap",
    "qemu:accel=tcg,mem=512M,net=slirp",
    "container:net=veth",
    "gvisor:net=veth",
)
RATE_BITS = 50_000_000
CPUS = [0]
HOLDER = 4711
PYTHON = "/usr/bin/python3"
"""The distribution's Python, which is visible in guests and for clients."""
RECEIVE = "import socket,sys; s=socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)\nn=1"
RECEIVE += "\nwhile n: n=len(s.recv(1<<16))"
SEND = "import socket; s=socket.create_server(('', {port})); print('up', flush=True)\n"
SEND += "while 1: s.accept()[0].sendall(bytes({size}))"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("uml:net=veth", "net=veth is not vde or tap"),
        ("uml:rate=1G", "rate= without net="),
        ("uml:net=vde,rate=fast", "is not a number"),
        ("qemu:net=tap,rate=1k", "is not from 1M to 100G"),
        ("qemu:net=tap,rate=1T", "is not from 1M to 100G"),
        ("container:net=veth,network=yes", "without network=yes"),
        ("container:net=veth,engine=docker,image=a", "is for podman"),
        ("native:net=veth", "unknown key"),
    ],
)
def test_what_cannot_be_is_refused(spec: str, said: str) -> None:
    with pytest.raises(MisuseError, match=said):
        build(spec)


def test_only_a_machine_with_a_link_offers_it() -> None:
    for spec in LINKED:
        assert Link in build(spec).offered()
        assert Link not in build(spec.partition(":")[0]).offered()


@pytest.mark.parametrize("spec", LINKED)
def test_command_lines_join_the_namespace(
    spec: str, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    environment = checked(spec)
    assert isinstance(environment, ProcessEnvironment)
    switch = Path("/host/switch") if "vde" in spec else None
    line = list(environment.launch(Allocation(tmp_path, [0], 9, HOLDER, switch)).argv)
    assert f"/proc/{HOLDER}/ns/net" in " ".join(line) and "--unshare-net" not in line
    named = ("tun", "vde_switch", "/switch", "eth0=", "vec0:", "user,", "tap,", "virtio-net",
             "debug-threads", "ns/net", "--network")  # fmt: skip
    words = [word for word in line if not word.startswith("{")]
    assert [word for word in words if any(part in word for part in named)] == snapshot


@pytest.mark.parametrize("spec", LINKED[:4])
def test_without_a_namespace_a_guest_is_boxed_without_network(spec: str, tmp_path: Path) -> None:
    environment = checked(spec)
    assert isinstance(environment, ProcessEnvironment)
    assert "--unshare-net" in environment.launch(Allocation(tmp_path, [0], 9)).argv


def test_the_kernel_serves_a_vhost_link(tmp_path: Path) -> None:
    environment = build("qemu:accel=tcg,mem=512M,net=vhost")
    assert isinstance(environment, ProcessEnvironment) and Link in environment.offered()
    line = environment.launch(Allocation(tmp_path, [0], 9, HOLDER)).argv
    assert "tap,ifname=tap0,script=no,downscript=no,vhost=on,id=link" in line
    assert {"/dev/net/tun", "/dev/vhost-net"} <= set(line)
    fault = link._fault(host(tmp_path), ("vhost",))
    assert fault == ("/dev/vhost-net is missing", "modprobe vhost_net")


def test_bursts_stay_small_beside_the_rate() -> None:
    for rate in (link.SLOWEST_BITS, 10**8, 10**9, link.FASTEST_BITS):
        shape = link._shape(rate)
        assert 1514 < int(shape[shape.index("burst") + 1]) <= max(8192, rate / 8 * 0.002)


def host(root: Path, *missing: str, refused: str = "") -> Host:
    """A machine without some programs, on which a command line with `refused` fails."""

    def run(argv: list[str]) -> Output:
        return Output(1, "", "no") if refused and refused in argv else Output(0, "", "")

    (root / "dev/net").mkdir(parents=True)
    (root / "dev/net/tun").touch()
    found = {"apt-get": "/usr/bin/apt-get"}
    return Host(
        root=root,
        euid=0,
        which=lambda name: None if name in missing else found.get(name, f"/bin/{name}"),
        run=run,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("missing", "refused", "state", "remedy"),
    [
        ("", "", State.OK, None),
        ("ip", "", State.MISSING, "apt-get install iproute2"),
        ("tc", "", State.MISSING, "apt-get install iproute2"),
        ("", "true", State.MISSING, "run vtax outside of the container it is in"),
        ("", "tbf", State.MISSING, "modprobe sch_tbf"),
        ("vde_switch", "", State.DEGRADED, "apt-get install vde2"),
    ],
)
def test_doctor_names_what_is_missing(
    tmp_path: Path, missing: str, refused: str, state: State, remedy: str | None
) -> None:
    finding = Links().find(host(tmp_path, missing, refused=refused))
    assert (finding.state, finding.remedy) == (state, remedy)


def test_doctor_names_a_missing_tap(tmp_path: Path) -> None:
    machine = host(tmp_path)
    (tmp_path / "dev/net/tun").unlink()
    assert Links().find(machine).remedy == "modprobe tun"
    assert Links().find(replace(machine, euid=1000)).remedy == "run vtax as root"


def test_what_is_missing_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = host(tmp_path, "vde_switch")
    monkeypatch.setattr(link, "Host", lambda: machine)
    link.check("uml", Wanted("tap", RATE_BITS))
    with pytest.raises(VtaxError, match=r"net=vde: vde_switch is not installed; apt-get"):
        link.check("uml", Wanted("vde", RATE_BITS))
    monkeypatch.setattr(link, "Host", lambda: replace(machine, euid=1000))
    with pytest.raises(VtaxError, match=r"needs root.*run vtax as root"):
        link.check("uml", Wanted("tap", RATE_BITS))


@needs_root
def test_a_network_has_no_way_out_and_nothing_stays() -> None:
    link.check("container", Wanted("veth", RATE_BITS))
    with Network(Wanted("tap", RATE_BITS), CPUS) as network:
        holders = [network.service.pid, network._client.pid]
        routes = network.service.run(["ip", "route"]) + network._client.run(["ip", "route"])
        assert "default" not in routes
        outside = Path("/proc/self/ns/net").readlink()
        assert outside not in [Path(f"/proc/{pid}/ns/net").readlink() for pid in holders]
        assert network.offered(1).counters().sent.drops == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in holders)


@needs_root
def test_two_networks_do_not_meet() -> None:
    with (
        Network(Wanted("tap", RATE_BITS), CPUS),
        Network(Wanted("tap", 2 * RATE_BITS), CPUS) as second,
    ):
        assert f"{2 * RATE_BITS // 10**6}Mbit" in second._client.run(["tc", "qdisc"])


def held_by(namespace: Path) -> list[str]:
    """The processes in a network namespace."""
    found = []
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            if path.readlink() == namespace:
                found.append(path.parts[2])
        except OSError:
            continue
    return found


@needs_root
def test_nothing_stays_of_a_killed_vtax(environment: dict[str, str]) -> None:
    code = (
        "import sys; from vtax.environments.link import *; n = Network(Wanted('tap', 10**9), [0])\n"
    )
    code += "import subprocess; c = n.offered(1).client(['sh', '-c', 'echo; sleep 1000'])\n"
    code += "p = subprocess.Popen(c, stdout=subprocess.PIPE); p.stdout.readline()\n"
    code += "print(n._client.pid, flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    started = subprocess.Popen(argv, text=True, env=environment, **pipes)  # type: ignore[call-overload]
    with ended(started) as process:
        assert process.stdout
        pid = process.stdout.readline().strip()
        namespace = Path(f"/proc/{pid}/ns/net").readlink()
        assert held_by(namespace)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert eventually(lambda: held_by(namespace) == [])


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("spec", ["uml:mem=256M,net=vde", "container:net=veth", "gvisor:net=veth"])
def test_no_machine_stays_of_a_killed_vtax(
    spec: str, environment: dict[str, str], tmp_path: Path
) -> None:
    checked(spec)
    options = ("--in", spec, "--baseline", "none", "--quiet", "--out", str(tmp_path))
    argv = command("compare", *options, "--", "sleep", "1000")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with ended(subprocess.Popen(argv, env=environment, **quiet)) as process:  # type: ignore[call-overload]
        # Two processes hold the namespaces, and the command runs.
        outside = Path("/proc/self/ns/net").readlink()
        assert eventually(lambda: list(tmp_path.glob("*/raw/*/warm-up-0/stdout")), 60)
        inside = {Path(f"/proc/{pid}/ns/net").readlink() for pid in descendants(process.pid)}
        inside.discard(outside)
        assert len(inside) >= 2
        process.kill()
        process.wait()
        # Where podman loses the end of its input, the agent ends with its lease.
        assert eventually(lambda: not any(held_by(each) for each in inside), LEASE_S + 30)


@contextmanager
def started(spec: str, work: Path) -> Iterator[tuple[MachineLike, Link]]:
    machine = checked(spec).start(work, sorted(os.sched_getaffinity(0)))
    try:
        found = machine.offer(Link)
        assert found is not None
        yield machine, found
    finally:
        machine.close()


def serve(machine: MachineLike, work: Path, size: int) -> None:
    """Leave a server running in the machine that sends `size` bytes to each client."""
    exchange = Exchange(work, "server")
    exchange.create({"send.py": SEND.format(port=ports.HTTP, size=size).encode()})
    script = f"{PYTHON} send.py >up & while ! test -s up; do sleep 0.1; done"
    argv = ["/bin/sh", "-c", script]
    assert machine.run(argv, GUEST_ENVIRONMENT, "server", 60, leave=True).outcome.exit_code == 0


def received(found: Link) -> LinkCounters:
    """Receive all that the machine sends, by a client at the other end."""
    argv = [PYTHON, "-c", RECEIVE, found.address, str(ports.HTTP)]
    subprocess.run(found.client(argv), check=True, timeout=60)
    return found.counters()


@pytest.mark.slow
@needs_root
@pytest.mark.skipif(not Path(PYTHON).exists(), reason=f"no {PYTHON}")
@pytest.mark.parametrize("spec", LINKED)
def test_what_a_machine_sends_passes_its_link_at_its_rate(spec: str, tmp_path: Path) -> None:
    size = RATE_BITS // 8
    with started(f"{spec},rate={RATE_BITS}", tmp_path) as (machine, found):
        assert [each.name for each in tmp_path.iterdir()] == []
        serve(machine, tmp_path, size)
        before, begin = found.counters(), time.monotonic()
        after = received(found)
        seconds = time.monotonic() - begin
        sent = after.sent.bytes - before.sent.bytes
        assert size < sent < 1.5 * size
        assert sent * 8 / seconds < 1.1 * RATE_BITS
        assert after.sent.packets > before.sent.packets
        assert after.received.packets > before.received.packets
        assert all(Path(f"/proc/{pid}").exists() for pid in found.pids)
        assert found.rate_bits == RATE_BITS and found.kind in spec


@pytest.mark.slow
@needs_root
def test_a_client_is_held_as_a_guest_is(tmp_path: Path) -> None:
    with Network(Wanted("veth", RATE_BITS), CPUS) as network:
        client = network.offered(1).client
        write = subprocess.run(client(["touch", str(tmp_path / "x")]), capture_output=True)
        assert write.returncode != 0 and b"Read-only" in write.stderr
        shown = subprocess.run(client(["cat", "/proc/self/status"]), capture_output=True, text=True)
        (capabilities,) = [line for line in shown.stdout.splitlines() if "CapEff" in line]
        assert int(capabilities.split()[1], 16) == 0
