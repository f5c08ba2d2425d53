"""Machines and workloads by name or file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vtax.errors import MisuseError
from vtax.paging import native
from vtax.specs import unknown

if TYPE_CHECKING:
    from vtax._native import Machine, Trace, Workload

LARGEST_DESCRIPTION = 1 << 20
"""Bytes: the model refuses more, so that no more is read."""


def machines() -> dict[str, str]:
    """The machines that vtax carries: name and title."""
    preset = native.load().Machine.preset
    return {name: preset(name).title for name in native.load().Machine.names()}


def workloads() -> dict[str, str]:
    """The synthetic workloads that vtax carries: name and title."""
    profile = native.load().Workload.profile
    return {name: profile(name).title for name in native.load().Workload.names()}


def machine(name_or_file: str | Path) -> Machine:
    """The machine of that name, else the one that the TOML file describes."""
    kind = native.load().Machine
    text = str(name_or_file)
    if text in kind.names():
        found: Machine = kind.preset(text)
        return found
    if not _is_file(name_or_file):
        raise unknown("machine", text, kind.names())
    with native.translated(text):
        found = kind.parse(_description(Path(text)))
    return found


def workload(name_or_file: str | Path) -> Workload | Trace:
    """The workload of that name, else what the file holds: a description in TOML, or a trace."""
    extension = native.load()
    text = str(name_or_file)
    if text in extension.Workload.names():
        found: Workload | Trace = extension.Workload.profile(text)
        return found
    if not _is_file(name_or_file):
        raise unknown("workload", text, extension.Workload.names())
    if not Path(text).exists():
        raise MisuseError(f"cannot read {text}: there is no such file")
    if Path(text).suffix == ".toml":
        with native.translated(text):
            found = extension.Workload.parse(_description(Path(text)))
    else:
        # The reader names the file in each of its messages.
        with native.translated():
            found = extension.Trace.open(text)
    return found


def _is_file(name_or_file: str | Path) -> bool:
    """Whether a file is meant: there is one, or it is written like one."""
    path = Path(name_or_file)
    return (
        path.exists() or isinstance(name_or_file, Path) or len(path.parts) > 1 or "." in path.name
    )


def _description(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_DESCRIPTION + 1)
        return content.decode()
    except OSError as error:
        raise MisuseError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MisuseError(f"{path} is no description", "write it as a TOML text in UTF-8") from None
