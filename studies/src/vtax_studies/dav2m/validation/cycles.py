"""Predicted cycles beside measured time, for one program in several settings.

Settings differ in their working set and in the size of their pages, so their times differ by what
translation costs. The ratio of two settings needs no clock rate and no counter.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations, product
from statistics import median
from typing import Any

import polars as pl

from vtax import paging
from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.formats.scratch import scratch
from vtax.core.runner.runner import Done, Keeper, Plan, Runner, Step, Variant
from vtax.environments.host_facts import facts_here
from vtax.workloads.base import Command
from vtax.workloads.builtin import line
from vtax.workloads.variables import base_environment
from vtax_studies.dav2m.validation.tracing import trace_into
from vtax_studies.measuring import Counting, ready
from vtax_studies.rule import Judgement, Missing, some, wrong

NAME = "cycles"
"""The name that `--only` knows for these settings."""
REPETITIONS = 7
TOUCHES = 20_000_000
"""In a measured run: 0.05 s and more."""
TRACED = (500_000, 1_500_000)
"""In two traces, whose difference is without the beginning and the end of a program."""
TRACED_MEMORY = "1G"
HOST_PAGES = ("2M", "4K")
"""What backs this machine's memory when it is a guest: unknown, so both are predicted."""
BOUND = 0.25
"""The least error of the models in Mosalloc (Agbarya and others, MICRO 2020) that rest on one or
two runs."""
_MACHINES = {
    "zen4": ("AuthenticAMD", 25, range(0x10, 0x20)),
    "sapphirerapids": ("GenuineIntel", 6, range(0x8F, 0x90)),
}
"""Vendor, family and models of processors that have a description and a model of their own (Linux,
intel-family.h and cpu/amd.c)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A program with a working set and a size of pages."""

    program: str
    memory: str
    huge: bool

    @property
    def name(self) -> str:
        return f"{self.program} {self.memory} {'2M' if self.huge else '4K'}"

    def argv(self, touches: int, agent: str) -> list[str]:
        words = [self.program, "--json", "--mem", self.memory, "--count", str(touches)]
        return line([*words, *(["--huge"] if self.huge else [])], agent)


SETTINGS = [
    Setting(*each)
    for each in product(("random-touch", "sequential-touch"), ("16M", "64M", "256M"), (False, True))
]
SCHEMA: Mapping[str, type[pl.DataType] | pl.DataType] = {
    "program": pl.String,
    "memory": pl.String,
    "huge": pl.Boolean,
    **{f"predicted_{page}": pl.Float64 for page in HOST_PAGES},
    "measured": pl.List(pl.Float64),
}
"""A row per setting: `predicted_` in cycles per touch by the page size of the host, `measured` in
ns per touch in each repetition."""


def described(facts: Mapping[str, Any]) -> tuple[str, str]:
    """The machine of the model that this processor is, and the mode in which it walks, by the facts
    of vtax-agent. Raises VtaxError where no machine is this processor."""
    cpu = facts["cpu"]
    vendor, family, model = cpu["vendor"], cpu["family"], cpu["model_number"]
    for name, (own, number, models) in _MACHINES.items():
        if (vendor, family) == (own, number) and model in models:
            return name, "nested" if facts["virtualization"]["kind"] else "native"
    raise VtaxError(
        f"no machine of the model is this processor ({vendor}, family {family}, model {model})",
        f"take one that is: {', '.join(_MACHINES)}",
    )


def measure_cycles(shown: Counting) -> pl.DataFrame:
    """The rows of SCHEMA.

    Raises VtaxError where nothing can be predicted or measured.
    """
    machine, mode = described(facts_here())
    measured = _measured(shown)
    rows = []
    for each in SETTINGS:
        shown.running(f"tracing {each.name}", 0)
        few, many = (_traced(each, count, machine, mode) for count in TRACED)
        per_touch = {page: (many[page] - few[page]) / (TRACED[1] - TRACED[0]) for page in few}
        rows.append(
            {"program": each.program, "memory": each.memory, "huge": each.huge}
            | {f"predicted_{page}": cycles for page, cycles in per_touch.items()}
            | {"measured": measured[each.name]}
        )
    return pl.DataFrame(rows, schema=SCHEMA)


