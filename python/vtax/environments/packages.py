"""Packages of Debian that this machine does not have: fetched, never installed.

They are of another architecture, of the release's backports or of an older release. apt gets a
configuration of its own in the cache, made from the machine's own sources of Debian. Neither the
machine's package lists nor its packages change.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtax.core import cache
from vtax.core.errors import VtaxError

TIMEOUT_S = 600
_SOURCES = Path("/etc/apt")
_INSTALLED = Path("/var/lib/dpkg/status")


@dataclass(frozen=True, slots=True)
class Shelf:
    """A source of packages that this machine does not have."""

    name: str
    """The name of its folder in the cache."""
    about: str
    """What the packages are, in messages."""
    architecture: str | None = None
    """An architecture other than the machine's."""
    suffix: str | None = None
    """A suite besides the release's own, such as `backports`."""
    release: str | None = None
    """Another release, whose packages come with what they need of it."""
    instead: str | None = None
    """How the names begin of the machine's packages that do not count: an older version of them is
    wanted."""

    def folder(self) -> Path:
        return cache.folder(self.name)


ARM64 = Shelf("arm64", "packages of arm64", architecture="arm64")
BACKPORTS = Shelf("backports", "packages of the backports", suffix="backports")
DEBIAN_12 = Shelf("debian-12", "packages of Debian 12", release="bookworm", instead="qemu-")


def fetch(
    shelf: Shelf,
    label: str,
    packages: Sequence[str] = (),
    with_needs: Sequence[Sequence[str]] = (),
) -> Path:
    """Fetch these packages, from the cache or the machine's package sources; return their unpacked
    folder.

    For each group in `with_needs`, the first package that exists comes with what it depends on: for
    another architecture, dependencies that are for it by name; otherwise those that the machine
    lacks or has too old. Raises VtaxError when the packages cannot be fetched.
    """
    target = _target(shelf, label, packages, with_needs)
    with cache.locked(target):
        if not target.is_dir():
            apt = Apt.prepare(shelf)
            wanted = [name for group in with_needs for name in apt.needs(group)]
            _unpack(apt, [*packages, *wanted], target)
    return target


def fetched(
    shelf: Shelf,
    label: str,
    packages: Sequence[str] = (),
    with_needs: Sequence[Sequence[str]] = (),
) -> bool:
    """Whether `fetch` would find them in the cache."""
    return _target(shelf, label, packages, with_needs).is_dir()


def obstacle(shelf: Shelf, root: Path = Path("/")) -> str | None:
    """Why packages cannot be fetched here; None when there is no known obstacle."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return "there is no apt-get"
    if not _debian_release(root):
        return f"only Debian has {shelf.about} beside those of this machine"
    return None


class Apt:
    """apt with a configuration in the cache."""

    def __init__(self, configuration: Path, shelf: Shelf, suite: str | None) -> None:
        self._environment = {**os.environ, "APT_CONFIG": str(configuration), "LC_ALL": "C"}
        self._shelf = shelf
        self._suite = suite

    @classmethod
    def prepare(cls, shelf: Shelf) -> Apt:
        """Bring the package lists up to date. Raises VtaxError when that fails."""
        if reason := obstacle(shelf):
            raise VtaxError(f"{shelf.about} cannot be fetched: {reason}")
        folder = shelf.folder() / "apt"
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        release = _debian_release()
        stanzas = _stanzas(release)
        suite = f"{release}-{shelf.suffix}" if shelf.suffix else shelf.release
        if suite is not None:
            stanzas += _beside(stanzas, release, suite)
        status = folder / "status"
        status.write_text(_counted(shelf) if suite else "")
        architectures = [_own(), *([shelf.architecture] if shelf.architecture else [])]
        (folder / "sources.list").write_text(_one_line(stanzas))
        (folder / "apt.conf").write_text(
            _CONFIGURATION.format(
                folder=folder,
                status=status,
                architectures=" ".join(f'"{name}";' for name in architectures),
            )
        )
        apt = cls(folder / "apt.conf", shelf, suite)
        apt.run(["apt-get", "-q", "update"], folder)
        return apt

    def run(self, argv: Sequence[str], folder: Path) -> str:
        """Run a program of apt. Raises VtaxError with its last line when it fails, or takes too
        long."""
        try:
            done = subprocess.run(
                argv, cwd=folder, env=self._environment, capture_output=True, text=True,
                timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise self._unfetched(f"{argv[0]} took more than {TIMEOUT_S:g} s") from None
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise self._unfetched(reason)
        return done.stdout

    def _unfetched(self, reason: str) -> VtaxError:
        return VtaxError(f"{self._shelf.about} cannot be fetched: {reason}", "is there a network?")

    def needs(self, group: Sequence[str]) -> Sequence[str]:
        """The first package of a group that exists, and what it depends on.

        Raises VtaxError when no package of the group exists.
        """
        for package in group:
            argv = ["apt-cache", *self._target(), "depends", "--recurse", "--important", package]
            try:
                listing = self.run(argv, Path("/"))
            except VtaxError:
                continue
            names = dict.fromkeys(re.findall(r"^[a-z0-9]\S*$", listing, re.MULTILINE))
            if names and self._suite is not None:
                return self._newer(package, names)
            if names:
                return [name for name in names if _OF_ARM64.search(name)]
        raise VtaxError(f"this Debian has no package {' or '.join(group)}")

    def _target(self) -> Sequence[str]:
        return ("-o", f"APT::Default-Release={self._suite}") if self._suite else ()

    def _newer(self, package: str, needed: Collection[str]) -> Sequence[str]:
        """The packages among `needed` that the machine lacks or has too old for a package of the
        suite.

        apt would also bring other programs of the machine up to the new version: they are left out.
        """
        argv = ["apt-get", "-s", *self._target(), "--no-install-recommends"]
        plan = self.run([*argv, "install", package], Path("/"))
        found = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", plan, re.MULTILINE)
        return [f"{name}={version}" for name, version in found if name in needed]


def _counted(shelf: Shelf) -> str:
    """The machine's list of packages, without those that an older version is to replace."""
    stanzas = _INSTALLED.read_text(errors="replace").split("\n\n")
    if not shelf.instead:
        return "\n\n".join(stanzas)
    left_out = f"Package: {shelf.instead}"
    return "\n\n".join(each for each in stanzas if not each.startswith(left_out))


