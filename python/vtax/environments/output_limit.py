"""A limit on what a machine may write into its folder, so that it cannot fill the disk.

The host looks at the folder while a command runs: what a guest says about itself is not trusted,
and a quota would need root or a file system of its own.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from vtax.core.errors import VtaxError
from vtax.core.units import format_bytes

EVERY_S = 0.25
MOST_SHARE = 0.02
"""The share of one CPU that looking may take where the folder has many files."""


class OutputLimitError(VtaxError):
    """More was written than allowed."""


class OutputLimit:
    """How much `folder` may grow while a command runs that puts its results below it.

    Looking costs time that grows with the number of earlier results, so a command that ends within
    `EVERY_S` is judged by its own folder of results alone.
    """

    def __init__(self, folder: Path, results: str, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._folder = folder
        self._results = folder / results
        self._input = allocated(self._results)
        """The size of what the host has put there."""
        self._before: int | None = None
        self._began = time.monotonic()

    def check(self) -> float:
        """Look at the folder if it is time to; return in how many seconds to look again.

        Raises OutputLimitError when the folder has grown by the limit.
        """
        begin = time.monotonic()
        if begin - self._began < EVERY_S:
            return EVERY_S
        whole = allocated(self._folder)
        if self._before is None:
            # The earlier size of what is not among the results is not known.
            self._before = whole - allocated(self._results) + self._input
        self._judge(whole - self._before)
        return max(EVERY_S, (time.monotonic() - begin) / MOST_SHARE)

    def end(self) -> None:
        """Look at the results of an ended command; raises OutputLimitError as `check` does."""
        self._judge(allocated(self._results) - self._input)

    def _judge(self, grown: int) -> None:
        if grown >= self.limit_bytes:
            raise OutputLimitError(
                f"stopped: wrote more than {format_bytes(self.limit_bytes)} into its result folder",
                "--max-output to raise",
            )


def allocated(folder: Path) -> int:
    """Bytes on disk of all files below `folder`; links are not followed."""
    total = 0
    open_folders = [str(folder)]
    while open_folders:
        try:
            with os.scandir(open_folders.pop()) as entries:
                for entry in entries:
                    total += _blocks(entry)
                    if entry.is_dir(follow_symlinks=False):
                        open_folders.append(entry.path)
        except OSError:
            continue  # removed meanwhile, or not readable
    return total


def _blocks(entry: os.DirEntry[str]) -> int:
    try:
        # The unit is 512 bytes, whatever the file system's is (stat(2)).
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        return 0
