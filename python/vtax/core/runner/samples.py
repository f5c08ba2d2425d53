"""The row of `samples.parquet` that a metric of a finished step makes."""

from __future__ import annotations

from vtax.core.formats.model import Sample
from vtax.core.runner.duet import overlap
from vtax.core.runner.runner import Done
from vtax.environments.capabilities import Nodes
from vtax.workloads.base import Metric


def sample(run_id: str | None, workload: str, metric: Metric, done: Done, own_round: int) -> Sample:
    """The row of a metric; `own_round` is the round of the experiment."""
    finished = done.repetition.finished[0]
    outcome = finished.outcome
    nodes = done.repetition.machine.offer(Nodes)
    beside = overlap(finished, done.beside) if done.beside else None
    return Sample(
        environment=done.step.variant,
        workload=workload,
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        value=metric.value,
        repetition=done.step.repetition,
        boot=done.boot,
        position=done.position,
        round=own_round,
        wall_s=outcome.wall_s,
        cpu_s=outcome.cpu_s,
        user_s=outcome.user_s,
        steal_s=outcome.steal_s,
        host_wall_s=finished.host_wall_s,
        told_wall_s=finished.told.wall_s if finished.by_host else None,
        max_rss_bytes=outcome.max_rss_bytes,
        minor_faults=outcome.minor_faults,
        major_faults=outcome.major_faults,
        voluntary_switches=outcome.voluntary_switches,
        involuntary_switches=outcome.involuntary_switches,
        ran_s=metric.ran_s,
        tsc_ticks=outcome.tsc_ticks,
        run_id=run_id,
        node=nodes.current() if nodes else None,
        cpus=",".join(map(str, done.step.cpus)) or None,
        beside_s=beside.seconds if beside else None,
        later_s=beside.later_s if beside else None,
    )
