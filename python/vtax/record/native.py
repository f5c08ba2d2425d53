"""Recording of this machine: the whole of it, a process, guests, or a command on this terminal."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

from vtax.core import binaries
from vtax.core.recorder.options import RecordOptions, Target
from vtax.core.recorder.recorder import in_foreground
from vtax.environments.base import BASELINE, allowed_cpus, build
from vtax.environments.host_facts import facts_here
from vtax.environments.option_values import usual_processes
from vtax.record import folder
from vtax.record.folder import WHOLE_MACHINE, RecordedMachine
from vtax.workloads import builtin

SWEEP_TIMEOUT_S = 20.0


def record(
    target: Target, options: RecordOptions, out: Path | None, command_output_to_stderr: bool
) -> tuple[Path | None, int]:
    """Record in a new run folder; return the folder, or None when nothing was recorded, and the
    recorder's exit code. By then the recorder has printed the reason of a failure."""
    line = builtin.line(target.command) if target.command else []
    asked = options.asked()
    if target.processes:
        first, *others = target.processes
        asked["pid"] = [first, *others] if others else first
    if target.vm is not None:
        asked["vm"] = target.vm
    here = build(BASELINE)
    facts = facts_here()
    recorded = RecordedMachine(BASELINE, here.description(facts), facts, cpus=here.shape().cpus)
    name = Path(target.command[0]).name if line else WHOLE_MACHINE
    arguments = [
        *options.arguments(),
        *(["--pids", str(usual_processes(len(allowed_cpus())))] if line else []),
        *Target(target.processes, target.vm, line).arguments(),
    ]
    try:
        with folder.opened(out, name, line, asked, recorded) as run:
            code = in_foreground(arguments, run.path, command_output_to_stderr)
            if code < 0:
                # A signal killed the recorder, which could not end what the command had started.
                _sweep()
            if code != 0:
                raise _Failed(code if code > 0 else 1)
    except _Failed as failed:
        return (run.path if run.path.exists() else None), failed.code
    return run.path, 0


class _Failed(Exception):
    """The recorder ended with this code; raised so that run.json says `failed`."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__()


def _sweep() -> None:
    sweep = [str(binaries.find("vtax-agent")), "sweep"]
    with contextlib.suppress(subprocess.TimeoutExpired):
        subprocess.run(sweep, stdout=subprocess.DEVNULL, timeout=SWEEP_TIMEOUT_S, check=False)
