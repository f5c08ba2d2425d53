"""Paths that match a pattern in a tree that changes meanwhile, such as control groups and homes."""

from __future__ import annotations

import glob
from collections.abc import Iterator
from pathlib import Path


def matching(root: Path, pattern: str) -> Iterator[Path]:
    """Paths below `root`, hidden ones too, in no order; `**` stands for any number of folders.

    A folder that goes meanwhile, or cannot be read, takes nothing else from the answer. Path.glob
    before Python 3.13 ends there with an error.
    """
    names = glob.iglob(pattern, root_dir=root, recursive=True, include_hidden=True)  # noqa: PTH207
    return (root / name for name in names)
