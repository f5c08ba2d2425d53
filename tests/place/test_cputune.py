"""libvirt's `<cputune>` from a plan."""

from xml.etree import ElementTree

from vtax.place.cputune import cputune
from vtax.place.plan import PlannedThread


def thread(name: str, role: str, cpus: str) -> PlannedThread:
    return PlannedThread(pid=1, tid=2, start_ticks=3, name=name, role=role, cpus=cpus)


def test_every_kind_of_thread_has_its_element() -> None:
    found = cputune([
        thread("CPU 1/KVM", "vcpu", "1"),
        thread("CPU 0/KVM", "vcpu", "0"),
        thread("qemu-system-x86", "main-loop", "2-3"),
        thread("vhost-17", "vhost", "2-3"),
        thread("IO iothread1", "io-thread", "4"),
    ])  # fmt: skip
    assert found.left_out == ()
    assert found.xml == (
        "<cputune>\n"
        '  <vcpupin vcpu="0" cpuset="0" />\n'
        '  <vcpupin vcpu="1" cpuset="1" />\n'
        '  <emulatorpin cpuset="2-3" />\n'
        '  <iothreadpin iothread="1" cpuset="4" />\n'
        "</cputune>"
    )


def test_what_libvirt_cannot_pin_is_said() -> None:
    found = cputune([
        thread("vde_switch", "switch", "2"),
        thread("disk0", "io-thread", "2"),
        thread("vhost-1", "vhost", "2"),
        thread("qemu", "main-loop", "3-4"),
    ])  # fmt: skip
    assert found.left_out == (
        "vde_switch (switch): libvirt cannot pin it",
        "disk0 (io-thread): libvirt cannot pin it",
        "2, 3-4: libvirt pins QEMU's other threads as one",
    )
    assert '<emulatorpin cpuset="2-4" />' in found.xml


def test_names_never_reach_the_xml() -> None:
    found = cputune([thread('CPU 0/"><evil/>', "vcpu", "1"), thread("<evil/>", "vhost", "1")])
    root = ElementTree.fromstring(found.xml)
    assert [child.tag for child in root] == ["vcpupin", "emulatorpin"]
    assert "evil" not in found.xml
