"""The lab without booting it: specs, command lines, archives, snapshots, QEMU's monitor."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from vtax.core.errors import MisuseError, VtaxError
from vtax.environments import build, sandbox
from vtax.environments import kvm_counters as counters
from vtax.environments.agent import Agent, MachineLostError
from vtax.environments.channel import Channel
from vtax.environments.emulated_host import contents, emulator, exports
from vtax.environments.emulated_host.emulator import Descriptors, Emulated
from vtax.environments.emulated_host.qmp import Qmp, QmpError
from vtax.environments.hiding import View
from vtax.environments.initramfs import newc
from vtax.environments.kernel_image import ModuleTree
from vtax.environments.lab import (
    Lab,
    guest_initramfs,
    host_initramfs,
    nested,
)
from vtax.environments.lab.nested import Nested
from vtax.environments.unpacked_qemu import QemuProgram

MIB = 1 << 20


def lab(spec: str) -> Lab:
    found = build(spec)
    assert isinstance(found, Lab)
    return found


# --- specs ----------------------------------------------------------------------------------


def test_the_defaults_are_a_guest_on_the_hosts_files_under_nested_paging() -> None:
    plain = lab("lab")
    assert plain == Lab() == lab("lab:npt=1,guest=host,guest_mem=256M,guests=1,icount=off")
    assert plain.memory_bytes == 1536 * MIB
    assert (plain.shape().cpus, plain.shape().memory_bytes) == (1, 256 * MIB)


def test_the_emulated_hosts_memory_grows_with_its_guests() -> None:
    assert lab("lab:guests=3,guest_mem=512M").memory_bytes == (1280 + 3 * 512) * MIB


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("lab:npt=2", "npt=2 is unknown"),
        ("lab:mem=700M", "mem=700M is too small"),
        ("lab:guest_mem=64M", "guest_mem=64M is too small"),
        ("lab:guest_mem=900T", "guest_mem=900T is more than the host's"),
        ("lab:guest=/nonexistent", "guest=/nonexistent is neither"),
        ("lab:guests=0", "guests=0 must be a whole number from 1 to 8"),
        ("lab:icount=11", "icount=11 must be"),
        ("lab:smp=0", "smp=0 must be"),
        ("lab:kernel=/nonexistent", "kernel=/nonexistent is not a file"),
        ("lab:snapshot=no", "snapshot=no is unknown; use on or off"),
        ("lab:ntp=1", "did you mean 'npt'"),
    ],
)
def test_a_bad_value_is_misuse(spec: str, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        build(spec)


def test_the_description_says_what_it_is() -> None:
    said = lab("lab:npt=0").description({"kernel": {"release": "6.1.0"}})
    assert "under KVM (shadow paging) on an emulated AMD host (QEMU TCG), Linux 6.1.0" in said


def test_an_unpacked_one_is_let_into_the_box_with_its_libraries(tmp_path: Path) -> None:
    inside = Path("/run/vtax/qemu")
    machine = dataclasses.replace(
        MACHINE, qemu=QemuProgram(tmp_path / "usr/bin/qemu", "7.2", tmp_path).boxed()
    )
    line = emulator.command(machine, Path("/runs/work"), [0], FDS)
    at = line.index(str(inside / "usr/bin/qemu-system-x86_64"))
    assert line[at + 1 : at + 3] == ["-L", str(inside / "usr/share/qemu")]
    box = line[:at]
    bound = [box[n : n + 3] for n, word in enumerate(box) if word == "--ro-bind"]
    assert ["--ro-bind", str(tmp_path), str(inside)] in bound
    assert f"{inside}/usr/lib/x86_64-linux-gnu:{inside}/lib/x86_64-linux-gnu" in box


# --- command lines --------------------------------------------------------------------------

MACHINE = Emulated(
    memory_bytes=1536 * MIB,
    smp=2,
    guests=2,
    icount=None,
    kernel=Path("/cache/kernel"),
    modules=("/modules/kvm.ko", "/modules/kvm_amd.ko?npt=0"),
    view=View({Path("/usr"): True, Path("/usr/share"): False}),
    qemu=QemuProgram(Path("/usr/bin/qemu-system-x86_64"), "7.2").boxed(),
)
FDS = Descriptors(host=10, monitor=11, guests=(12, 13), initramfs=14)


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same paths on every machine."""
    monkeypatch.setattr(sandbox, "bubblewrap", lambda: Path("/usr/bin/bwrap"))


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    "machine",
    [
        MACHINE,
        dataclasses.replace(MACHINE, ram=Path("/cache/ram")),
        dataclasses.replace(MACHINE, ram=Path("/cache/ram"), saved=True, modules=()),
        dataclasses.replace(
            MACHINE, icount=3, image=Path("/home/me/disk.qcow2"), image_format="qcow2"
        ),
    ],
    ids=["fresh", "to be saved", "restored", "disk image and icount"],
)
def test_the_emulated_hosts_command_line(machine: Emulated, snapshot: SnapshotAssertion) -> None:
    assert emulator.command(machine, Path("/runs/work"), [0, 1], FDS) == snapshot


