"""The interrupts that work for guests, on hosts that are a folder."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from place_hosts import threads
from vtax.place import interrupts
from vtax.place.interrupt_advice import HostInterrupt

THREADS = threads("kvm_vhost")
WEB, DB = 2101, 3101
"""QEMU's processes of the guests."""
SWITCH = next(each for each in threads("uml_vde") if each.role == "switch")
HERE = "net:[4026531840]"
ADDRESS = "0000:01:00.0"
VFIO = f"vfio-msix[3]({ADDRESS})"


class Host:
    """A host's /proc and /sys, and what processes hold."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc/irq").mkdir(parents=True)
        self.link("proc/self/ns/net", HERE)
        for pid in (WEB, DB, SWITCH.pid):
            self.link(f"proc/{pid}/ns/net", HERE)

    def file(self, path: str, text: str = "") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, errors="surrogateescape")

    def link(self, path: str, to: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        file.symlink_to(to)

    def interrupt(self, number: int, *actions: str, cpus: str = "0-7", node: int = 0) -> None:
        self.file(f"proc/irq/{number}/smp_affinity_list", f"{cpus}\n")
        self.file(f"proc/irq/{number}/node", f"{node}\n")
        for name in actions:
            (self.root / f"proc/irq/{number}/{name}").mkdir()

    def passed_through(self, pid: int | None, group: str = "12") -> None:
        self.link(f"sys/bus/pci/devices/{ADDRESS}/iommu_group", f"../../iommu_groups/{group}")
        if pid is not None:
            self.link(f"proc/{pid}/fd/30", f"/dev/vfio/{group}")

    def tap(self, pid: int, name: str, bridge: str | None = "br0") -> None:
        self.file(f"proc/{pid}/fdinfo/{name}", f"pos:\t0\niff:\t{name}\n")
        (self.root / f"sys/class/net/{name}").mkdir(parents=True, exist_ok=True)
        if bridge:
            self.port(name, bridge)

    def port(self, name: str, bridge: str) -> None:
        self.link(f"sys/class/net/{name}/master", f"../{bridge}")
        self.link(f"sys/class/net/{bridge}/brif/{name}", f"../../{name}")

    def device(self, name: str, *numbers: int, bridge: str | None = "br0") -> None:
        for number in numbers:
            self.file(f"sys/devices/{name}/msi_irqs/{number}", "msix\n")
        self.link(f"sys/class/net/{name}/device", f"../../../devices/{name}")
        if bridge:
            self.port(name, bridge)

    def found(self, some: object = THREADS, *, theirs: bool = False) -> tuple[HostInterrupt, ...]:
        return interrupts.found(some, theirs=theirs, root=self.root)  # type: ignore[arg-type]

    def guests(self, some: object = THREADS, *, theirs: bool = False) -> dict[int, str | None]:
        return {each.number: each.guest for each in self.found(some, theirs=theirs)}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_passed_through_device_works_for_who_holds_its_group(host: Host) -> None:
    host.interrupt(24, VFIO, cpus="4-5,8", node=1)
    host.interrupt(25, "nvme0q1")
    host.passed_through(WEB)
    assert host.found() == (HostInterrupt(24, VFIO, "web", (4, 5, 8), 1),)


@pytest.mark.parametrize("name", [f"vfio-msi[0]({ADDRESS})", f"vfio-intx({ADDRESS})"])
def test_each_kind_of_interrupt_of_vfio(name: str, host: Host) -> None:
    host.interrupt(24, "usb1", name)
    host.passed_through(DB)
    assert [(each.name, each.guest) for each in host.found()] == [(name, "db")]


def test_a_device_that_is_held_itself(host: Host) -> None:
    """QEMU's iommufd holds the device itself."""
    host.interrupt(24, VFIO)
    host.file(f"sys/bus/pci/devices/{ADDRESS}/vfio-dev/vfio3/dev")
    host.link(f"proc/{DB}/fd/9", "/dev/vfio/devices/vfio3")
    assert host.guests() == {24: "db"}


