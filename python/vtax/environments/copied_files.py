"""Files between this machine and one that shares no folder with it, over the agent's channel."""

from __future__ import annotations

from pathlib import Path, PurePath, PurePosixPath

from vtax.core.errors import VtaxError
from vtax.core.units import format_bytes
from vtax.environments.agent import Agent

LARGEST_BYTES = 256 << 20
"""The most that one repetition may leave in its folder, all of which is brought here."""


def push(agent: Agent, source: Path, target: PurePath) -> None:
    """Copy a file, or a folder with all below it, to `target` in the machine.

    A link that the user names is copied as what it points at; other links are left out. Raises
    VtaxError when the source cannot be read, or the target cannot be written.
    """
    try:
        if source.is_dir():
            for path in sorted(source.iterdir()):
                if not path.is_symlink():
                    push(agent, path, target / path.name)
        elif source.is_file():
            agent.push(str(target), source.read_bytes(), source.stat().st_mode & 0o777)
    except OSError as error:
        raise VtaxError(f"cannot read {source}: {error.strerror}") from None


def pull(agent: Agent, source: PurePath, target: Path) -> None:
    """Bring the regular files below the folder `source` in the machine to the folder `target`.

    The machine's file names are not trusted: a name that leads out of the folder is refused.
    """
    files = agent.list_files(str(source))
    if sum(files.values()) > LARGEST_BYTES:
        raise VtaxError(
            f"the command left more than {format_bytes(LARGEST_BYTES)} in its working folder",
            "let it write elsewhere",
        )
    for name, size in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or not path.parts or ".." in path.parts:
            raise VtaxError(f"the machine names a file outside of its folder: {name!r:.80}")
        content = agent.pull(str(source / path), limit_bytes=size)
        local = target / path
        try:
            local.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            local.write_bytes(content)
        except OSError as error:
            raise VtaxError(f"cannot write {local}: {error.strerror}", "free space") from None
