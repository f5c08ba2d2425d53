"""Which of the host's files a guest on the host's tree does not get to see.

A guest's root reads what vtax's user can read, so what keeps it from a secret must not be in the
guest: whoever serves the files to it (QEMU's 9p, hostfs, a runtime) has them covered in its own
mount namespace. This module only says what is covered; `sandbox.py` and the environments do it.

Places that are known to hold secrets are hidden. A secret in another place is visible: a guest runs
this machine's programs, which may lie anywhere.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath

from vtax.core import binaries, cache
from vtax.core.matching import matching

SECRETS = (
    # Hashes of passwords, with the editors' and package tools' copies; Debian's daily ones.
    "etc/shadow*", "etc/gshadow*", "etc/security/opasswd", "var/backups",
    # Who may become root.
    "etc/sudoers*",
    # Keys by which this machine proves who it is, or gets into networks.
    "etc/ssh/ssh_host_*_key", "etc/ssl/private", "etc/pki/tls/private", "etc/letsencrypt",
    "etc/krb5.keytab", "etc/munge", "etc/wireguard", "etc/ipsec.secrets", "etc/ppp/*-secrets",
    "etc/NetworkManager/system-connections", "etc/cryptsetup-keys.d",
    # Credentials for package registries, clusters, storage.
    "etc/apt/auth.conf*", "etc/kubernetes", "var/lib/kubelet", "etc/ceph/*.keyring",
    # Cached log-ins and machine secrets; a cloud's user data often has passwords.
    "var/lib/sss", "var/lib/samba/private", "var/lib/private", "var/lib/cloud",
    "var/lib/systemd/credential.secret",
    # Mail and jobs: what users have sent, received and planned.
    "var/mail", "var/spool/mail", "var/spool/cron",
    # Files of other containers, with secrets of their own.
    "var/lib/containers", "var/lib/docker",
    "root", "home",
)  # fmt: skip
"""Patterns below the root."""
IN_A_HOME = (
    ".ssh", ".gnupg", ".aws", ".azure", ".config/gcloud", ".config/gh", ".config/containers",
    ".kube", ".docker", ".netrc", ".git-credentials", ".password-store", ".local/share/keyrings",
    ".mozilla", ".config/chromium", ".config/google-chrome", ".npmrc", ".pypirc",
    ".cargo/credentials*", ".vault-token", ".pgpass", ".my.cnf", ".Xauthority", ".bash_history",
    ".zsh_history", ".python_history",
)  # fmt: skip
"""Names that are hidden in every home, also in one that is visible because the command runs in
it."""
FIRST_USER, LAST_USER = 1000, 60000
"""Accounts of people: the homes of other accounts are folders such as /usr/sbin."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Hidden files that a run needs."""

    working: Path | None = None
    """The folder in which the command runs; secrets known by name in it stay hidden."""
    shared: tuple[Path, ...] = ()
    """Paths that the user shares, with all that is in them."""
    programs: tuple[Path, ...] = ()
    """Installations of programs; secrets known by name in them stay hidden."""


@dataclass(frozen=True, slots=True)
class View:
    """Paths that are covered or uncovered, parents first; what lies below follows the nearest."""

    covered: Mapping[Path, bool]

    def hides(self, path: Path) -> bool:
        """Whether a guest sees nothing of the host's at `path`; links in `path` are not
        followed."""
        own = (self.covered[each] for each in (path, *path.parents) if each in self.covered)
        return next(own, False)


def view(shown: Shown, root: Path = Path("/"), home: Path | None = None) -> View:
    """The view of a guest that needs `shown`; `home` is the home of vtax's user, by default HOME.

    Paths are relative to `root`. vtax's own programs are always visible.
    """
    secrets = set(_secrets(root, home))
    secrets -= {each for each in secrets for shared in shown.shared if each.is_relative_to(shared)}
    # The user's current folder may be a home. What is shared by name wins over what is hidden.
    needed = [binaries.FOLDER.resolve(), *shown.shared]
    needed += [each for each in shown.programs if not _is_secret(each, root, home)]
    needed += [shown.working] if shown.working else []
    asked = dict.fromkeys(secrets, True) | dict.fromkeys(needed, False)
    covered: dict[Path, bool] = {}
    for path in sorted(asked, key=lambda each: len(each.parts)):
        if View(covered).hides(path) != asked[path]:
            covered[path] = asked[path]
    return View(covered)


def homes(root: Path = Path("/"), home: Path | None = None) -> frozenset[Path]:
    """Homes of people, and of vtax's user."""
    found = {*_below(root, "home/*"), *_below(root, "root"), *_homes(root)}
    home = home or cache.home()
    return frozenset(found | ({home} if home is not None and _is_a_home(home) else set()))


def _is_secret(path: Path, root: Path, home: Path | None) -> bool:
    """Whether a path lies in something that is hidden by its name in a home."""
    return any(
        PurePath(*inside.parts[:count]).match(name)
        for each in homes(root, home)
        if path.is_relative_to(each)
        for inside in [path.relative_to(each)]
        for name in IN_A_HOME
        for count in [len(PurePath(name).parts)]
    )


def _secrets(root: Path, home: Path | None) -> Iterator[Path]:
    people = homes(root, home)
    names = [glob.escape(str(each.relative_to("/"))) for each in people]
    inside = [f"{home}/{name}" for home in names for name in IN_A_HOME]
    for pattern in (*SECRETS, *names, *inside):
        yield from _below(root, pattern)


def _below(root: Path, pattern: str) -> Iterator[Path]:
    """Existing paths, without links: a link is covered where it leads."""
    for found in matching(root, pattern):
        try:
            real = found.resolve()
        except (OSError, RuntimeError):  # a circle of links leads nowhere
            continue
        if root in real.parents and os.path.lexists(real):
            yield Path("/", real.relative_to(root))


def _homes(root: Path) -> Iterator[Path]:
    """Homes of people's accounts, wherever they are."""
    try:
        lines = (root / "etc/passwd").read_text(errors="replace").splitlines()
    except OSError:
        return
    for fields in (line.split(":") for line in lines):
        if len(fields) < 6 or not fields[2].isdecimal():
            continue
        home = Path(fields[5])
        if FIRST_USER <= int(fields[2]) <= LAST_USER and _is_a_home(home):
            yield home


def _is_a_home(path: Path) -> bool:
    """Whether it is a home, and not a system folder that an account without a home is given, such
    as /."""
    apart = path.is_absolute() and ".." not in path.parts and len(path.parts) > 2
    return apart and not path.is_relative_to("/usr") and not set(str(path)) & set("*?[")
