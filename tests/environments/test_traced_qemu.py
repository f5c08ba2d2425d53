"""Which QEMU loads the plugin, and its command line; nothing boots."""

from __future__ import annotations

from pathlib import Path

import pytest

from vtax.core.errors import MisuseError
from vtax.environments import packages, traced_qemu, unpacked_qemu
from vtax.environments.base import allowed_cpus
from vtax.environments.traced_qemu import Recording
from vtax.environments.unpacked_qemu import QemuProgram

PLUGIN_ERROR = "Could not load plugin /nonexistent.so: no such file"


def program(folder: Path, version: str, error: str = PLUGIN_ERROR) -> Path:
    """A QEMU that only says its version, and that a plugin is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "qemu-system-x86_64"
    said = f"QEMU emulator version {version} (Debian)"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{said}" || echo "{error}" >&2\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The QEMU that is fetched when the machine's own is too old."""
    tree = tmp_path / "tree"
    program(tree / "usr/bin", "10.0.2")
    monkeypatch.setattr(packages, "fetch", lambda *_, **__: tree)
    return tree


@pytest.mark.parametrize(
    ("version", "error", "own"),
    [
        ("9.2.0", PLUGIN_ERROR, True),
        ("10.1.3", PLUGIN_ERROR, True),
        ("9.1.9", PLUGIN_ERROR, False),
        ("7.2.22", PLUGIN_ERROR, False),
        ("10.1.0", "-plugin: invalid option", False),
    ],
)
def test_the_machines_own_is_used_where_it_can_load_the_plugin(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unpacked: Path,
    version: str,
    error: str,
    own: bool,
) -> None:
    path = program(tmp_path / "bin", version, error)
    monkeypatch.setattr(unpacked_qemu.shutil, "which", lambda _: str(path))
    expected = QemuProgram(path, version, None)
    other = QemuProgram(unpacked / "usr/bin/qemu-system-x86_64", "10.0.2", unpacked)
    assert traced_qemu.find() == (expected if own else other)


def test_the_plugin_and_the_unpacked_tree_are_let_into_the_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / traced_qemu.PLUGIN
    monkeypatch.setattr(traced_qemu.binaries, "find", lambda _: plugin)
    tree, out, totals = (tmp_path / name for name in ("tree", "out", "totals"))
    qemu = QemuProgram(tree / "usr/bin/qemu-system-x86_64", "10.0.2", tree)
    guest = traced_qemu.guest({"mem": "512M"})
    recording = Recording(out, totals, user_only=True, pack=False)
    emulator = traced_qemu.inside(guest, qemu, recording).emulator
    assert emulator.program == Path("/run/vtax/qemu/usr/bin/qemu-system-x86_64")
    assert emulator.read_only == {
        tree: Path("/run/vtax/qemu"),
        plugin: Path("/run/vtax/libvtax_trace.so"),
    }
    assert emulator.writable == {out: Path("/run/vtax/trace"), totals: Path("/run/vtax/summary")}
    assert emulator.options[-2:] == [
        "-plugin",
        "file=/run/vtax/libvtax_trace.so,out=/run/vtax/trace,summary=/run/vtax/summary,"
        "memory=536870912,user=on,pack=off",
    ]
    assert "nokaslr" in emulator.parameters
    plain = traced_qemu.inside(guest, qemu, None).emulator
    assert "-plugin" not in plain.options and plain.writable == {}
    # The guest is otherwise the same: the slowdown is the plugin's alone.
    assert (plain.program, plain.parameters) == (emulator.program, emulator.parameters)


def test_a_guest_that_cannot_be_traced_is_refused() -> None:
    with pytest.raises(MisuseError, match="at most 2G"):
        traced_qemu.guest({"mem": "2049M"})
    if len(allowed_cpus()) > 1:
        with pytest.raises(MisuseError, match="one CPU"):
            traced_qemu.guest({"smp": "2"})