@pytest.mark.parametrize("kind", ["host", "builtin", "disk", "initramfs"])
def test_the_nested_guests_command_line(kind: str, snapshot: SnapshotAssertion) -> None:
    guest = Nested(kind, 256 * MIB, 1, ("/modules/virtio_mmio.ko",))  # type: ignore[arg-type]
    assert nested.command(guest, 0) == snapshot


def test_each_guest_has_its_own_files_and_one_has_the_network() -> None:
    guest = Nested("builtin", 256 * MIB, 1, ())
    lines = [" ".join(nested.command(guest, number)) for number in (0, 1)]
    assert "ifname=tap0" in lines[0] and "ifname" not in lines[1]
    assert "guests/1/qmp" in lines[1] and "guests/0" not in lines[1]
    assert "mem-path=/dev/shm/guest-1,share=on" in lines[1]


def test_the_scripts_are_shell() -> None:
    scripts = [nested.prepare_script(2), nested.pause_script(2), nested.resume_script(2)]
    for script in [*scripts, exports.share_script(), nested.furnish_script("/bin/busybox")]:
        subprocess.run(["sh", "-n", "-c", script], check=True, timeout=300)


# --- initramfs ------------------------------------------------------------------------------


def unpack(archive: bytes, folder: Path) -> None:
    """Unpack an archive with busybox, by the kernel's rules for archives one after another."""
    folder.mkdir()
    done = subprocess.run(
        ["cpio", "-idmu", "--quiet"] if shutil.which("cpio") else ["busybox", "cpio", "-idmu"],
        input=archive,
        cwd=folder,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> ModuleTree:
    folder = tmp_path / "modules"
    folder.mkdir()
    names = ("virtio_mmio", "virtio_console", "virtio_net", "9p", "9pnet_virtio", "overlay")
    more = ("virtio_blk", "ext4", "crc32c_generic", "virtio_pci", "tun", "kvm_amd")
    for name in (*names, *more):
        content = b"\0depends=kvm\0" if name == "kvm_amd" else b"\0depends=\0"
        (folder / f"{name}.ko").write_bytes(content)
    (folder / "kvm.ko").write_bytes(b"\0depends=\0")
    return ModuleTree(folder)


def test_the_hosts_guest_has_9p_and_no_disk(tree: ModuleTree, tmp_path: Path) -> None:
    files = guest_initramfs.build("host", tree, b"agent", b"busybox")
    assert "/modules/9p.ko" in files.modules and "/modules/ext4.ko" not in files.modules
    unpack(files.initramfs, tmp_path / "root")
    assert (tmp_path / "root/init").read_bytes() == b"agent"
    assert not (tmp_path / "root/bin/busybox").exists()


def test_the_builtin_guest_has_a_shell(tree: ModuleTree, tmp_path: Path) -> None:
    unpack(guest_initramfs.build("builtin", tree, b"agent", b"bb").initramfs, tmp_path / "root")
    assert (tmp_path / "root/bin/busybox").read_bytes() == b"bb"
    assert (tmp_path / "root/bin/vtax-agent").read_bytes() == b"agent"


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_users_initramfs_gets_our_init(pack: Any, tree: ModuleTree, tmp_path: Path) -> None:
    theirs = newc({"init": b"theirs", "bin/tool": b"tool"}, ("bin",))
    (tmp_path / "image").write_bytes(pack(theirs))
    assert guest_initramfs.kind(str(tmp_path / "image")) == "initramfs"
    files = guest_initramfs.build(str(tmp_path / "image"), tree, b"agent", b"bb")
    ours = files.initramfs[len(theirs) + -len(theirs) % 4 :]
    assert ours.startswith(b"070701")
    unpack(ours, tmp_path / "root")
    assert (tmp_path / "root/init").read_bytes() == b"agent"
    assert files.initramfs.startswith(theirs)


def test_a_disk_image_is_told_by_what_it_is_not(tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(bytes(4096))
    assert guest_initramfs.kind(str(tmp_path / "disk")) == "disk"
    assert lab(f"lab:guest={tmp_path / 'disk'}").kind == "disk"


@pytest.mark.parametrize(
    "content", [b"\x1f\x8bgarbage", gzip.compress(b"no archive", mtime=0)], ids=["garbage", "gzip"]
)
def test_an_archive_that_is_none_is_an_error(
    content: bytes, tree: ModuleTree, tmp_path: Path
) -> None:
    (tmp_path / "image").write_bytes(content)
    with pytest.raises(VtaxError, match=r"damaged gzip|neither a cpio archive nor a disk image"):
        guest_initramfs.build(str(tmp_path / "image"), tree, b"agent", b"bb")


def test_the_hosts_libraries_are_those_that_ldd_names() -> None:
    text = (
        "\tlinux-vdso.so.1 (0x00007fff)\n"
        "\tlibz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x00007f)\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n"
    )
    expected = [Path("/lib/x86_64-linux-gnu/libz.so.1"), Path("/lib64/ld-linux-x86-64.so.2")]
    assert contents.parse_ldd(text) == expected
    with pytest.raises(VtaxError, match=r"libgone\.so is missing"):
        contents.parse_ldd("\tlibgone.so => not found\n")


def test_parents_come_before_what_lies_in_them() -> None:
    found = contents.folders(["usr/lib/x/a", "init"])
    assert found.index("usr") < found.index("usr/lib") < found.index("usr/lib/x")
    assert {"proc", "dev", "sys"} <= set(found) and "." not in found


def test_a_missing_or_dynamic_busybox_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VtaxError, match=r"busybox is missing.*apt-get install busybox-static"):
        contents.busybox([tmp_path / "none"])
    dynamic = Path(sys.executable).resolve()
    with pytest.raises(VtaxError, match=r"not statically linked.*busybox-static"):
        contents.busybox([dynamic])


@pytest.mark.parametrize(
    ("says", "missing"),
    [
        ("x86 qemu64\n  svm npt\n", "EPYC"),
        ("x86 EPYC-v1\nx86 EPYC\n  npt vmx\n", "svm"),
        ("x86 EPYC\n  svm\n", "npt"),
    ],
)
def test_a_qemu_without_svm_is_an_error(tmp_path: Path, says: str, missing: str) -> None:
    program = tmp_path / "qemu-system-x86_64"
    program.write_text(f"#!/bin/sh\n[ $1 = -accel ] && echo tcg && exit\ncat <<E\n{says}E\n")
    program.chmod(0o755)
    with pytest.raises(VtaxError, match=f"cannot emulate an AMD host.*knows no {missing}"):
        emulator.require_svm(program)


def test_no_qemu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sandbox.bubblewrap()).parent / "nonexistent"))
    with pytest.raises(VtaxError, match="apt-get install"):
        Lab().check()


