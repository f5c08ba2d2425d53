"""Packages that are fetched and never installed: which sources, which packages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from vtax.core.errors import VtaxError
from vtax.environments import packages
from vtax.environments.packages import ARM64, BACKPORTS, DEBIAN_12, Apt

SOURCES = """\
# Debian
Types: deb
URIs: http://packages.invalid/all
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://updates.invalid/all
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
STATUS = """\
Package: qemu-system-x86
Status: installed

Package: libc6
Status: installed
"""
PLAN = """\
NOTE: This is only a simulation!
Inst qemu-system-x86 [1:7.2+dfsg-7] (1:10.0.2+ds-2~bpo12+1 Debian Backports:stable [amd64]) []
Inst qemu-system-arm [1:7.2+dfsg-7] (1:10.0.2+ds-2~bpo12+1 Debian Backports:stable [amd64]) []
Inst libfresh1 (1.4-2~bpo12+1 Debian Backports:stable [amd64])
Conf libfresh1 (1.4-2~bpo12+1 Debian Backports:stable [amd64])
"""
CLOSURE = """\
qemu-system-x86
  Depends: libfresh1
  Depends: libc6
libfresh1
libc6
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The requests to apt, which answers as on a Debian with the backports."""
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/debian.sources").write_text(SOURCES)
    monkeypatch.setattr(packages, "_SOURCES", tmp_path)
    monkeypatch.setattr(packages, "_INSTALLED", tmp_path / "installed")
    (tmp_path / "installed").write_text(STATUS)
    monkeypatch.setattr(packages, "_debian_release", lambda *_: "bookworm")
    monkeypatch.setattr(packages, "obstacle", lambda *_: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    lines: list[Sequence[str]] = []

    def run(_: Apt, argv: Sequence[str], folder: Path) -> str:
        lines.append(argv)
        return {"apt-cache": CLOSURE, "apt-get": PLAN}[argv[0]]

    monkeypatch.setattr(Apt, "run", run)
    return lines


def test_the_suite_of_the_backports_is_beside_the_releases_own(
    asked: list[Sequence[str]], tmp_path: Path
) -> None:
    Apt.prepare(BACKPORTS)
    lines = (tmp_path / "cache/vtax/backports/apt/sources.list").read_text().splitlines()
    suites = [line.split()[2:5] for line in lines]
    assert ["http://packages.invalid/all", "bookworm-backports", "main"] in suites
    assert sum("backports" in line for line in lines) == 1
    assert len(lines) == 4
    assert asked == [["apt-get", "-q", "update"]]
    # What the machine has is not fetched again, so its own list of packages counts.
    folder = tmp_path / "cache/vtax/backports/apt"
    assert (folder / "status").read_text() == STATUS
    configuration = (folder / "apt.conf").read_text()
    assert f'status "{folder}/status"' in configuration
    assert "arm64" not in configuration


def test_an_older_release_comes_beside_without_the_newer_programs(
    asked: list[Sequence[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "_debian_release", lambda *_: "trixie")
    sources = tmp_path / "sources.list.d/debian.sources"
    sources.write_text(SOURCES.replace("bookworm", "trixie"))
    Apt.prepare(DEBIAN_12).needs(("qemu-system-x86",))
    folder = tmp_path / "cache/vtax/debian-12/apt"
    lines = (folder / "sources.list").read_text().splitlines()
    assert [line.split()[2:4] for line in lines if "bookworm" in line] == [
        ["http://packages.invalid/all", "bookworm"]
    ]
    assert (folder / "status").read_text() == "Package: libc6\nStatus: installed\n"
    # What 7.2 needs, not what the machine's own version does.
    assert all("APT::Default-Release=bookworm" in argv for argv in asked[1:])


def test_only_what_a_package_needs_and_the_machine_lacks_is_fetched(
    asked: list[Sequence[str]],
) -> None:
    wanted = Apt.prepare(BACKPORTS).needs(("qemu-system-x86",))
    assert wanted == ["qemu-system-x86=1:10.0.2+ds-2~bpo12+1", "libfresh1=1.4-2~bpo12+1"]
    assert asked[-1][:2] == ["apt-get", "-s"], "a simulation: nothing is installed"
    assert "APT::Default-Release=bookworm-backports" in asked[-1]


def test_another_architecture_has_a_package_list_of_its_own(
    asked: list[Sequence[str]], tmp_path: Path
) -> None:
    Apt.prepare(ARM64)
    folder = tmp_path / "cache/vtax/arm64/apt"
    configuration = (folder / "apt.conf").read_text()
    assert f'status "{folder}/status"' in configuration
    assert '"arm64";' in configuration
    assert "backports" not in (folder / "sources.list").read_text()


def test_another_distribution_is_told_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_debian_release", lambda *_: None)
    monkeypatch.setattr(packages.shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(VtaxError, match="packages of the backports cannot be fetched: only Debian"):
        Apt.prepare(BACKPORTS)


def test_sources_that_do_not_answer_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packages, "TIMEOUT_S", 0.1)
    apt = Apt(tmp_path / "apt.conf", ARM64, None)
    with pytest.raises(VtaxError, match=r"cannot be fetched: sleep took more than 0\.1 s"):
        apt.run(["sleep", "60"], tmp_path)
