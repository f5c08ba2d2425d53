"""Slurm's own programs: what vtax asks them, and how their answers read."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vtax.core.errors import SessionOverError, VtaxError

ANSWER_S = 20.0
"""Time for slurmctld to answer a question; Slurm's own limit for a message is 10 s."""
JOB = "SLURM_JOB_ID"
"""The variable that every process inside an allocation has."""

_ENDED = re.compile(r"CANCELLED AT \S+(?: DUE TO ([A-Z ]+?))? \*\*\*")
"""What slurmstepd says when it ends a step (src/slurmd/slurmstepd/req.c)."""
_ANSWERED = re.compile(r"^(?:srun|salloc|sinfo|scontrol|slurmstepd[^:]*): (?:error: )?")
_KEPT = (
    *("JobId", "Partition", "Account", "QOS", "NodeList", "TimeLimit", "SubmitTime", "StartTime"),
    *("NumNodes", "NumCPUs", "TRES", "OverSubscribe", "Features"),
)
"""What vtax keeps of a job, by Slurm's names."""
_NEVER = {
    "PartitionNodeLimit": "the partition never gives this many nodes",
    "PartitionTimeLimit": "the partition never gives nodes for this long",
    "BadConstraints": "no node is what constraint= asks for",
    "QOSMaxNodePerJobLimit": "the quality of service never gives this many nodes",
    "AssocMaxNodePerJobLimit": "the account never gets this many nodes",
}
"""Reasons of waiting that do not pass by themselves (squeue's manual, JOB REASON CODES)."""
_REMEDIES = {
    "TIME LIMIT": "give it more time=",
    "PREEMPTION": "ask for a qos= or a partition whose jobs are not preempted",
    "NODE FAILURE": "leave the node out, or wait for its repair: sinfo -R",
}


@dataclass(frozen=True, slots=True)
class NodeSize:
    """What a node has to give: CPUs and memory."""

    cpus: int
    memory_bytes: int


def variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables for Slurm's programs, without those of an allocation around vtax.

    Such variables are options of srun (SLURM_NTASKS, SLURM_MEM_PER_CPU, ...) and would contradict
    those that vtax gives.
    """
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(("SLURM_", "SRUN_", "SALLOC_")) or name == "SLURM_CONF"
    }


def ask(line: Sequence[str], stdin: str = "") -> str:
    """What one of Slurm's programs prints. Raises VtaxError when it fails or does not answer."""
    try:
        done = subprocess.run(
            list(line),
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_S,
            env=variables(),
            check=False,
        )
    except FileNotFoundError:
        raise VtaxError("Slurm: its programs are missing", "apt-get install slurm-client") from None
    except subprocess.TimeoutExpired:
        raise VtaxError(
            f"Slurm: {line[0]} did not answer within {ANSWER_S:.0f} s", "look at: scontrol ping"
        ) from None
    if done.returncode != 0:
        raise VtaxError(f"Slurm: {reason(done.stderr.splitlines())}", "look at: scontrol ping")
    return done.stdout


@functools.lru_cache(maxsize=64)
def smallest_node(partition: str | None) -> NodeSize:
    """The fewest CPUs and the least memory of a node in the partition, by default in Slurm's
    default partition. Raises VtaxError when there is no such partition, or no answer."""
    line = ["sinfo", "--noheader", "--Node", "--format=%P|%c|%m"]
    rows = [row.split("|") for row in ask([*line, *_partition(partition)]).splitlines()]
    rows = [row for row in rows if len(row) == 3 and (partition or row[0].endswith("*"))]
    numbers = [(int(c), int(m)) for _, c, m in rows if c.isdecimal() and m.isdecimal()]
    if not numbers:
        where = f"partition {partition}" if partition else "the default partition"
        raise VtaxError(f"Slurm: {where} has no nodes", "look at: sinfo")
    return NodeSize(min(c for c, _ in numbers), min(m for _, m in numbers) << 20)


def own_node(environment: Mapping[str, str] = os.environ) -> NodeSize | None:
    """The fewest CPUs, and the memory of a node, in the allocation around vtax; None outside of
    one."""
    if JOB not in environment:
        return None
    # "2(x3),1": three nodes with 2 CPUs and one with 1.
    counts = re.findall(r"(?:^|,)(\d+)", environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    found = smallest_node(environment.get("SLURM_JOB_PARTITION"))
    return NodeSize(min(map(int, counts), default=found.cpus), found.memory_bytes)


def _partition(name: str | None) -> Sequence[str]:
    return [f"--partition={name}"] if name else []


def hosts(nodes: str) -> tuple[str, ...]:
    """The names in Slurm's short form of a list of nodes, ``n[1-2]``."""
    return tuple(ask(["scontrol", "show", "hostnames", nodes]).split())


def require_possible(job: str) -> None:
    """Raise VtaxError when a job that waits asks for what its partition never gives.

    A controller that does not answer, such as one that starts again, has not refused anything.
    """
    try:
        why = ask(["squeue", "--noheader", f"--jobs={job}", "--format=%r"]).strip()
    except VtaxError:
        return
    if why in _NEVER:
        raise VtaxError(
            f"Slurm: {_NEVER[why]} (job {job}: {why})", "look at: scontrol show partition"
        )


def require_running(job: str) -> None:
    """Raise SessionOverError when Slurm has ended a job."""
    state = re.search(r"\bJobState=(\S+)", ask(["scontrol", "show", "job", job, "--oneliner"]))
    if state is None or state[1] != "RUNNING":
        why = state[1].lower() if state else "not known any more"
        raise SessionOverError(
            f"Slurm: job {job} is {why}, and vtax asks for nodes only once in a run",
            "give it more time=, or fewer repetitions",
        )


def job_facts(job: str) -> dict[str, str]:
    """What Slurm's accounting knows of a job, by Slurm's names; empty when it does not answer."""
    try:
        said = ask(["scontrol", "show", "job", job, "--oneliner"])
    except VtaxError:
        return {}
    found = dict(re.findall(r"(\S+?)=(\S*)", said))
    return {name: found[name] for name in _KEPT if found.get(name, "(null)") != "(null)"}


def reason(lines: Sequence[str]) -> str:
    """The line that says why a program of Slurm's failed."""
    said = [_ANSWERED.sub("", line.strip()) for line in lines if line.strip()]
    return said[-1] if said else "it says nothing"


def explain(lines: Sequence[str]) -> tuple[str, str | None] | None:
    """Why Slurm ended a step, and the remedy; None when it did not end one."""
    ended = next((found for line in lines if (found := _ENDED.search(line))), None)
    if ended is None:
        return None
    why = ended[1]
    if why is None:
        return "its Slurm job was cancelled", None
    return f"Slurm ended its job: {why.lower()}", _REMEDIES.get(why)
