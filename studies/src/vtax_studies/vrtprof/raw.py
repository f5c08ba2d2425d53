"""Codes of the paper's events that the kernel has no portable name for, by Intel's processors.

The codes are those of Intel's event lists (its manual, volume 3, chapter on performance monitoring
events); the kernel's `tools/perf/pmu-events/arch/x86` has the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NEHALEM = (0x1A, 0x1E, 0x1F, 0x2E, 0x25, 0x2C, 0x2F)
"""Nehalem and Westmere."""
_SANDY_BRIDGE = (
    *(0x2A, 0x2D, 0x3A, 0x3E, 0x3C, 0x3F, 0x45, 0x46),
    *(0x3D, 0x47, 0x4F, 0x56),
)
"""Sandy Bridge to Broadwell."""
_SKYLAKE = (0x4E, 0x5E, 0x8E, 0x9E, 0x55)
"""Skylake, Kaby Lake, Cascade Lake."""
_SAPPHIRE_RAPIDS = (0x8F, 0xCF)

_CODES: Mapping[str, Mapping[tuple[int, ...], int]] = {
    # ARITH.MUL; later processors have no such event.
    "MUL": {_NEHALEM: 0x0214},
    # L2_LINES_IN.ANY, later called L2_LINES_IN.ALL.
    "L2_LINES_IN": {
        _NEHALEM: 0x07F1,
        _SANDY_BRIDGE: 0x07F1,
        _SKYLAKE: 0x1FF1,
        _SAPPHIRE_RAPIDS: 0x1F25,
    },
}


def here(cpu: Mapping[str, Any]) -> dict[str, str]:
    """The recorder's names of the paper's events, by vtax-agent's facts of the processor; without
    those that its event list does not have."""
    if cpu["vendor"] != "GenuineIntel" or cpu["family"] != 6:
        return {}
    return {
        event: f"hw.raw.{code:#x}"
        for event, codes in _CODES.items()
        for models, code in codes.items()
        if cpu["model_number"] in models
    }
