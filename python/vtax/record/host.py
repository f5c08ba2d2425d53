"""Recording of a machine from outside: the recorder runs here, on the machine's processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from vtax.environments.machine import Machine
from vtax.formats.exchange import Exchange
from vtax.record import workload
from vtax.record.options import Options, Target
from vtax.record.recorder import Recorder
from vtax.workloads.base import Outcome


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
    """Record a machine's whole process tree while `copies` of a workload run in it.

    The workload's output is in the folder `name` of `work`. When Ctrl-C comes the recording is
    finished first.
    """
    Exchange(work, name).create({})
    line = workload.several(workload.line(argv), copies)
    target = Target(pid=machine.pid)
    arguments = [*options.arguments(target.usual_events), *target.arguments()]
    with Recorder(arguments, out) as recorder:
        recorder.ready()
        try:
            finished = machine.run(line, environment, name, timeout_s, workdir=workdir)
        except KeyboardInterrupt:
            recorder.finish()
            raise
        recorder.finish()
    return finished.outcome
