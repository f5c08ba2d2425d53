"""Recording by the guest itself: the recorder runs in the machine, beside the workload.

What the host may not count is counted this way: with a mediated vPMU the guest owns the hardware
counters while it runs. The rows are the guest kernel's own, by the guest's clock.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vtax import binaries
from vtax.analysis.intervals import EVENTS, MAX_ROWS_BYTES, RECORD, ROWS, STREAM
from vtax.environments.machine import Machine
from vtax.errors import VtaxError
from vtax.formats.exchange import Exchange
from vtax.formats.files import write_atomic
from vtax.record import workload
from vtax.record.options import Options, Target
from vtax.record.recorder import PROGRAM, failure
from vtax.workloads.base import Outcome

FOLDER = "rows"
"""Of the recorder, below the folder of the workload's output."""


def record(
    machine: Machine,
    work: Path,
    argv: Sequence[str],
    environment: Mapping[str, str],
    options: Options,
    out: Path,
    *,
    name: str = "run",
    copies: int = 1,
    timeout_s: float | None = None,
    workdir: Path | None = None,
) -> Outcome:
    """Record `copies` of a workload in the machine that they run in; how the workload ended.

    Raises VtaxError with the recorder's own words when it cannot record there. When Ctrl-C comes
    the rows of its last flush are kept.
    """
    exchange = Exchange(work, name)
    exchange.create({})
    target = Target(command=workload.several(workload.line(argv), copies))
    line = [str(binaries.find(PROGRAM)), "record", "--child"]
    line += ["--out", str(machine.launch.work_inside / name / FOLDER)]
    line += [*options.arguments(target.usual_events), *target.arguments()]
    rows = Exchange(exchange.path, FOLDER)
    try:
        finished = machine.run(line, environment, name, timeout_s, workdir=workdir)
    except KeyboardInterrupt:
        with contextlib.suppress(VtaxError):
            _fetch(rows, out, (STREAM, EVENTS))
        raise
    outcome = finished.outcome
    if outcome.exit_code != 0:
        raise failure(outcome.exit_code, exchange.read_text("stderr"))
    _fetch(rows, out, (ROWS, EVENTS, RECORD))
    return _of_the_workload(outcome, json.loads((out / RECORD).read_bytes()))


def _fetch(rows: Exchange, out: Path, names: Sequence[str]) -> None:
    """Bring files that the guest has written; it is not trusted with more than their bytes."""
    for name in names:
        write_atomic(out / name, rows.read_bytes(name, MAX_ROWS_BYTES))


def _of_the_workload(recorder: Outcome, found: Mapping[str, Any]) -> Outcome:
    """The recorder ends with 0 however its command ended, which it tells."""
    end = found.get("end", {}).get("command")
    if not isinstance(end, dict):
        return recorder
    return replace(recorder, exit_code=end.get("exit_code"), signal=end.get("signal"))
