"""A QEMU for guests that the machine's own cannot run: unpacked from a package, never installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from vtax.core.errors import VtaxError
from vtax.environments import packages, sandbox
from vtax.environments.packages import Shelf
from vtax.environments.qemu_program import PROGRAM, Emulator

PACKAGE = "qemu-system-x86"
_INSIDE = sandbox.WORK.parent / "qemu"
_DATA = ("qemu", "seabios")
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")


@dataclass(frozen=True, slots=True)
class QemuProgram:
    """A QEMU that runs here."""

    program: Path
    version: str
    tree: Path | None = None
    """The folder that it was unpacked into; None: it is installed."""

    def boxed(self) -> Emulator:
        """This QEMU for a guest's box, into which its tree is let."""
        if self.tree is None:
            return Emulator(self.program)
        # A firmware that the machine has new enough is not fetched again.
        data = [f"{root}/usr/share/{name}" for root in (_INSIDE, "") for name in _DATA]
        return Emulator(
            _INSIDE / "usr/bin" / PROGRAM,
            [word for folder in data for word in ("-L", folder)],
            read_only={self.tree: _INSIDE},
            environment=_variables(_INSIDE),
        )


def version(said: str) -> str | None:
    """The version in what `--version` printed."""
    found = re.search(r"version (\d+\.\d+\S*)", said)
    return found[1] if found else None


def numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def installed() -> QemuProgram | None:
    """The machine's own; None where there is none that runs."""
    own = shutil.which(PROGRAM)
    return _found(Path(own)) if own else None


def fetched(shelf: Shelf) -> QemuProgram:
    """That of a shelf, fetched once. Raises VtaxError when it cannot be had."""
    tree = packages.fetch(shelf, "qemu", with_needs=((PACKAGE,),))
    if found := _found(tree / "usr/bin" / PROGRAM, tree):
        return found
    raise VtaxError(f"the QEMU among {shelf.about} does not run here")


def _found(program: Path, tree: Path | None = None) -> QemuProgram | None:
    variables = _variables(tree) if tree else {}
    try:
        done = subprocess.run(
            [str(program), "--version"], env={"PATH": "/usr/bin:/bin", **variables},
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
    except OSError:
        return None
    said = version(done.stdout)
    return QemuProgram(program, said, tree) if said else None


def _variables(tree: Path) -> dict[str, str]:
    libraries = [str(tree / folder) for folder in _LIBRARIES]
    return {"LD_LIBRARY_PATH": ":".join(libraries), "QEMU_MODULE_DIR": f"{libraries[0]}/qemu"}