def test_a_device_whose_holder_is_not_known(host: Host) -> None:
    host.interrupt(24, VFIO)
    host.passed_through(None)
    assert host.guests() == {24: None}
    assert host.guests(theirs=True) == {}, "of named processes only what they hold"
    host.passed_through(WEB)
    assert host.guests(theirs=True) == {24: "web"}


@pytest.mark.parametrize(
    "name", ["vfio-msix[0](../../../etc)", "xvfio-msix[0](0000:01:00.0)", "vfio-msix[0]()"]
)
def test_names_that_are_not_vfios(name: str, host: Host) -> None:
    host.interrupt(24, name.replace("/", "."))
    host.passed_through(WEB)
    assert host.found() == ()


def test_a_bridge_brings_a_network_device_to_its_guest(host: Host) -> None:
    host.interrupt(40, "eth0-rx-0")
    host.interrupt(41)
    host.interrupt(50, "eth1-rx-0")
    host.tap(WEB, "tap0")
    host.device("eth0", 40, 41, 42)
    host.device("eth1", 50, bridge="br1")
    assert [(each.number, each.name, each.guest) for each in host.found()] == [
        (40, "eth0-rx-0", "web"), (41, "eth0", "web"),
    ], "42 is gone; nobody is on the other bridge"  # fmt: skip


def test_a_bridge_that_several_use(host: Host) -> None:
    host.interrupt(40, "eth0")
    host.tap(WEB, "tap0")
    host.device("eth0", 40)
    assert host.guests() == {40: "web"}
    host.tap(WEB, "tap9")
    assert host.guests() == {40: "web"}, "both are its own"
    host.port("veth7", "br0")
    assert host.guests() == {40: None}, "somebody's who is not known"


def test_a_bridge_of_two_guests(host: Host) -> None:
    host.interrupt(40, "eth0")
    host.tap(WEB, "tap0")
    host.tap(DB, "tap1")
    host.device("eth0", 40)
    assert host.guests() == {40: None}


def test_a_switch_serves_no_single_guest(host: Host) -> None:
    host.interrupt(40, "eth0")
    host.tap(SWITCH.pid, "tap0")
    host.device("eth0", 40)
    assert host.guests((SWITCH,), theirs=True) == {40: None}


def test_devices_below_a_bond_and_a_vlan(host: Host) -> None:
    host.interrupt(40, "eth0")
    host.interrupt(41, "eth1")
    host.tap(WEB, "tap0")
    host.port("bond0.7", "br0")
    host.link("sys/class/net/bond0.7/lower_bond0", "../bond0")
    for name, number in (("eth0", 40), ("eth1", 41)):
        host.device(name, number, bridge=None)
        host.link(f"sys/class/net/bond0/lower_{name}", f"../{name}")
    # No kernel makes a loop, but a loop may not hang vtax either.
    host.link("sys/class/net/bond0/lower_bond0.7", "../bond0.7")
    assert host.guests() == {40: "web", 41: "web"}


def test_the_device_below_a_macvtap(host: Host) -> None:
    host.interrupt(40, "eth0")
    host.device("eth0", 40, bridge=None)
    for number, (pid, name) in enumerate(((WEB, "macvtap0"), (DB, "macvtap1")), start=8):
        host.file(f"sys/class/net/{name}/ifindex", f"{number}\n")
        host.link(f"sys/class/net/{name}/lower_eth0", "../eth0")
        host.link(f"sys/class/net/eth0/upper_{name}", f"../{name}")
        host.link(f"proc/{pid}/fd/5", f"/dev/tap{number}")
    assert host.guests() == {40: None}
    host.link(f"proc/{DB}/fd/5", "/dev/null")
    assert host.guests() == {40: None}, "somebody has the other one"
    (host.root / "sys/class/net/eth0/upper_macvtap1").unlink()
    assert host.guests() == {40: "web"}