def test_a_kernel_without_kvm_amd_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = host_initramfs.guest_kernel.GuestKernel("6.9", tmp_path, tmp_path, (), tmp_path)
    monkeypatch.setattr(host_initramfs.guest_kernel, "prepare", lambda image: bare)
    monkeypatch.setattr(host_initramfs.qemu_program, "program", lambda: Path("/bin/true"))
    with pytest.raises(VtaxError, match=r"6\.9 has no module kvm_amd.*lab:kernel=PATH"):
        host_initramfs.find_parts(None)


# --- counters -------------------------------------------------------------------------------


def answer(pid: int, values: Mapping[str, int], guest_s: float = 1.0) -> dict[str, Any]:
    guest = {"pid": pid, "guest_s": guest_s, "counters": dict(values)}
    return {"counters": {}, "gauges": ["pages_4k"], "guests": [guest]}


def test_counts_are_differences_and_levels_are_as_they_are() -> None:
    before = counters.of_guest(answer(7, {"exits": 10, "pages_4k": 5}), None)
    after = counters.of_guest(answer(7, {"exits": 25, "pages_4k": 3, "invlpg": 4}, 1.5), 7)
    found = {metric.name: (metric.value, metric.unit) for metric in counters.metrics(before, after)}
    # `invlpg` was not read before, so its count in the interval is not known.
    assert found == {
        "kvm.exits": (15.0, "count"),
        "kvm.pages_4k": (3.0, "pages"),
        "kvm.guest_s": (0.5, "s"),
    }


