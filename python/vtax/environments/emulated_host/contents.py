"""What an emulated host's initramfs contains besides its own programs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from vtax.core import elf
from vtax.core.errors import VtaxError

TREE = PurePosixPath("/run/vtax/host")
"""Where the agent mounts the real host's tree."""
BUSYBOX_PATHS = (Path("/bin/busybox"), Path("/usr/bin/busybox"))
BUSYBOX_PACKAGE = "busybox-static"
FOLDERS = ("dev", "proc", "run", "sys", "tmp", "var", "etc", "root")


def busybox(paths: Sequence[Path] = BUSYBOX_PATHS) -> Path:
    """A statically linked busybox; raises VtaxError with the remedy when there is none."""
    remedy = f"apt-get install {BUSYBOX_PACKAGE}"
    for path in paths:
        if path.is_file():
            if not elf.is_static(path):
                raise VtaxError(f"{path} is not statically linked: guests cannot run it", remedy)
            return path
    raise VtaxError("busybox is missing: emulated hosts have their shell from it", remedy)


def libraries(program: Path, folders: Sequence[Path] = ()) -> list[Path]:
    """The shared libraries that a program loads, the dynamic linker included.

    They may be in `folders`, which need not be the machine's own.

    Raises VtaxError when ldd fails or does not find a library.
    """
    path = ":".join(map(str, folders))
    done = subprocess.run(
        ["ldd", str(program)], env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": path},
        capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise VtaxError(f"cannot tell which libraries {program} needs: {done.stderr.strip()}")
    return parse_ldd(done.stdout)


def needed(program: Path) -> list[Path]:
    """The libraries of a program that may be statically linked."""
    return [] if elf.is_static(program) else libraries(program)


def parse_ldd(text: str) -> list[Path]:
    """The paths in what ldd prints; raises VtaxError when a library is not found."""
    if missing := re.search(r"(\S+) => not found", text):
        raise VtaxError(f"a program does not start: its library {missing[1]} is missing")
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", text)]


def folders(files: Iterable[str]) -> tuple[str, ...]:
    """All folders that contain the files, parents first, and those that init mounts on."""
    found = {str(parent) for name in files for parent in PurePosixPath(name).parents}
    return tuple(sorted((found | set(FOLDERS)) - {"."}))
