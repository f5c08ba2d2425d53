"""The result of a simulation as files: Parquet tables, and JSON that describes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtax import __version__
from vtax.core.errors import VtaxError

if TYPE_CHECKING:
    from vtax.paging.result import Number, SimulationResult

TABLES = ("modes", "windows", "exits", "switches")
SUMMARY = "result.json"
COUNTERS = ("l1_tlb_misses", "l2_tlb_misses", "walk_references", "exits", "switches")


def prepare(folder: Path) -> None:
    """Make the folder, so that an error is known before the simulation.

    Raises VtaxError when it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".{SUMMARY}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise _cannot_write(folder, error) from None


def write(result: SimulationResult, folder: Path) -> None:
    """Write `TABLES` as Parquet, each as in `SimulationResult`, and `SUMMARY`.

    The summary has the keys of ``--json`` and how the result came about. It is written last, so
    that the tables are whole wherever there is a summary.

    Raises VtaxError when a file cannot be written.
    """
    summary = {
        **to_json(result),
        "settings": dict(result.settings),
        "whole": result.whole,
        "vtax": __version__,
    }
    (folder / SUMMARY).unlink(missing_ok=True)
    try:
        for table in TABLES:
            getattr(result, table).write_parquet(folder / f"{table}.parquet")
        (folder / SUMMARY).write_text(json.dumps(summary, indent=1) + "\n")
    except OSError as error:
        raise _cannot_write(folder, error) from None


def to_json(result: SimulationResult) -> dict[str, Any]:
    """The result as `vtax paging simulate --json` prints it, with counts as whole numbers."""
    modes = [
        {
            "mode": name,
            "instructions": _whole(row["instructions"]),
            "references": _whole(row["references"]),
            "cycles": _whole(row["cycles"]),
            "overhead_percent": _rounded(row["overhead_percent"]),
            **{counter: _whole(row[counter]) for counter in COUNTERS},
            "relative_error_percent": _rounded(row["relative_error_percent"]),
            "model": True,
        }
        for name, row in result.totals.items()
    ]
    cut = {"cut": result.cut} if result.cut else {}
    return {"workload": result.workload, "machine": result.machine, **cut, "modes": modes}


def _whole(value: Number) -> int | None:
    return None if value is None else round(value)


def _rounded(value: Number) -> Number:
    return None if value is None else round(value, 4)


def _cannot_write(folder: Path, error: OSError) -> VtaxError:
    return VtaxError(f"cannot write in {folder}: {error.strerror or error}")
