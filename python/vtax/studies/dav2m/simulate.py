"""The simulations that the study is made of, as independent jobs for several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields
from multiprocessing import get_context

import polars as pl

from vtax.studies.dav2m import jobs
from vtax.studies.dav2m.data import Data
from vtax.studies.dav2m.setup import (
    CHOICES,
    EXIT_FACTORS,
    FOCUS,
    LOCALITY,
    MACHINE,
    PHASED,
    QUICK_EXIT_FACTORS,
    QUICK_TLB_FACTORS,
    SECOND_MACHINE,
    SURVEYED,
    TLB_FACTORS,
)
from vtax.studies.dav2m.transitions import transitions
from vtax.studies.model import Options, Progress

Frames = Mapping[str, pl.DataFrame]
"""Rows by the name of the frame of `Data` that they belong to."""


@dataclass(frozen=True, slots=True)
class Job:
    """A simulation and the figures that need it."""

    name: str
    figures: frozenset[str]
    work: Callable[..., Frames]
    arguments: tuple[object, ...]


def planned(options: Options) -> list[Job]:
    """The jobs that the options ask for, the long ones first."""
    wanted = options.figure
    return [job for job in _all(options) if wanted is None or wanted in job.figures]


def run(planned_jobs: Sequence[Job], progress: Progress) -> Data:
    """Runs the jobs on all CPUs that this process may use."""
    rows: dict[str, list[pl.DataFrame]] = {}
    workers = max(1, min(len(os.sched_getaffinity(0)), len(planned_jobs)))
    # Polars has threads, which a fork would not survive.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        futures = {pool.submit(job.work, *job.arguments): job for job in planned_jobs}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                for name, frame in future.result().items():
                    rows.setdefault(name, []).append(frame)
                progress(done, len(futures), futures[future].name)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return assembled(rows)


def assembled(rows: Mapping[str, Sequence[pl.DataFrame]]) -> Data:
    """One frame per name, in an order that does not depend on which job ended first."""
    frames = {}
    for name, parts in rows.items():
        whole = pl.concat(parts, how="diagonal_relaxed")
        keys = [key for key in _ORDER if key in whole.columns]
        frames[name] = whole.sort(keys, maintain_order=True)
    known = {item.name for item in fields(Data)}
    return Data(**{name: frame for name, frame in frames.items() if name in known})


_ORDER = (
    "machine",
    "benchmark",
    "page",
    "parameter",
    "setting",
    "exit_factor",
    "tlb_factor",
    "direction",
)


def _all(options: Options) -> Iterator[Job]:
    seed, quick = options.seed, options.quick
    for name in FOCUS:
        yield Job(f"switches of {name}", _set("6"), transitions, (name, seed, quick))
    for machine in (MACHINE, SECOND_MACHINE):
        figures = _set("4", "5", "9", "10", "11", "12") if machine == MACHINE else _set("10")
        for name in FOCUS:
            yield Job(f"{name} on {machine}", figures, jobs.focus, (name, machine, seed))
    for name in SURVEYED:
        yield Job(f"page sizes of {name}", _set("2"), jobs.pages, (name, seed))
    for name, page in LOCALITY:
        yield Job(f"locality of {name}", _set("3"), jobs.locality, (name, page, seed, quick))
    for name in PHASED:
        yield Job(f"DAV2M on {name}", _set("9", "choices"), jobs.choices, (name, None, seed))
        for choice in CHOICES:
            title = f"DAV2M on {name}: {choice.parameter} {choice.shown}"
            yield Job(title, _set("9", "choices"), jobs.choices, (name, choice, seed))
    yield Job("walks without caches", _set("4"), jobs.walks, (seed,))
    yield Job("machine presets", _set("9", "10"), jobs.machines, ())
    exits = QUICK_EXIT_FACTORS if quick else EXIT_FACTORS
    tlbs = QUICK_TLB_FACTORS if quick else TLB_FACTORS
    for exit_factor in exits:
        for tlb_factor in tlbs:
            for name in FOCUS:
                title = f"{name}, exit x{exit_factor:g}, TLB x{tlb_factor:g}"
                arguments = (name, exit_factor, tlb_factor, seed)
                yield Job(title, _set("sensitivity"), jobs.sensitivity, arguments)


def _set(*numbers: str) -> frozenset[str]:
    return frozenset(numbers)
