"""One workload under nested and under shadow paging on real KVM: two variants, KVM's counters.

A built-in workload of `vtax-agent` runs in one guest, which is switched from one paging mode to
the other while it runs. Any other command needs this machine's files; a guest that has them
mounted cannot be switched, so there each mode has a machine of its own.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.formats.scratch import scratch
from vtax.core.runner.instruments.kvm_counters import Counting
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Keeper, Listener, Plan, Runner, Step, Variant
from vtax.environments.base import MachineLike, PagingEnvironment, require
from vtax.environments.capabilities import Switch
from vtax.environments.hiding import Shown
from vtax.environments.kvm_counters import REPORTED
from vtax.paging.lab.analysis import MODES, Mode, PagingModes, Run
from vtax.workloads.base import Command, tail
from vtax.workloads.builtin import builtin_workloads

OUTPUT_BYTES = 1 << 20


def measure(
    argv: Sequence[str],
    environment: PagingEnvironment,
    variables: Mapping[str, str],
    repetitions: int,
    timeout_s: float | None,
    warm_up: bool,
    listener: Listener,
) -> PagingModes:
    """Run `argv` under both modes, `repetitions` times each, in alternating order.

    If the environment cannot do shadow paging, only nested paging is measured.

    Raises VtaxError when a machine does not come up, a switch fails, or the workload fails.
    """
    keeper = _Keeper(timeout_s)
    obstacle = environment.paging_obstacle("shadow")
    modes = MODES if obstacle is None else MODES[:1]
    with scratch("paging") as folder:
        if argv[0] in builtin_workloads():
            own = environment.for_builtin()
            require(own, Switch, "switching a running guest")
            line = (own.agent_inside(), "workload", *argv, "--json")
            variants = _switched(own, folder, keeper.switches)[: len(modes)]
        else:
            line = tuple(argv)
            variants = _apart(environment.with_shown(Shown(Path.cwd())), folder)[: len(modes)]
        command = Command(line, timeout_s=timeout_s)
        steps = [
            Step(mode, number // len(modes), command, f"run-{number}", folder / f"out-{number}")
            for number, mode in enumerate(each for each in order(repetitions) if each in modes)
        ]
        Runner(Plan(variants, steps, variables, warm_up=warm_up), keeper, listener).run()
    runs = {mode: tuple(each) for mode, each in keeper.runs.items()}
    return PagingModes(
        tuple(argv), runs, tuple(keeper.switches), keeper.description, REPORTED, obstacle
    )


def order(repetitions: int) -> list[Mode]:
    """Nested and shadow in turn, mirrored every second time: few switches, and drift cancels."""
    pairs = [MODES if number % 2 == 0 else MODES[::-1] for number in range(repetitions)]
    return [mode for pair in pairs for mode in pair]


def _switched(
    environment: PagingEnvironment, folder: Path, reports: list[Mapping[str, Any]]
) -> list[Variant]:
    """One guest, switched between the modes while it runs."""
    work = _made(folder / "work")
    return [
        Variant(mode, environment, work, (Counting(),), functools.partial(_enter, mode, reports))
        for mode in MODES
    ]


def _enter(mode: Mode, reports: list[Mapping[str, Any]], machine: MachineLike) -> bool:
    switch = machine.offer(Switch)
    if switch is None or switch.mode() == mode:
        return False
    reports.append(switch.to(mode))
    return True


def _apart(environment: PagingEnvironment, folder: Path) -> list[Variant]:
    """One machine for each mode."""
    return [
        Variant(mode, environment.with_paging(mode), _made(folder / mode), (Counting(),))
        for mode in MODES
    ]


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    return folder


@dataclass(slots=True)
class _Keeper(Keeper):
    timeout_s: float | None
    runs: dict[Mode, list[Run]] = field(default_factory=lambda: {mode: [] for mode in MODES})
    switches: list[Mapping[str, Any]] = field(default_factory=list)
    description: str = ""

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        self.description = self.description or variant.environment.description(machine.facts)

    def read(self, this: Repetition) -> None:
        outcome = this.finished[0].outcome
        where = f"under {this.label} paging"
        # This comes first, because a workload that is asked to end may end with a code of success.
        if outcome.timed_out:
            raise VtaxError(
                f"the workload was ended after {self.timeout_s:.0f} s {where}",
                "give it more time (--timeout) or less to do",
            )
        if outcome.exit_code == 0:
            return
        said = tail(this.exchange.read_text("stderr", OUTPUT_BYTES)) or "it says nothing"
        how = f"code {outcome.exit_code}" if outcome.signal is None else f"signal {outcome.signal}"
        raise VtaxError(f"the workload ended with {how} {where}: {said}")

    def done(self, done: Done) -> None:
        this = done.repetition
        values = {each.name.removeprefix("kvm."): each for each in this.metrics}
        guest = values.pop("guest_s", None)
        run = Run(
            wall_s=this.finished[0].outcome.wall_s,
            counters={name: metric.value for name, metric in values.items()},
            gauges=frozenset(name for name, metric in values.items() if metric.unit == "pages"),
            guest_s=guest.value if guest else None,
            report=_report(this),
        )
        next(runs for mode, runs in self.runs.items() if mode == this.label).append(run)


def _report(this: Repetition) -> Mapping[str, Any] | None:
    with contextlib.suppress(VtaxError, ValueError):
        parsed = foreign_json.parse_object(this.exchange.read_text("stdout", OUTPUT_BYTES))
        return parsed if "workload" in parsed else None
    return None
