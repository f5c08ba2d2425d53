"""The machine that a study was measured on."""

from __future__ import annotations

import platform
from pathlib import Path

from vtax.environments.base import allowed_cpus, host_memory_bytes
from vtax.units import format_bytes


def machine(load_before: float) -> list[tuple[str, str]]:
    """Processor, kernel and load, for the reader."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    cpus = len(allowed_cpus())
    return [
        ("Machine", f"{model}, {cpus} CPUs, {format_bytes(host_memory_bytes())}"),
        ("Kernel", f"Linux {platform.release()}"),
        ("Load", f"{load_before:.1f} before it began (1 minute)"),
    ]
