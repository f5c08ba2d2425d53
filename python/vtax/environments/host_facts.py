"""What vtax-agent says about this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Any

from vtax.core import binaries, foreign_json
from vtax.core.errors import VtaxError

FACTS_TIMEOUT_S = 30.0


def available_bytes() -> int | None:
    """How much this machine could give to a new program without swapping; None: it does not say."""
    memory = facts_here().get("memory")
    found = memory.get("available_bytes") if isinstance(memory, Mapping) else None
    return found if isinstance(found, int) else None


def facts_here() -> Mapping[str, Any]:
    """This machine's facts (`vtax-agent facts`). Raises VtaxError when the agent gives none."""
    done = subprocess.run(
        [str(binaries.find("vtax-agent")), "facts"],
        capture_output=True,
        text=True,
        timeout=FACTS_TIMEOUT_S,
        check=False,
    )
    try:
        return foreign_json.parse_object(done.stdout)
    except ValueError:
        raise VtaxError("vtax-agent does not tell the facts", "run 'vtax doctor'") from None
