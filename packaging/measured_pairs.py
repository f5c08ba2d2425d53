"""Write the measurements that vtax has with it (`vtax.place.predictors`), from runs of `vtax place
measure`:

    .venv/bin/python packaging/measured_pairs.py "WHEN AND WHERE" RUN...
"""

from __future__ import annotations

import sys
from pathlib import Path

from vtax.core.formats import records
from vtax.core.formats.files import write_atomic
from vtax.core.formats.folder import RECORD
from vtax.place import predictors
from vtax.place.predictors import Measured
from vtax.place.record import PlaceRecord

FILE = Path(predictors.__file__).parent / predictors.MEASURED


def main() -> None:
    words, *runs = sys.argv[1:]
    loads = []
    for run in runs:
        record = records.read(Path(run) / RECORD)
        if not isinstance(record, PlaceRecord):
            sys.exit(f"{run} is no run of vtax place measure")
        loads += [each.model_copy(update={"points": ()}) for each in record.loads]
    found = Measured(measured=words, loads=tuple(loads))
    write_atomic(FILE, (found.model_dump_json(indent=1) + "\n").encode())
    print(f"{FILE.name}: {len(loads)} pairs")


if __name__ == "__main__":
    main()
