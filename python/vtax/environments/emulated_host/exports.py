"""The folders that an emulated host exports to its guests by 9p.

The real host's folders are mounted after the guests have started. QEMU opens an export when it
starts, so each export is the folder above the place of the mount.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

FOLDER = PurePosixPath("/run/vtax/exports")
TREE = "tree"
"""The place of the mount in an export."""
TAGS = ("host", "work")
"""The exports: the real host's tree, and the folder that guests may write."""


def parameters(kind: str, tags: Collection[str] = TAGS) -> list[str]:
    """What tells a guest's agent to use the exports, by `9p` or `9p.TRANSPORT`."""
    names = {"host": "vtax.lower", "work": "vtax.work"}
    return [f"{names[tag]}={kind}:{tag}/{TREE}" for tag in tags]


def folders() -> list[str]:
    """Shell commands that make the exports, before the guests start."""
    return [f"mkdir -p {' '.join(str(FOLDER / tag / TREE) for tag in TAGS)}"]


def share_script() -> str:
    """Shell commands that put the real host's folders, once mounted, where guests look for them."""
    binds = [f"mount --bind /run/vtax/{tag} {FOLDER / tag / TREE}" for tag in TAGS]
    return "\n".join(["set -e", *binds])