def test_interrupts_of_virtio_and_of_a_line(host: Host) -> None:
    host.interrupt(28, "virtio0-input.0")
    host.interrupt(11, "eth1", "uhci_hcd")
    host.tap(WEB, "tap0")
    host.file("sys/devices/pci/msi_irqs/28", "msix\n")
    (host.root / "sys/devices/pci/virtio0").mkdir()
    host.link("sys/class/net/eth0/device", "../../../devices/pci/virtio0")
    host.port("eth0", "br0")
    host.file("sys/devices/eth1/irq", "11\n")
    host.device("eth1")
    host.file("sys/devices/eth2/irq", "0\n")
    host.device("eth2")
    names = {each.number: each.name for each in host.found()}
    assert names == {28: "virtio0-input.0", 11: "eth1, uhci_hcd"}


def test_a_tap_of_another_network_namespace_is_another_one(host: Host) -> None:
    host.interrupt(40, "eth0")
    host.tap(WEB, "tap0")
    host.device("eth0", 40)
    host.link(f"proc/{WEB}/ns/net", "net:[4026532999]")
    assert host.found() == ()
    (host.root / f"proc/{WEB}/ns/net").unlink()
    assert host.found() == (), "not readable"


@pytest.mark.parametrize("state", sorted(interrupts.REFUSES))
def test_what_the_kernel_is_known_to_manage(state: str, host: Host) -> None:
    host.interrupt(24, VFIO)
    host.file(f"{interrupts.STATES}/24", "dstate:   0x1\n            IRQD_ACTIVATED\n")
    assert [each.movable for each in host.found()] == [True]
    host.file(f"{interrupts.STATES}/24", f"dstate:   0x1\n            {state}\n")
    assert [each.movable for each in host.found()] == [False]


def test_a_file_that_nobody_may_write(host: Host) -> None:
    host.interrupt(24, VFIO)
    (host.root / "proc/irq/24/smp_affinity_list").chmod(0o444)
    assert [each.movable for each in host.found()] == [False]


@pytest.mark.parametrize("cpus", ["", "8192", "3-", "x"])
def test_an_interrupt_whose_cpus_are_not_known_is_left_out(cpus: str, host: Host) -> None:
    host.interrupt(24, VFIO, cpus=cpus)
    host.interrupt(25, VFIO)
    (host.root / "proc/irq/26").mkdir()
    (host.root / f"proc/irq/26/{VFIO}").mkdir()
    assert [each.number for each in host.found()] == [25]


def test_a_node_that_is_not_known(host: Host) -> None:
    host.interrupt(24, VFIO, node=-1)
    host.interrupt(25, VFIO)
    (host.root / "proc/irq/25/node").unlink()
    assert [each.node for each in host.found()] == [None, None]


def test_names_are_any_bytes(host: Host) -> None:
    odd = "eth\x1b[31m\udcff"
    host.interrupt(40, odd)
    host.tap(WEB, "tap\udcfe")
    host.device("eth0", 40)
    assert [(each.name, each.guest) for each in host.found()] == [(odd, "web")]


def test_hosts_without_interrupts_or_guests(host: Host, tmp_path: Path) -> None:
    host.interrupt(24, VFIO)
    host.passed_through(WEB)
    assert host.found(()) == ()
    softirq = tuple(each for each in THREADS if each.role == "softirq")
    assert softirq and host.found(softirq) == (), "it works for no guest"
    assert interrupts.found(THREADS, theirs=False, root=tmp_path / "nothing") == ()


def test_each_interrupt_is_listed_once(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100, 400):
        host.interrupt(number, VFIO if number % 2 else f"other-{number}")
    host.passed_through(WEB)
    listed: list[str] = []
    scandir = os.scandir
    monkeypatch.setattr(
        "vtax.place.interrupts.os.scandir",
        lambda path: listed.append(str(path)) or scandir(path),  # type: ignore[func-returns-value]
    )
    some = tuple(replace(each, tid=each.tid + n) for n in range(5) for each in THREADS)
    assert len(host.found(some)) == 150
    of_interrupts = [path for path in listed if "/proc/irq/" in path]
    assert len(of_interrupts) == len(set(of_interrupts)) == 300
