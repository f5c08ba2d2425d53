"""Programs that lie in a user's home: which folders a guest has to see for them to run.

Homes are hidden from guests, and most users' `python3` lies in one (pyenv, conda, rustup, nvm,
pipx, `~/.local/bin`). Only an installation is shown, read-only, and never a home as a whole; what
is known to hold secrets stays hidden in it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtax.environments.hiding import View, homes
from vtax.workloads.programs import script_words

PROGRAM_FOLDERS = ("bin", "sbin", "shims")
"""What a folder's programs need lies beside a folder of one of these names."""
MARKS = ("lib", "lib64", "libexec", "pyvenv.cfg", "conda-meta")
"""The folder of an installation has one of these; the folder of one tool's settings does not."""
BESIDE = ("bin", "lib", "lib64", "libexec")
"""What belongs to an installation in `~/.local`, where the data of all of a user's programs lies
too."""
MOST_ENTRIES = 2000
"""The most programs to follow in one folder of the PATH."""
MOST_STEPS = 16


@dataclass(frozen=True, slots=True)
class Installations:
    """What is shown to guests for the programs in a home."""

    folders: tuple[Path, ...] = ()
    variables: Mapping[str, str] | None = None
    """Variables for programs that look for their own installation in the home."""

    def said(self) -> tuple[str, ...]:
        if not self.folders:
            return ()
        shown = ", ".join(map(str, self.folders))
        return (f"guests see read-only, for programs in a home: {shown}",)


def installations(
    views: Sequence[View], programs: Sequence[Path], path: str, environ: Mapping[str, str]
) -> Installations:
    """What these programs, and all on the PATH, need, where one of the views hides it."""
    found: dict[Path, None] = {}
    variables: dict[str, str] = {}

    def hidden(each: Path) -> bool:
        return any(view.hides(each) for view in views)

    entries = [Path(each) for each in path.split(os.pathsep) if each.startswith("/")]
    below = [each for folder in entries if hidden(folder.resolve()) for each in _entries(folder)]
    for program in (*programs, *below):
        for step in chain(program, path):
            if not hidden(step):
                continue
            for folder in _installation(step):
                found[folder] = None
            if step.name == "rustup" or step.parent.parent.name == ".cargo":
                found |= dict.fromkeys(_rustup(step, environ, variables))
            if step.parent.parent.name == ".local":
                variables["PYTHONUSERBASE"] = str(step.parent.parent)
    # Only the outermost folders.
    outer = [each for each in found if not any(one in found for one in each.parents)]
    return Installations(tuple(sorted(outer)), variables)


def chain(program: Path, path: str) -> Iterator[Path]:
    """The program, what its links lead to, its interpreter, and the Python that a venv belongs
    to."""
    pending, seen = [program], set[Path]()
    while pending and len(seen) < MOST_STEPS:
        each = pending.pop()
        each = each.parent.resolve() / each.name
        if each in seen:
            continue
        seen.add(each)
        yield each
        if each.is_symlink():
            pending.append(each.parent / each.readlink())
        elif interpreter := interpreter_of(each, path):
            pending.append(interpreter)
        if home := _base_python(each.parent.parent / "pyvenv.cfg"):
            pending.append(home / each.name if (home / each.name).exists() else home / "python3")


def interpreter_of(script: Path, path: str) -> Path | None:
    """The program that runs a script; for `env`, the one that it finds on the PATH."""
    words = script_words(script)
    if not words:
        return None
    if Path(words[0]).name == "env" and len(words) > 1:
        names = [each for each in words[1].split() if not each.startswith("-") and "=" not in each]
        found = shutil.which(names[0], path=path) if names else None
        return Path(found) if found else None
    return Path(words[0]) if words[0].startswith("/") else None


def _base_python(settings: Path) -> Path | None:
    try:
        lines = settings.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for name, equals, value in (line.partition("=") for line in lines):
        if equals and name.strip() == "home" and value.strip().startswith("/"):
            return Path(value.strip())
    return None


def _entries(folder: Path) -> Iterator[Path]:
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(MOST_ENTRIES), entries, strict=False):
                yield Path(entry.path)
    except OSError:
        return


def _installation(program: Path) -> Sequence[Path]:
    """What a program of a home needs: its prefix where it has one, else its folder."""
    folder, prefix, people = program.parent, program.parent.parent, homes()
    if any(each.is_relative_to(folder) for each in people):
        return [program] if program.is_file() else []
    if folder.name not in PROGRAM_FOLDERS:
        return [folder]
    if prefix.name == ".local":
        return [each for name in BESIDE if (each := prefix / name).is_dir()]
    whole = any((prefix / name).exists() for name in MARKS)
    if whole and not any(each.is_relative_to(prefix) for each in people):
        return [prefix]
    # Beside ~/.tool/bin there may be data that the tool has about its user.
    return [folder]


def _rustup(program: Path, environ: Mapping[str, str], variables: dict[str, str]) -> Iterator[Path]:
    """The toolchains of rustup, whose programs are links to itself."""
    cargo = program.parent.parent
    toolchains = Path(environ.get("RUSTUP_HOME") or cargo.parent / ".rustup")
    if toolchains.is_dir():
        variables |= {"RUSTUP_HOME": str(toolchains), "CARGO_HOME": str(cargo)}
        yield toolchains.resolve()
