"""Run folders of many hosts with known taxes, made without measuring."""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import comparison_data
from comparison_data import environment
from vtax.compare.analysis import compare
from vtax.compare.saved import save
from vtax.core.formats.folder import RunFolder
from vtax.core.formats.model import ComparisonRecord, Sample

ROUNDS = 8
FACTS: Mapping[str, Any] = {
    "kernel": {"release": "6.12.5", "machine": "x86_64"},
    "cpu": {"model": "EPYC 7443", "microcode": "0xa0011d5", "online": 2, "flags": ["fma", "avx2"]},
    "memory": {"transparent_hugepages": "madvise"},
    "governor": None,
}


def facts(serial: str, **changes: Any) -> dict[str, Any]:
    """The facts of a host: like all others', but with a serial number and `changes`."""
    return {**FACTS, "serial": serial, **changes}


def record(
    host: str | None, day: int = 1, changes: Mapping[str, Any] | None = None, **fields: Any
) -> ComparisonRecord:
    own = facts(f"serial of {host}", **(changes or {}))
    order = [(label, number) for number in range(ROUNDS) for label in ("native", "uml")]
    known: dict[str, Any] = {
        "host": host,
        "run_id": f"{host}-{day}",
        "name": "stream",
        "workload": "stream",
        "repetitions": ROUNDS,
        "started_utc": f"2026-11-{day:02d}T00:00:00+00:00",
        "order": order,
    }
    compared = (environment("native", "baseline", facts=own), environment("uml", facts=own))
    return comparison_data.record(*compared, **(known | fields))


def samples(of: ComparisonRecord, left: float, noise: float = 0.002) -> list[Sample]:
    """Values whose mean leaves `left` percent of native speed."""
    drawn = random.Random(zlib.crc32(str(of.run_id).encode()))
    found = []
    for position, (label, number) in enumerate(of.order):
        value = (1.0 if label == "native" else 100.0 / left) * drawn.lognormvariate(0, noise)
        one = comparison_data.sample(label, number, value, workload=of.workload)
        found.append(replace(one, position=position, round=number, run_id=of.run_id, boot=0))
    return found


def write(
    parent: Path, of: ComparisonRecord, values: Sequence[Sample], *, analysed: bool = False
) -> Path:
    """A finished run folder, with saved results where it is `analysed`."""
    path = parent / f"{of.host}-{of.started_utc[:10]}"
    path.mkdir(parents=True)
    folder = RunFolder(path)
    (path / "raw").mkdir()
    folder.write_record(of)
    folder.finish(values)
    if analysed:
        save(compare(of, values, str(path)), path)
    return path


def host(
    parent: Path, name: str, left: float, day: int = 1, analysed: bool = False, **changes: Any
) -> Path:
    """A run of a host that has `left` percent of native speed left."""
    own = record(name, day, changes)
    return write(parent, own, samples(own, left), analysed=analysed)
