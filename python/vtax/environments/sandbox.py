"""Command lines that keep a guest in a box: the host's tree read-only, one folder writable.

A guest's root can load code into a user-mode Linux kernel, so the process itself, not the guest,
is what must be held. bubblewrap gives it a mount namespace in which everything but the work
folder is mounted read-only and the host's secrets are covered, no capability to change that, no
network but one made for it (link.py), and a PID namespace that ends with vtax, also after kill -9.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vtax.core.checks.host import Host
from vtax.core.checks.model import Check, Finding
from vtax.core.errors import VtaxError
from vtax.environments.hiding import View

PROGRAM = "bwrap"

WORK = Path("/run/vtax/work")
"""The path of the writable folder inside the box, and so in every guest."""
NOBODY = "65534"
TREE = WORK.parent / "tree"
"""The path in the box of the tree that a guest gets by 9p. This tree lacks the box's own `/proc`,
where the guest would find the memory of its own process."""


@dataclass(frozen=True, slots=True)
class Box:
    """What is let into the box beside the read-only tree."""

    work: Path | None
    """Host folder that becomes WORK, writable; None: nothing is writable."""
    view: View
    """The host's files that are covered."""
    read_only: Mapping[Path, Path] = field(default_factory=dict)
    """Host files to let in, with their paths inside."""
    writable: Mapping[Path, Path] = field(default_factory=dict)
    """Host files that may be written, with their paths inside."""
    devices: Sequence[Path] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    has_tree: bool = False
    """Whether the tree, covered in the same way, is on TREE too, for a guest that gets it from
    there."""
    sees_processes: bool = True
    """Whether `/proc` shows what runs in the box; False: it shows only the CPUs."""
    has_server: bool = False
    """Whether a server of files runs in it that drops its groups if it is root, which needs a
    capability, and else takes itself for the user nobody."""
    namespace_pid: int | None = None
    """The process whose network namespace the box is in; None: a new one without a network."""


def bubblewrap() -> Path:
    """The path of bubblewrap; raises VtaxError with the remedy when it is missing."""
    if found := shutil.which(PROGRAM):
        return Path(found)
    raise VtaxError(
        "bubblewrap (bwrap) is missing: guests would not be kept from the host's files",
        "apt-get install bubblewrap",
    )


def command(box: Box, argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` in the box.

    The order matters: later mounts lie over earlier ones. /run and /dev/shm are fresh because
    the host's sockets live there and because user-mode Linux keeps its memory in a file.
    """
    line = [] if box.namespace_pid is None else joining(box.namespace_pid)
    line += [str(bubblewrap()), "--ro-bind", "/", "/", *covering(box.view, argv[0])]
    line += ["--dev", "/dev", *_processes(box)]
    line += ["--tmpfs", "/dev/shm", "--tmpfs", "/run"]
    if box.has_tree:
        line += ["--dir", str(TREE), "--ro-bind", "/", str(TREE)]
        line += covering(box.view, argv[0], TREE)
        for own in ("proc", "dev", "run"):
            line += ["--tmpfs", str(TREE / own), "--remount-ro", str(TREE / own)]
    if box.work:
        line += ["--dir", str(WORK), "--bind", str(box.work), str(WORK)]
    for source, target in box.read_only.items():
        line += ["--ro-bind", str(source), str(target)]
    for source, target in box.writable.items():
        line += ["--bind", str(source), str(target)]
    for device in box.devices:
        line += ["--dev-bind", str(device), str(device)]
    line += ["--unshare-net"] if box.namespace_pid is None else []
    line += ["--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    line += ["--cap-drop", "ALL", "--die-with-parent", "--new-session", "--chdir", "/"]
    if box.has_server and os.geteuid() == 0:
        line += ["--cap-add", "CAP_SETGID"]
    elif box.has_server:
        line += ["--unshare-user", "--uid", NOBODY, "--gid", NOBODY]
    line += ["--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "TMPDIR", "/dev/shm"]
    for name, value in box.environment.items():
        line += ["--setenv", name, value]
    return [*line, "--", *argv]


def joining(pid: int) -> list[str]:
    """What comes before a command line that is to run in the network namespace of a process."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--"]


def _processes(box: Box) -> list[str]:
    # A guest that opens files by its kernel's process would write that process's own memory.
    if box.sees_processes:
        return ["--proc", "/proc", "--remount-ro", "/proc"]
    cpus = "/proc/cpuinfo"
    return ["--tmpfs", "/proc", "--ro-bind", cpus, cpus, "--remount-ro", "/proc"]


def covering(view: View, program: str, root: Path = Path("/")) -> list[str]:
    """bubblewrap's options that cover what `view` hides, after those that mount the tree on `root`.

    `program`, which is started in the box, is visible even when it lies in a hidden folder.
    """

    def within(path: Path) -> str:
        return str(root / path.relative_to("/"))

    line: list[str] = []
    folders = []
    for path, covered in view.covered.items():
        if not covered:
            line += ["--ro-bind", str(path), within(path)]
        elif path.is_dir():
            line += ["--tmpfs", within(path)]
            folders.append(within(path))
        else:
            line += ["--ro-bind", os.devnull, within(path)]
    if view.hides(Path(program)):
        line += ["--ro-bind", program, within(Path(program))]
    # This comes last, because mount points are made in them.
    return line + [part for path in folders for part in ("--remount-ro", path)]


def pinned(cpus: Sequence[int], argv: Sequence[str]) -> list[str]:
    """The command line that keeps `argv` and all that it starts on `cpus`."""
    return ["taskset", "--cpu-list", ",".join(map(str, cpus)), *argv]


class Bubblewrap(Check):
    """Guests run in bubblewrap, which keeps a hostile guest from the host's files."""

    name = "bubblewrap"
    purpose = "the read-only box of every guest"

    def find(self, host: Host) -> Finding:
        program = host.which(PROGRAM)
        if program is None:
            return self.missing("bwrap is not installed", host.install("bubblewrap", "bubblewrap"))
        # Try the namespaces that vtax asks for: a version number does not tell if they are allowed.
        box = ["--ro-bind", "/", "/", "--unshare-net", "--unshare-pid", "--unshare-ipc"]
        output = host.run([program, *box, "--unshare-uts", "--cap-drop", "ALL", "true"])
        if output.code == 0:
            return self.ok(f"{program} makes a read-only box without network")
        return self.missing(*self._reason(host, output.last_error))

    def _reason(self, host: Host, error: str) -> tuple[str, str | None]:
        for setting, forbids, wanted in (
            ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),  # Ubuntu since 23.10
            ("kernel.unprivileged_userns_clone", "0", "1"),  # Debian's own switch
            ("user.max_user_namespaces", "0", "10000"),
        ):
            if host.read(f"/proc/sys/{setting.replace('.', '/')}") == forbids:
                return (
                    f"user namespaces are forbidden: {setting} is {forbids} ({error})",
                    f"sysctl {setting}={wanted} (as root)",
                )
        return f"bwrap cannot make its box: {error}", "run vtax outside of the container it is in"


def signal_inside(pid: int, number: int) -> None:
    """Send a signal to what a box runs, given the box's process.

    Raises OSError or IndexError where the process has ended.
    """
    while Path(f"/proc/{pid}/comm").read_text().strip() == PROGRAM:
        pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    os.kill(pid, number)
