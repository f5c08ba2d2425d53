"""Which of the host's hidden files a run shows its guests: its working folder, and `--share`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from vtax.core.errors import MisuseError
from vtax.environments.base import Environment
from vtax.environments.hiding import Shown, View
from vtax.environments.own_programs import PROGRAM_FOLDERS, Installations, installations


def shown(environments: Mapping[str, Environment], shared: Sequence[Path]) -> tuple[Path, ...]:
    """The real paths that `--share` names.

    Raises MisuseError when a path does not exist, when an environment that hides files does not
    have it, and when no environment hides files.
    """
    hiding = {label: each for label, each in environments.items() if each.view().covered}
    if shared and not hiding:
        raise MisuseError("--share: no environment here hides this machine's files", "leave it out")
    for path in shared:
        if not path.exists():
            raise MisuseError(f"--share {path}: it does not exist")
        lacking = [label for label, each in hiding.items() if not each.has_folder(path.resolve())]
        if lacking:
            raise MisuseError(f"--share {path}: {', '.join(lacking)} has its own {path.resolve()}")
    return tuple(path.resolve() for path in shared)


def installed(
    environments: Mapping[str, Environment], shown: Shown, programs: Sequence[str], path: str
) -> Installations:
    """What guests are shown for programs in a home: for these programs, and all on the PATH."""
    seeing = [each.with_shown(shown) for each in environments.values()]
    views = [view for each in seeing if (view := each.view()).covered]
    if not views:
        return Installations()
    folder = shown.working or Path.cwd()
    found = [
        folder / each if "/" in each else Path(which)
        for each in programs
        if (which := each if "/" in each else shutil.which(each, path=path))
    ]
    return installations(views, found, path, os.environ)


def require_seen(environments: Mapping[str, Environment], program: Path) -> None:
    """Raise MisuseError with the folder to share when a guest does not see a program of the host's.

    `program` is the path where it was found, maybe a link.
    """
    for label, each in environments.items():
        view = each.view()
        for path in (program.parent.resolve() / program.name, program.resolve()):
            if view.hides(path):
                raise MisuseError(
                    f"program '{path}': it lies in a folder that is hidden from {label}",
                    f"--share {_folder(path, view)}",
                )


def _folder(program: Path, view: View) -> Path:
    """The folder to share for a program to run; not a whole home for its bin folder."""
    folder = program.parent
    above = folder.parent
    return above if folder.name in PROGRAM_FOLDERS and above not in view.covered else folder