def test_a_guest_that_is_not_there_has_no_counters() -> None:
    with pytest.raises(VtaxError, match="counters"):
        counters.of_guest(answer(7, {}), 8)
    with pytest.raises(VtaxError, match="counters"):
        counters.of_guest({"guests": None}, None)


# --- QEMU's monitor and the agent's answers --------------------------------------------------


def monitor(*lines: bytes) -> tuple[Qmp, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.sendall(b'{"QMP": {}}\n{"return": {}}\n' + b"".join(lines))
    return Qmp(ours, timeout_s=1.0), theirs


def test_events_are_kept_until_they_are_waited_for() -> None:
    qmp, theirs = monitor(b'{"event": "STOP"}\n{"return": 5}\n')
    with theirs:
        assert qmp.execute("stop") == 5
        qmp.wait_for("STOP", 0.1)
        with pytest.raises(QmpError, match="in time"):
            qmp.wait_for("STOP", 0.05)


def test_a_refused_command_says_why() -> None:
    qmp, theirs = monitor(b'{"error": {"class": "GenericError", "desc": "no such thing"}}\n')
    with theirs, pytest.raises(QmpError, match="refused 'x': no such thing"):
        qmp.execute("x")


def test_a_migration_that_fails_ends_the_wait() -> None:
    qmp, theirs = monitor(b'{"event": "MIGRATION", "data": {"status": "failed"}}\n')
    with theirs, pytest.raises(QmpError, match="could not save or restore"):
        qmp.wait_for("MIGRATION", 5.0, status="completed")


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_whatever_the_monitor_says_the_wait_ends(data: bytes) -> None:
    qmp, theirs = monitor(data)
    with theirs:
        theirs.shutdown(socket.SHUT_WR)
        try:
            qmp.execute("query-status", timeout_s=1.0)
        except QmpError:
            return
        assert b'"return"' in data or b"{" in data


@pytest.fixture
def agent() -> Iterator[tuple[Agent, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours, parts=False)
    with channel, theirs:
        yield Agent(channel, sandbox.WORK, lambda what: MachineLostError(f"it {what}")), theirs


def reply(theirs: socket.socket, *answers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Answer requests in a thread; return the list of requests, which fills while it runs."""
    asked: list[dict[str, Any]] = []

    def serve() -> None:
        with theirs.makefile("rwb") as stream:
            for ok in answers:
                asked.append(json.loads(stream.readline()))
                stream.write(json.dumps({"id": asked[-1]["id"], "ok": ok}).encode() + b"\n")
                stream.flush()

    threading.Thread(target=serve, daemon=True).start()
    return asked


def test_a_file_comes_in_pieces(agent: tuple[Agent, socket.socket]) -> None:
    asked = reply(
        agent[1],
        {"data": "YWJj", "size": 5, "eof": False},
        {"data": "ZGU=", "size": 5, "eof": True},
    )
    assert agent[0].pull("/x") == b"abcde"
    assert [each["offset"] for each in asked] == [0, 3]


def test_a_file_goes_in_pieces(agent: tuple[Agent, socket.socket]) -> None:
    asked = reply(agent[1], {"size": 0}, {"size": 0})
    agent[0].push("/x", bytes((512 << 10) + 1))
    assert [each["offset"] for each in asked] == [0, 512 << 10]


@pytest.mark.parametrize(
    "bad",
    [
        {"data": "YWJj", "size": 5},
        {"data": "***", "size": 1, "eof": True},
        {"data": 7, "size": 1, "eof": True},
        {"data": "YWJj", "size": "x", "eof": True},
    ],
)
def test_a_malformed_answer_is_an_error(
    bad: Mapping[str, Any], agent: tuple[Agent, socket.socket]
) -> None:
    reply(agent[1], bad)
    with pytest.raises(VtaxError, match=r"this version|not base64"):
        agent[0].pull("/x")


def test_a_file_that_is_too_large_is_refused(agent: tuple[Agent, socket.socket]) -> None:
    reply(agent[1], {"data": "YWJj", "size": 3, "eof": True})
    with pytest.raises(VtaxError, match="larger than 2 bytes"):
        agent[0].pull("/x", 2)


def test_a_channel_that_closes_in_mid_answer_is_a_lost_machine(
    agent: tuple[Agent, socket.socket],
) -> None:
    agent[1].sendall(b'{"ok": {"da')
    agent[1].shutdown(socket.SHUT_WR)
    with pytest.raises(MachineLostError, match="it died"):
        agent[0].pull("/x")