def steps() -> int:
    """How often `measure_cycles` says what it does."""
    return len(SETTINGS) * (1 + REPETITIONS)


def _traced(setting: Setting, touches: int, machine: str, mode: str) -> Mapping[str, float]:
    """Cycles of the whole trace by the host's page size."""
    with scratch("validate") as folder:
        file = folder / "setting.vtrace"
        trace_into(file, partial(setting.argv, touches), TRACED_MEMORY, warm_up=False)
        return {
            page: float(paging.simulate(file, machine, (mode,), host_page=page).modes["cycles"][0])
            for page in HOST_PAGES
        }


@dataclass(slots=True)
class _Kept(Keeper):
    found: dict[str, list[float]] = field(default_factory=dict)

    def done(self, done: Done) -> None:
        code = done.repetition.finished[0].outcome.exit_code
        if code != 0:
            raise VtaxError(f"{done.step.folder} ended with code {code}", "run it by hand")
        said = foreign_json.parse_object(done.repetition.exchange.read_text("stdout").encode())
        spent = said["user_s"] + said["system_s"]
        name = done.step.folder.rpartition("-")[0]
        self.found.setdefault(name, []).append(1e9 * spent / said["operations"])

    def failed(self, step: Step, error: VtaxError) -> None:
        raise error


def _measured(shown: Counting) -> Mapping[str, Sequence[float]]:
    environment = ready("native")
    with scratch("validate") as folder:
        variant = Variant("native", environment, folder, ())
        steps = [
            Step("native", number, Command(tuple(each.argv(TOUCHES, environment.agent_inside()))),
                 f"{each.name}-{number}", folder / f"{each.name}-{number}")
            for number in range(REPETITIONS) for each in SETTINGS
        ]  # fmt: skip
        kept = _Kept()
        Runner(Plan([variant], steps, base_environment(os.environ)), kept, shown).run()
    return kept.found


def ratios(cycles: pl.DataFrame) -> Iterator[tuple[str, float, float, Sequence[float]]]:
    """Per program and working set, 4K pages' time over that of huge pages: the name, predicted with
    host pages of 2M and of 4K, and measured in each repetition."""
    for (program, memory), rows in cycles.group_by("program", "memory", maintain_order=True):
        small, huge = (rows.filter(pl.col("huge") == each).row(0, named=True) for each in (0, 1))
        predicted = (small[f"predicted_{page}"] / huge[f"predicted_{page}"] for page in HOST_PAGES)
        measured = [a / b for a, b in zip(small["measured"], huge["measured"], strict=True)]
        yield (f"{program} {memory}", *predicted, measured)


def predicts_ratios(cycles: pl.DataFrame) -> Judgement:
    """Whether each ratio of 4K to huge pages is predicted within BOUND."""
    errors = {name: own / median(found) - 1 for name, own, _, found in ratios(cycles)}
    some(errors)
    far = [name for name, error in errors.items() if abs(error) > BOUND]
    ours = f"errors of {min(errors.values()):+.0%} to {max(errors.values()):+.0%}"
    reason = f"4K over huge pages, host pages of 2M assumed; holds within {BOUND:.0%}."
    return Judgement(ours, not far, reason + wrong(far))


def predicts_order(cycles: pl.DataFrame) -> Judgement:
    """Whether settings whose measurements do not overlap are predicted in the same order."""
    right, far = 0, []
    for a, b in combinations(cycles.iter_rows(named=True), 2):
        low, high = sorted((a, b), key=lambda row: median(row["measured"]))
        if max(low["measured"]) >= min(high["measured"]):
            continue
        if low["predicted_2M"] < high["predicted_2M"]:
            right += 1
        else:
            far.append(f"{_name(low)} before {_name(high)}")
    if not right and not far:
        raise Missing("all measurements overlap")
    reason = "Pairs of settings whose measured times do not overlap, host pages of 2M assumed."
    return Judgement(f"{right} of {right + len(far)} pairs", not far, reason + wrong(far))


def _name(row: Mapping[str, object]) -> str:
    return Setting(str(row["program"]), str(row["memory"]), bool(row["huge"])).name
