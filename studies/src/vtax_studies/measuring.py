"""What studies that measure on this machine share: their environments, campaigns and progress."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from vtax import environments
from vtax.core import binaries
from vtax.core.errors import VtaxError
from vtax.core.formats.folder import REPORT, RunFolder
from vtax.core.formats.scratch import scratch
from vtax.core.page import render_html
from vtax.core.runner.campaign import Campaign
from vtax.core.runner.runner import Listener
from vtax.core.units import format_bytes
from vtax.environments import Environment
from vtax.environments.base import allowed_cpus, host_memory_bytes
from vtax.memory.record import MemoryRecord
from vtax.place.record import PlaceRecord
from vtax.tune.record import TuneRecord
from vtax.workloads.variables import base_environment
from vtax_studies.model import Progress

RUNS = "runs"
"""The folder of runs, below the study's folder."""

K = TypeVar("K")
S = TypeVar("S")
R = TypeVar("R", MemoryRecord, TuneRecord, PlaceRecord)


@dataclass(slots=True)
class Counting(Listener):
    """Counts the steps that have begun."""

    total: int
    progress: Progress
    count: int = 0

    def extended(self, steps: int) -> None:
        self.total += steps

    def running(self, label: str, repetition: int) -> None:
        self.count += 1
        self.progress(self.count, self.total, label)


def ready(spec: str) -> Environment:
    """The environment. Raises VtaxError where it cannot be made."""
    environment = environments.build(spec)
    environment.check()
    return environment


def usable(specs: Mapping[K, str], left_out: dict[K, str]) -> dict[K, Environment]:
    """The environments that can be made; `left_out` gets the reason for each of the others."""
    found = {}
    for name, spec in specs.items():
        try:
            found[name] = ready(spec)
        except VtaxError as error:
            left_out[name] = str(error)
    return found


def variables() -> dict[str, str]:
    """The variables of commands, with vtax's own programs on the PATH."""
    found = dict(base_environment(os.environ))
    return found | {"PATH": binaries.on_path(found)}


@contextmanager
def run_folders(study: Path | None) -> Iterator[Path]:
    """The folder for run folders. If the study has no folder, the run folders are removed."""
    if study is not None:
        yield study / RUNS
        return
    with scratch("study") as folder:
        yield folder


def carried_out(
    make: Callable[[S, RunFolder, Listener], Campaign[Any, R]],
    request: S,
    parent: Path,
    verb: str,
    shown: Counting,
) -> R:
    """Run a campaign in a new run folder below `parent` and return its record.

    The report is written too, also after a part of the campaign. Raises KeyboardInterrupt after
    Ctrl-C, and VtaxError when nothing was measured.
    """
    folder = RunFolder.create(parent, verb)
    campaign = make(request, folder, shown)
    record = campaign.run()
    if campaign.found:
        result = import_module(f"vtax.{record.verb}.page")
        render_html.write(result.page(record), folder.path / REPORT)
    if record.state == "interrupted":
        raise KeyboardInterrupt
    if not campaign.found:
        raise VtaxError(campaign.first_failure or "no run was made")
    return record


def nothing_measured(left_out: Mapping[K, str]) -> VtaxError:
    """The error of a study without any result: the first reason says why."""
    reason = next(iter(left_out.values()), "no load and no environment")
    return VtaxError(f"nothing could be measured: {reason}", "run 'vtax doctor'")


def machine() -> list[tuple[str, str]]:
    """Processor, kernel and load, for the reader. Load is that before this call."""
    load = os.getloadavg()[0]
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    cpus = len(allowed_cpus())
    return [
        ("Machine", f"{model}, {cpus} CPUs, {format_bytes(host_memory_bytes())}"),
        ("Kernel", f"Linux {platform.release()}"),
        ("Load", f"{load:.1f} before it began (1 minute)"),
    ]
