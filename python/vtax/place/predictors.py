"""What is known of loads that were not measured: by a run of `vtax place measure`, by a file, or by
the measurements that vtax has with it.

A run with too few pairs for a predictor or for a spread leaves the question to those measurements.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import records
from vtax.core.formats.files import read_bounded
from vtax.core.formats.folder import RECORD
from vtax.core.formats.model import Strict
from vtax.core.specs import unknown
from vtax.place import hypothesis
from vtax.place.record import PlaceLoad, PlaceRecord, Predictor
from vtax.place.sensitivity import Sensitivity, measured

MAX_BYTES = 1 << 16
MEASURED = "measured.json"
_OF_PLACE = re.compile(r"Z-place(-\d+)?$")
MEASURE = "'vtax place measure' with more environments and loads"
"""Part of a remedy."""


class Measured(Strict):
    """Measurements that vtax has with it: pairs of load and environment, measured elsewhere."""

    measured: str
    """Where and when."""
    loads: tuple[PlaceLoad, ...]
    """Without points."""


@dataclass(frozen=True, slots=True)
class Found:
    """What says how sensitive guests are: a line from a value of theirs, or what others lost."""

    predictor: Predictor | Sensitivity
    source: str
    """The file or folder, for the reader."""
    why: str | None = None
    """Why it is not from a measurement of the user's, and what to do about it."""


def find(run: Path | None, file: Path | None, runs: Path) -> Found:
    """What that file says, else that run, else the newest run of the verb in `runs`, else what vtax
    has with it.

    Raises MisuseError when the named file is something else, VtaxError when it is damaged.
    """
    if file is not None:
        return Found(read(file), str(file))
    if run is None:
        run = _newest(runs)
    if run is None:
        return _by_shipped(_no_run(runs))
    record = _record(run)
    if found := _known(record.loads, record.predictor, str(run)):
        return Found(found, str(run))
    reason = record.hypothesis.reason if record.hypothesis else "nothing was measured"
    best = "" if record.state == "complete" else f" (it is {record.state})"
    return _by_shipped(
        f"{run} predicts nothing{best}: {reason}; run {MEASURE}, or name a load with --like"
    )


def shipped() -> Measured:
    """The measurements that vtax has with it."""
    return Measured.model_validate_json((Path(__file__).parent / MEASURED).read_bytes())


def _by_shipped(why: str) -> Found:
    own = shipped()
    source = f"vtax's own measurements ({own.measured})"
    found = _known(own.loads, hypothesis.predictor(own.loads), source)
    assert found is not None, "a test looks at the file"
    return Found(found, source, f"{why}. Until then {source} are used")


def _known(
    loads: Sequence[PlaceLoad], line: Predictor | None, source: str
) -> Predictor | Sensitivity | None:
    """The line, or what the loads lost, if they are enough for an interval."""
    if line is not None or (found := hypothesis.spread(loads)) is None:
        return line
    words = f"by {found.n} pairs of load and environment in {source}"
    return Sensitivity(found.median, found.low, found.high, words)


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
