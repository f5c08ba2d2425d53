"""Which QEMU emulates the host of a lab; nothing boots."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtax.core.errors import VtaxError
from vtax.environments import packages, unpacked_qemu
from vtax.environments.lab import program
from vtax.environments.unpacked_qemu import QemuProgram


@given(st.integers(0, 30), st.integers(0, 30), st.text("ab0123456789.()~+ ", max_size=20))
def test_the_error_is_in_qemu_from_9_1(major: int, minor: int, rest: str) -> None:
    said = unpacked_qemu.version(f"QEMU emulator version {major}.{minor} {rest}")
    assert said is not None and said.startswith(f"{major}.{minor}")
    assert program.is_wrong(f"{major}.{minor}") == ((major, minor) >= (9, 1))


@pytest.mark.parametrize(
    ("own", "can_fetch", "version", "obstacle"),
    [
        ("7.2.22", False, "7.2.22", None),
        ("8.2.0", True, "8.2.0", None),
        ("10.0.13", True, "7.2.99", None),
        (
            "10.0.13", False, "10.0.13",
            "QEMU 10.0.13 cannot run a guest under shadow paging, and there is no apt-get",
        ),
    ],
)  # fmt: skip
def test_debian_12s_is_fetched_where_the_machines_own_has_the_error(
    own: str,
    can_fetch: bool,
    version: str,
    obstacle: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fetched(shelf: packages.Shelf) -> QemuProgram:
        assert shelf == packages.DEBIAN_12
        if not can_fetch:
            raise VtaxError("there is no apt-get")
        return QemuProgram(Path("/tree/usr/bin/qemu-system-x86_64"), "7.2.99", Path("/tree"))

    installed = QemuProgram(Path("/usr/bin/qemu-system-x86_64"), own)
    monkeypatch.setattr(unpacked_qemu, "installed", lambda: installed)
    monkeypatch.setattr(unpacked_qemu, "fetched", fetched)
    monkeypatch.setattr(program, "_of_debian_12", program._of_debian_12.__wrapped__)
    assert program.find().version == version
    assert program.shadow_obstacle() == obstacle
