"""Machines and workloads by name, file or description; a description is a TOML table."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtax.core.errors import MisuseError
from vtax.core.specs import unknown
from vtax.paging import native

if TYPE_CHECKING:
    from vtax._native import Machine, Trace, Workload

Description = Mapping[str, Any]
"""A machine or a workload as its TOML file has it."""

LARGEST_DESCRIPTION = 1 << 20
"""In bytes: the model refuses larger descriptions, so no more is read."""


def machines() -> dict[str, str]:
    """The machines that vtax carries, title by name."""
    preset = native.load().Machine.preset
    return {name: preset(name).title for name in native.load().Machine.names()}


def workloads() -> dict[str, str]:
    """The synthetic workloads that vtax carries, title by name."""
    profile = native.load().Workload.profile
    return {name: profile(name).title for name in native.load().Workload.names()}


def machine_description(machine: str | Path | Description) -> dict[str, Any]:
    """The whole description of a machine with all defaults, to be changed and simulated.

    Raises MisuseError when there is no such machine, or its description is invalid.
    """
    return tomllib.loads(native.load().machine_description(find_machine(machine)))


def workload_description(name: str) -> dict[str, Any]:
    """The description of a synthetic workload that vtax carries.

    Raises MisuseError when there is no workload of that name.
    """
    names = native.load().Workload.names()
    if name not in names:
        raise unknown("workload", name, names)
    return tomllib.loads(native.load().workload_description(name))


def locality(workload: str | Path | Description, references: int, seed: int = 1) -> list[int]:
    """References to each touched region of 4 MiB, most referenced first; `references` in all.

    A trace is followed from its beginning: only user addresses count, and each process has regions
    of its own. A short trace has fewer references. Raises MisuseError when `workload` is no
    workload, VtaxError for a damaged trace.
    """
    found = find_workload(workload)
    extension = native.load()
    counts: list[int]
    with native.translated():
        if isinstance(found, extension.Trace):
            counts = found.locality(references)
        else:
            counts = extension.locality(found, references, seed)
    return counts


def find_machine(machine: str | Path | Description) -> Machine:
    """Find the machine of that name, else the one that the file or the table describes.

    Raises MisuseError when there is no such machine, or the description is invalid.
    """
    kind = native.load().Machine
    if isinstance(machine, Mapping):
        parsed: Machine = _parsed(kind, machine)
        return parsed
    text = str(machine)
    if text in kind.names():
        found: Machine = kind.preset(text)
        return found
    if not _is_file(machine):
        raise unknown("machine", text, kind.names())
    with native.translated(text):
        found = kind.parse(_content(Path(text)))
    return found


def find_workload(workload: str | Path | Description) -> Workload | Trace:
    """Find the workload of that name, else what the table or the file holds: TOML, or a trace.

    Raises MisuseError when there is no such workload, or the description is invalid; VtaxError when
    the trace cannot be read.
    """
    extension = native.load()
    if isinstance(workload, Mapping):
        parsed: Workload = _parsed(extension.Workload, workload)
        return parsed
    text = str(workload)
    if text in extension.Workload.names():
        found: Workload | Trace = extension.Workload.profile(text)
        return found
    if not _is_file(workload):
        raise unknown("workload", text, extension.Workload.names())
    if not Path(text).exists():
        raise MisuseError(f"cannot read {text}: there is no such file")
    if Path(text).suffix == ".toml":
        with native.translated(text):
            found = extension.Workload.parse(_content(Path(text)))
    else:
        # The reader of traces names the file in each of its messages.
        with native.translated():
            found = extension.Trace.open(text)
    return found


def _parsed(kind: Any, description: Description) -> Any:
    import tomli_w

    with native.translated(str(description.get("name", "a description"))):
        return kind.parse(tomli_w.dumps(description))


def _is_file(name_or_file: str | Path) -> bool:
    """Whether a file is meant: the file exists, or the text looks like a path."""
    path = Path(name_or_file)
    return (
        path.exists() or isinstance(name_or_file, Path) or len(path.parts) > 1 or "." in path.name
    )


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_DESCRIPTION + 1)
        return content.decode()
    except OSError as error:
        raise MisuseError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MisuseError(
            f"{path} is not a description", "write it as a TOML text in UTF-8"
        ) from None