_OF_ARM64 = re.compile(r"aarch64|-arm64")
_CONFIGURATION = """\
Dir::State "{folder}/state";
Dir::State::status "{status}";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "-";
APT::Architectures {{ {architectures} }};
APT::Sandbox::User "";
Acquire::Languages "none";
"""


def _target(
    shelf: Shelf, label: str, packages: Sequence[str], with_needs: Sequence[Sequence[str]]
) -> Path:
    digest = hashlib.sha256(repr((packages, with_needs)).encode()).hexdigest()[:8]
    return shelf.folder() / f"{label}-{digest}"


def _own() -> str:
    done = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "amd64"


def _debian_release(root: Path = Path("/")) -> str | None:
    """Debian's code name; None on another system."""
    try:
        text = (root / "etc/os-release").read_text()
    except OSError:
        return None
    codename = re.search(r"^VERSION_CODENAME=(\w+)$", text, re.MULTILINE)
    is_debian = re.search(r"^ID=debian$", text, re.MULTILINE)
    return codename[1] if is_debian and codename else None


def _stanzas(release: str | None) -> list[tuple[str, str, str, str]]:
    """(options, address, suite, components) of the machine's sources of this release."""
    found = []
    for path in [_SOURCES / "sources.list", *sorted((_SOURCES / "sources.list.d").glob("*"))]:
        try:
            text = path.read_text()
        except OSError:
            continue
        found += _deb822(text) if path.suffix == ".sources" else _lines(text)
    return [each for each in found if each[2].startswith(release or "")]


def _deb822(text: str) -> list[tuple[str, str, str, str]]:
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line for line in paragraph.splitlines() if not line.startswith("#")]
        fields = {
            name.strip().lower(): value.strip()
            for name, colon, value in (line.partition(":") for line in lines)
            if colon and not _continues(name)
        }
        if "deb" not in fields.get("types", "").split():
            continue
        key = fields.get("signed-by", "")
        options = f"signed-by={key}" if key.startswith("/") else ""
        found += [
            (options, address, suite, fields.get("components", ""))
            for address in fields.get("uris", "").split()
            for suite in fields.get("suites", "").split()
        ]
    return found


def _continues(name: str) -> bool:
    """Whether a line of deb822 continues the field before it, such as a key."""
    return name[:1].isspace()


def _lines(text: str) -> list[tuple[str, str, str, str]]:
    pattern = r"^deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+(.*)$"
    found = []
    for options, address, suite, components in re.findall(pattern, text, re.MULTILINE):
        kept = [word for word in options.split() if not word.startswith("arch")]
        found.append((" ".join(kept), address, suite, components))
    return found


def _beside(
    stanzas: Sequence[tuple[str, str, str, str]], release: str | None, suite: str
) -> list[tuple[str, str, str, str]]:
    """The archives of the release's own suite, with another suite."""
    return [
        (options, address, suite, components)
        for options, address, own, components in stanzas
        if own == release
    ]


def _one_line(stanzas: Sequence[tuple[str, str, str, str]]) -> str:
    return "".join(
        f"deb [{options}] {address} {suite} {components}\n".replace(" []", "")
        for options, address, suite, components in stanzas
    )


def _unpack(apt: Apt, packages: Sequence[str], target: Path) -> None:
    work = target.with_name(f".fetch-{os.getpid()}")
    folder = work / "deb"
    try:
        folder.mkdir(parents=True)
        apt.run(["apt-get", "-q", "download", *packages], folder)
        for archive in folder.glob("*.deb"):
            subprocess.run(["dpkg-deb", "-x", str(archive), str(work)], check=True)
        shutil.rmtree(folder)
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
