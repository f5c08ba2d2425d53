"""What the verbs share whose campaign keeps what was finished: `memory` and `tune`."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from vtax.formats.folder import RunFolder
    from vtax.formats.model import MemoryRecord, TuneRecord

INTERRUPTED = 130

R = TypeVar("R", "MemoryRecord", "TuneRecord", covariant=True)


class Campaign(Protocol[R]):
    """A campaign in a run folder."""

    @property
    def found(self) -> bool:
        """Whether anything was measured."""
        ...

    @property
    def first_failure(self) -> str | None: ...

    def run(self) -> R: ...


def carry_out(campaign: Campaign[R], folder: RunFolder) -> R:
    """Run it; a folder without any result goes away.

    Raises VtaxError when nothing was measured, and what the campaign raises.
    """
    from vtax.errors import VtaxError

    try:
        record = campaign.run()
    except BaseException:
        if not campaign.found:
            shutil.rmtree(folder.path, ignore_errors=True)
        raise
    if not campaign.found and record.state != "interrupted":
        raise VtaxError(
            f"nothing was measured: {campaign.first_failure or 'no run was made'}",
            f"what it printed is in {folder.path}",
        )
    return record


def variables() -> dict[str, str]:
    """The environment of programs, vtax's own on their PATH."""
    from vtax import binaries
    from vtax.workloads.variables import base_environment, require_utf8

    found = dict(base_environment(os.environ, keep_env=False))
    require_utf8(found)
    return found | {"PATH": binaries.on_path(found)}
