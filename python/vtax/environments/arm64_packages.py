"""Packages of Debian's arm64 on a machine of another architecture: fetched, never installed.

apt gets a configuration of its own in the cache: the machine's own sources of Debian, and both
architectures. Neither the machine's package lists nor its packages change.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from vtax import cache
from vtax.errors import VtaxError

ARCHITECTURE = "arm64"
TIMEOUT_S = 600
_SOURCES = Path("/etc/apt")


def fetch(
    label: str, packages: Sequence[str] = (), with_needs: Sequence[Sequence[str]] = ()
) -> Path:
    """The folder with these packages unpacked, from the cache or the machine's package sources.

    Of each group in `with_needs` the first package that there is comes with what it depends on, as
    far as that is for arm64 by its name. Raises VtaxError when they cannot be had.
    """
    target = cache.folder(ARCHITECTURE) / f"{label}-{_digest(packages, with_needs)}"
    with cache.locked(target):
        if not target.is_dir():
            apt = Apt.prepare()
            wanted = [name for group in with_needs for name in apt.needs(group)]
            _unpack(apt, [*packages, *wanted], target)
    return target


def fetched(
    label: str, packages: Sequence[str] = (), with_needs: Sequence[Sequence[str]] = ()
) -> bool:
    """Whether `fetch` would find them in the cache."""
    return (cache.folder(ARCHITECTURE) / f"{label}-{_digest(packages, with_needs)}").is_dir()


def obstacle(root: Path = Path("/")) -> str | None:
    """Why packages cannot be fetched here; None when that can be tried."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return "there is no apt-get"
    if not _debian_release(root):
        return "only Debian has packages of arm64 beside those of this machine"
    return None


class Apt:
    """apt with a configuration in the cache."""

    def __init__(self, configuration: Path) -> None:
        self._environment = {**os.environ, "APT_CONFIG": str(configuration), "LC_ALL": "C"}

    @classmethod
    def prepare(cls) -> Apt:
        """Bring the package lists up to date. Raises VtaxError when that fails."""
        if reason := obstacle():
            raise VtaxError(f"packages of arm64 cannot be fetched: {reason}")
        folder = cache.folder(ARCHITECTURE) / "apt"
        for name in ("state/lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text(_one_line(_stanzas(_debian_release())))
        (folder / "apt.conf").write_text(_CONFIGURATION.format(folder=folder, own=_own()))
        apt = cls(folder / "apt.conf")
        apt.run(["apt-get", "-q", "update"], folder)
        return apt

    def run(self, argv: Sequence[str], folder: Path) -> str:
        """Run a program of apt. Raises VtaxError with its last line when it fails."""
        done = subprocess.run(
            argv, cwd=folder, env=self._environment, capture_output=True, text=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise VtaxError(f"packages of arm64 cannot be fetched: {reason}", "is there a network?")
        return done.stdout

    def needs(self, group: Sequence[str]) -> Sequence[str]:
        """The first package of a group that there is, and what it depends on of arm64.

        Raises VtaxError when there is none.
        """
        for package in group:
            argv = ["apt-cache", "depends", "--recurse", "--important", package]
            try:
                listing = self.run(argv, Path("/"))
            except VtaxError:
                continue
            names = dict.fromkeys(re.findall(r"^[a-z0-9]\S*$", listing, re.MULTILINE))
            if names:
                return [name for name in names if _OF_ARM64.search(name)]
        raise VtaxError(f"this Debian has no package {' or '.join(group)}")


_OF_ARM64 = re.compile(r"aarch64|-arm64")
_CONFIGURATION = """\
Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "-";
APT::Architectures {{ "{own}"; "arm64"; }};
APT::Sandbox::User "";
Acquire::Languages "none";
"""


def _digest(packages: Sequence[str], with_needs: Sequence[Sequence[str]]) -> str:
    return hashlib.sha256(repr((packages, with_needs)).encode()).hexdigest()[:8]


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
    """Whether a line of deb822 goes on with the field before it, such as a key."""
    return name[:1].isspace()


def _lines(text: str) -> list[tuple[str, str, str, str]]:
    pattern = r"^deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s+(.*)$"
    found = []
    for options, address, suite, components in re.findall(pattern, text, re.MULTILINE):
        kept = [word for word in options.split() if not word.startswith("arch")]
        found.append((" ".join(kept), address, suite, components))
    return found


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
