"""Real programs beside the built-in workloads, of the kinds that the paper runs.

Each does a fixed amount of work in the folder of its results, in every environment that sees this
machine's programs.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vtax.core.errors import VtaxError
from vtax.workloads.base import tail
from vtax_studies.vrtprof.setup import GCC, JVM, STENCIL, Work

_HERE = Path(__file__).parent
_TIMEOUT_S = 120.0
FUNCTIONS = 120
"""The functions of the file that gcc compiles; it takes about a second natively."""


def present(works: Sequence[Work], folder: Path) -> tuple[tuple[Work, ...], dict[str, str]]:
    """The workloads that this machine can run, with the files of their programs, and why it lacks
    the others. `folder`: for what is built."""
    found, missing = [], {}
    for work in works:
        try:
            files = _FILES[work.name](folder) if work.line else {}
        except VtaxError as error:
            missing[work.name] = str(error)
        else:
            found.append(replace(work, files=files))
    return tuple(found), missing


def _require(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise VtaxError(f"{name} is not installed")
    return path


def _done(line: Sequence[str]) -> str:
    """What a program prints. Raises VtaxError when it fails."""
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise VtaxError(f"{line[0]}: {error}") from None
    if done.returncode:
        raise VtaxError(f"{line[0]} failed: {tail(done.stderr)}")
    return done.stdout


def _gcc(_folder: Path) -> Mapping[str, bytes]:
    _require("gcc")
    functions = (
        f"int f{n}(int *a, int b) {{ int c = {n}; for (int i = 0; i < b; i++) "
        f"c += a[i] * {n + 3} % (a[b - i] | {n + 1}) ^ c >> {n % 7 + 1}; "
        f"switch (c & 3) {{ case 0: return c; case 1: return c / {n + 2}; }} return a[c & 7]; }}\n"
        for n in range(FUNCTIONS)
    )
    return {"unit.c": "".join(functions).encode()}


def _jvm(_folder: Path) -> Mapping[str, bytes]:
    modules = _done([_require("java"), "--list-modules"])
    if "jdk.compiler" not in modules:
        raise VtaxError("java has no compiler (jdk.compiler) to start a source file with")
    return {"Transactions.java": (_HERE / "Transactions.java").read_bytes()}


def _stencil(folder: Path) -> Mapping[str, bytes]:
    built = folder / "stencil"
    _done([_require("gcc"), "-O2", "-o", str(built), str(_HERE / "stencil.c")])
    return {"stencil": built.read_bytes()}


_FILES: Mapping[str, Callable[[Path], Mapping[str, bytes]]] = {
    GCC: _gcc,
    JVM: _jvm,
    STENCIL: _stencil,
}
