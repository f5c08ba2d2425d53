"""The predictor that advice uses: that of a run of `vtax place measure`, or a file of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import records
from vtax.core.formats.files import read_bounded
from vtax.core.formats.folder import RECORD
from vtax.core.specs import unknown
from vtax.place.record import PlaceRecord, Predictor
from vtax.place.sensitivity import Sensitivity, measured

MAX_BYTES = 1 << 16
_OF_PLACE = re.compile(r"Z-place(-\d+)?$")
MEASURE = "'vtax place measure' with more environments and loads"
"""Part of a remedy."""


@dataclass(frozen=True, slots=True)
class Found:
    """A predictor, or why there is none."""

    predictor: Predictor | None
    source: str
    """The file or folder, for the reader."""
    why: str | None = None
    """None where there is a predictor; otherwise the reason, and what to do about it."""


def find(run: Path | None, file: Path | None, runs: Path) -> Found:
    """The predictor of that file, else of that run, else of the newest run of the verb in `runs`.

    Raises MisuseError when the named file is something else, VtaxError when it is damaged.
    """
    if file is not None:
        return Found(read(file), str(file))
    if run is None:
        run = _newest(runs)
    if run is None:
        return Found(None, str(runs), _no_run(runs))
    record = _record(run)
    if record.predictor is not None:
        return Found(record.predictor, str(run))
    reason = record.hypothesis.reason if record.hypothesis else "nothing was measured"
    best = "" if record.state == "complete" else f" (it is {record.state})"
    return Found(
        None, str(run), f"{run} predicts nothing{best}: {reason}; run {MEASURE}, or name a load"
        " with --like",
    )  # fmt: skip


def like(name: str, run: Path | None, runs: Path) -> tuple[Sensitivity, str]:
    """What a load lost in a run, in the environment where it may have lost most; and the run.

    Raises MisuseError when the run, the load or its interval is not there, VtaxError as `find`
    does.
    """
    run = run or _newest(runs)
    if run is None:
        raise MisuseError(f"--like {name}: {_no_run(runs)}")
    record = _record(run)
    loads = [each for each in record.loads if each.load == name]
    if not loads:
        raise unknown("load", name, {each.load for each in record.loads})
    found = [sensitivity for each in loads if (sensitivity := measured(each))]
    if not found:
        raise MisuseError(
            f"--like {name}: {run} has no interval of what it loses",
            "measure it with two rounds or more",
        )
    return max(found, key=lambda each: each.high), str(run)


def read(file: Path) -> Predictor:
    """Read a predictor from JSON.

    Raises MisuseError when there is no such file, VtaxError when it is damaged.
    """
    try:
        return Predictor.model_validate_json(read_bounded(file, MAX_BYTES))
    except OSError as error:
        raise MisuseError(f"cannot read {file}: {error.strerror or error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise VtaxError(
            f"{file} is no predictor: {where}: {first['msg']}",
            f"take the field 'predictor' of the {RECORD} of a run",
        ) from None


def _no_run(runs: Path) -> str:
    return f"no run of 'vtax place measure' is in {runs}: make one, or name one with --from"


def _newest(runs: Path) -> Path | None:
    """The newest run: names begin with the time, and end with a number within the same second."""
    folders = (path.parent for path in runs.glob(f"*Z-place*/{RECORD}"))
    found = [each for each in folders if _OF_PLACE.search(each.name)]
    return max(found, key=lambda path: path.name, default=None)


def _record(run: Path) -> PlaceRecord:
    try:
        record = records.read(run / RECORD)
    except OSError as error:
        raise MisuseError(
            f"{run} is not a run folder: {RECORD}: {error.strerror or error}",
            "name a folder that vtax place measure has made",
        ) from None
    if not isinstance(record, PlaceRecord):
        raise MisuseError(
            f"{run / RECORD} is a record of 'vtax {record.verb}'",
            "name a folder that vtax place measure has made",
        )
    if record.slowed != "service":
        raise MisuseError(
            f"{run}: its guests' vCPUs were slowed, so it says nothing of service threads",
            "name a folder that vtax place measure has made",
        )
    return record
