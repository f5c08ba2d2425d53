"""What the name of a metric says about its unit and direction, where it is clear."""

from __future__ import annotations

import re

from vtax.core.formats.model import Better
from vtax.workloads.metric_units import TIMES, known, unwanted

_LOWER = {"time", "latency", "delay", "duration", "elapsed", "runtime", "overhead"}
_LOWER |= {"miss", "misses", "fault", "faults", "error", "errors", "failure", "failures"}
_HIGHER = {"rate", "throughput", "bandwidth", "speed", "speedup", "score", "performance"}
_HIGHER |= {"cpus", "ops", "iops", "fps", "tps", "qps", "rps"}
_HIGHER |= {"flops", "mflops", "gflops", "kbps", "mbps", "gbps"}


def unit_of(name: str) -> str:
    """`ms` of `run_ms`, `MB/s` of `copy_MB_s`, `ops/s` of `ops_per_s`; "" where the name has no
    unit."""
    words = re.split("[_.-]", name)
    if len(words) > 2 and words[-2] == "per" and (unit := f"{words[-3]}/{words[-1]}"):
        return unit if known(unit) else ""
    last = words[-1]
    # `rtt_min` is a minimum, and `faults_s` may be faults per second.
    if len(words) < 2 or last not in TIMES or last in ("min", "h", "d") or unwanted(words[-2]):
        return ""
    rate = f"{words[-2]}/{last}"
    # `run_s` is a time; `MB_s` and `ops_s` are rates.
    return rate if known(words[-2]) and words[-2] not in TIMES else last


def direction_of(name: str) -> Better | None:
    """The direction by whole words; None where they say nothing or contradict each other."""
    words = re.split("[_.-]|(?<=[a-z])(?=[A-Z])", name)
    said = {word.lower() for word in words}
    lower, higher = bool(said & _LOWER), bool(said & _HIGHER)
    if lower == higher or (higher and unwanted(name)):
        return None
    return "lower" if lower else "higher"
