"""The node of guests' memory on hosts that are a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from place_hosts import threads
from vtax.place import memory
from vtax.place.host_advice import HostThread
from vtax.place.memory import located, node

QEMU = "7f00 default anon=9 dirty=9 N0={} N1={} kernelpagesize_kB=4\n"
EMPTY = "7f10 default file=/usr/lib/N1=99\\040(gone) mapped=3\n"
HUGE = "7f20 bind:1 file=/anon_hugepage\\040(deleted) huge anon=5 dirty=5 N1={} kernelpagesize_kB=2048\n"  # noqa: E501


def host(root: Path, nodes: int = 2) -> Path:
    for number in range(nodes):
        (root / f"{memory.NODES}/node{number}").mkdir(parents=True)
    return root


def process(root: Path, pid: int, numa_maps: str, resident: int = 1000) -> None:
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    (folder / "numa_maps").write_text(numa_maps)
    (folder / "statm").write_text(f"9000 {resident} 300 1 0 500 0\n")


def nodes(found: tuple[HostThread, ...]) -> dict[str | None, set[int | None]]:
    return {
        guest: {each.memory_node for each in found if each.guest == guest}
        for guest in {each.guest for each in found}
    }


def test_each_guest_has_the_node_of_its_own_memory(tmp_path: Path) -> None:
    process(host(tmp_path), 2101, QEMU.format(10, 90) + EMPTY)
    process(tmp_path, 3101, QEMU.format(75, 25))
    found = located(threads("kvm_vhost"), tmp_path)
    assert nodes(found) == {"web": {1}, "db": {0}, None: {None}}
    assert {each.tid for each in found if each.memory_node == 1} >= {2112}, "vhost's too"


@pytest.mark.parametrize(
    ("numa_maps", "expected"),
    [
        (QEMU.format(75, 25), 0),
        (QEMU.format(74, 26), None),
        (EMPTY, None),
        ("", None),
        ("7f00 default N0=5\n", None),
        ("7f00 default N0=5 kernelpagesize_kB=0\n", None),
        ("7f00 default N0=" + "9" * 5000 + " kernelpagesize_kB=4\n", None),
        # 90 small pages on node 0 are less than one huge one.
        (QEMU.format(90, 10) + HUGE.format(1), 1),
    ],
)
def test_a_node_holds_three_quarters_of_the_bytes(
    numa_maps: str, expected: int | None, tmp_path: Path
) -> None:
    process(tmp_path, 7, numa_maps)
    assert node(7, tmp_path) == expected


def test_the_largest_process_that_runs_the_guest_counts(tmp_path: Path) -> None:
    process(host(tmp_path), 1, QEMU.format(100, 0), resident=50)
    process(tmp_path, 2, QEMU.format(0, 100), resident=60)
    process(tmp_path, 3, QEMU.format(100, 0), resident=70)
    (first, *_) = threads("uml_vde")
    some = tuple(
        replace(first, pid=pid, tid=pid, guest="t", role=role, service=role != "guest")
        for pid, role in ((1, "guest"), (2, "guest"), (3, "io-thread"))
    )
    assert nodes(located(some, tmp_path)) == {"t": {1}}
    assert nodes(located(some[2:], tmp_path)) == {"t": {0}}, "none runs the guest: its services"


def test_nothing_is_read_on_a_host_with_one_node(tmp_path: Path) -> None:
    process(host(tmp_path, nodes=1), 2101, QEMU.format(0, 90))
    found = threads("kvm_vhost")
    assert located(found, tmp_path) == found


def test_what_cannot_be_read_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(host(tmp_path), 2101, QEMU.format(0, 90))
    assert nodes(located(threads("kvm_vhost"), tmp_path)) == {
        "web": {1}, "db": {None}, None: {None},
    }  # fmt: skip
    monkeypatch.setattr(memory, "MAX_BYTES", 10)
    assert nodes(located(threads("kvm_vhost"), tmp_path))["web"] == {None}
