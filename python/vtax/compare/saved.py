"""`results.json`: what the analysis of a run found, so that many runs are shown without it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from vtax import __version__
from vtax.core.errors import VtaxError
from vtax.core.formats.files import read_bounded, write_atomic
from vtax.core.formats.model import ComparisonRecord, Strict
from vtax.core.formats.records import MAX_BYTES
from vtax.core.statistics.results import Comparison, Detection, Flag, Result

RESULTS = "results.json"


class _Saved(Strict):
    schema_version: Literal[1] = 1
    vtax_version: str
    run_id: str | None
    state: str
    results: tuple[Result, ...]
    flags: tuple[Flag, ...]
    detection: tuple[Detection, ...] = ()


def save(comparison: Comparison, folder: Path) -> None:
    """Write `results.json` into a run folder. Raises VtaxError when it cannot be written."""
    record = comparison.record
    found = _Saved(
        vtax_version=__version__,
        run_id=record.run_id,
        state=record.state,
        results=comparison.results,
        flags=comparison.flags,
        detection=comparison.detection,
    )
    write_atomic(folder / RESULTS, found.model_dump_json().encode())


def saved(record: ComparisonRecord, folder: Path) -> Comparison | None:
    """The comparison as `results.json` has it.

    None where there is none, or it was made by another version, of another run or before the run's
    end. Raises VtaxError for a damaged file.
    """
    if record.run_id is None or record.state == "running":
        return None
    try:
        found = _Saved.model_validate_json(read_bounded(folder / RESULTS, MAX_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        said = error.strerror if isinstance(error, OSError) else error.errors()[0]["msg"]
        raise VtaxError(f"{folder / RESULTS} is damaged: {said}", "remove it") from None
    wanted = (__version__, record.run_id, record.state)
    if (found.vtax_version, found.run_id, found.state) != wanted:
        return None
    baseline = next((each.label for each in record.environments if each.role == "baseline"), "")
    return Comparison(
        str(folder), record, baseline, found.results, found.flags, detection=found.detection
    )
