"""The batch jobs of a comparison: how they are submitted, and what each does on its nodes."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vtax.compare.submitted import folder as submitted_folder
from vtax.compare.submitted.folder import Part
from vtax.core import slurm
from vtax.core.errors import MisuseError
from vtax.core.formats.files import write_atomic
from vtax.core.formats.folder import SPEC

NODE = "SLURMD_NODENAME"
RANK = "SLURM_PROCID"
TASKS = "SLURM_NTASKS"
LEAST_MARGIN_S = 60.0
"""What a part leaves of its job's time for ending its machines and saving."""
MARGIN = 0.05


@dataclass(frozen=True, slots=True)
class Wanted:
    """What each job asks Slurm for."""

    nodes: int
    partition: str | None
    time_s: float | None


def script(folder: Path) -> str:
    """The batch script: one vtax on each node, which measures its share of what is left."""
    part = [sys.executable, "-m", "vtax.main", "collect", "--measure", str(folder)]
    each = 'srun --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_ON_NODE" --cpu-bind=none --mem=0'
    return f"#!/bin/sh\nexec {each} {shlex.join(part)}\n"


def line(wanted: Wanted, folder: Path, after: str | None) -> list[str]:
    """The command line that submits a job, whose script is the standard input."""
    found = ["sbatch", "--parsable", "--no-requeue", "--job-name=vtax", "--exclusive", "--mem=0"]
    found += [f"--nodes={wanted.nodes}", f"--output={folder / 'job-%j.txt'}"]
    if wanted.partition:
        found += [f"--partition={wanted.partition}"]
    if wanted.time_s is not None:
        found += [f"--time={math.ceil(wanted.time_s / 60)}"]
    # After any end of the one before: also at its time limit, and when its node has failed.
    return [*found, f"--dependency=afterany:{after}"] if after else found


def submit(wanted: Wanted, folder: Path, chain: int) -> tuple[str, ...]:
    """Submit jobs, each after the end of the one before; their numbers.

    Raises VtaxError when Slurm refuses; jobs that it had taken are cancelled then.
    """
    jobs: list[str] = []
    try:
        for _ in range(chain):
            said = slurm.ask(line(wanted, folder, jobs[-1] if jobs else None), stdin=script(folder))
            jobs.append(said.strip().partition(";")[0])
    except BaseException:
        cancel(jobs)
        raise
    return tuple(jobs)


def cancel(jobs: Sequence[str]) -> None:
    """Cancel jobs; those that have ended stay as they are."""
    if jobs:
        slurm.ask(["scancel", *jobs])


def states(jobs: Sequence[str]) -> dict[str, str]:
    """The state of each job that Slurm has not forgotten, in Slurm's words, lower case."""
    said = slurm.ask(["squeue", "--noheader", "--states=all", "--format=%i %T %r"])
    rows = [row.split(maxsplit=2) for row in said.splitlines()]
    return {row[0]: row[1].lower() for row in rows if len(row) >= 2 and row[0] in jobs}


def go_on(states: dict[str, str]) -> bool:
    """Whether a job waits or runs."""
    return bool(set(states.values()) & {"pending", "running", "configuring", "completing",
                                        "suspended"})  # fmt: skip


def share(left: int, rank: int, tasks: int) -> int:
    """How many of the rounds that are left one node measures."""
    return left // tasks + (rank < left % tasks)


def measure_line(folder: Path, found_parts: Sequence[Part]) -> list[str] | None:
    """The command line of this node's part; None: nothing is left for it.

    Raises MisuseError and VtaxError as `submitted_folder.read` does, and outside of a job.
    """
    submitted = submitted_folder.read(folder)
    if not (job := os.environ.get(slurm.JOB)):
        raise MisuseError("--measure is for a job of vtax submit", "use vtax submit")
    rank, tasks = int(os.environ.get(RANK, "0")), int(os.environ.get(TASKS, "1"))
    # The job's other nodes may have begun: all have to share the same number of rounds.
    done = [each for each in found_parts if each.job != job]
    left = max(0, submitted.repetitions - sum(each.rounds for each in done))
    if not (own := share(left, rank, tasks)):
        return None
    out = submitted_folder.place(folder, job, os.environ.get(NODE) or os.uname().nodename)
    out.mkdir(parents=True, exist_ok=True)
    if rank == 0:
        facts = json.dumps(slurm.job_facts(job), indent=1).encode()
        write_atomic(out.parent / submitted_folder.JOB, facts)
    found = [sys.executable, "-m", "vtax.main", "compare", "--quiet", "--spec", str(folder / SPEC)]
    found += ["--out", str(out), "--reps", str(own)]
    found += ["--seed", str(submitted.seed + len(done) + rank)]
    if submitted.time_s is not None:
        margin = min(max(LEAST_MARGIN_S, MARGIN * submitted.time_s), submitted.time_s / 2)
        found += ["--budget", f"{submitted.time_s - margin:.0f}s"]
    return found
