"""One workload under nested and under shadow paging on real KVM, in the lab.

A built-in workload of `vtax-agent` runs twice in one nested guest, which is switched from one
paging mode to the other while it runs. Any other command needs the host's tree; a guest that has
it mounted cannot be switched, so there each mode has an emulated host of its own.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from vtax import binaries
from vtax.environments.kvm_counters import REPORTED, metrics
from vtax.errors import VtaxError
from vtax.formats.exchange import Exchange
from vtax.workloads.base import Metric, Outcome, tail

if TYPE_CHECKING:
    from vtax.environments.agent import Finished
    from vtax.environments.lab.environment import Lab
    from vtax.environments.lab.machine import LabMachine

Mode = Literal["nested", "shadow"]
MODES: tuple[Mode, Mode] = ("nested", "shadow")

COUNTERS = REPORTED
AGENT_INSIDE = "/bin/vtax-agent"
LIST_TIMEOUT_S = 20.0
OUTPUT_BYTES = 1 << 20

Told = Callable[[str], None]
"""Is told in a few words what begins."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """One run of the workload in one mode."""

    outcome: Outcome
    counters: Mapping[str, float]
    """KVM's counts during the run; of a level (a gauge) the value at its end."""
    gauges: frozenset[str]
    guest_s: float | None
    """Time in guest code as the emulated host accounts it; None where it does not."""
    report: Mapping[str, Any] | None
    """What a built-in workload says of itself."""


@dataclass(frozen=True, slots=True)
class LabResult:
    """What `vtax paging lab` found."""

    workload: tuple[str, ...]
    stretches: Mapping[Mode, tuple[Stretch, ...]]
    switches: tuple[Mapping[str, Any], ...]
    """The reports of the switches in between; empty where each mode had its own host."""
    description: str

    def counter(self, mode: Mode, name: str) -> float | None:
        """The median over the repetitions; None when KVM does not have the counter."""
        values = [each.counters[name] for each in self.stretches[mode] if name in each.counters]
        return median(values) if values else None

    def guest_s(self, mode: Mode) -> float | None:
        """The median of the guest time; None where it is not known."""
        values = [each.guest_s for each in self.stretches[mode] if each.guest_s is not None]
        return median(values) if values else None

    def wall_s(self, mode: Mode) -> float:
        """The median of the workload's own wall clock time, in emulated seconds."""
        return median(each.outcome.wall_s for each in self.stretches[mode])

    def per_guest_second(self, mode: Mode, name: str) -> float | None:
        """A count per second of guest time; None for levels and where a part is missing."""
        stretches = self.stretches[mode]
        if any(name in each.gauges for each in stretches):
            return None
        rates = [
            each.counters[name] / each.guest_s
            for each in stretches
            if each.guest_s and name in each.counters
        ]
        return median(rates) if rates else None


def builtin_workloads() -> dict[str, str]:
    """Names of the agent's workloads and what each does."""
    agent = str(binaries.find("vtax-agent"))
    done = subprocess.run(
        [agent, "workload", "--list", "--json"],
        capture_output=True,
        text=True,
        timeout=LIST_TIMEOUT_S,
        check=False,
    )
    try:
        listed = json.loads(done.stdout)
        return {str(each["name"]): str(each["summary"]) for each in listed}
    except (ValueError, KeyError, TypeError):
        raise VtaxError(f"vtax-agent does not list its workloads: {tail(done.stderr)}") from None


def measure(
    argv: Sequence[str],
    lab: Lab,
    environment: Mapping[str, str],
    repetitions: int,
    timeout_s: float | None,
    warm_up: bool,
    told: Told,
) -> LabResult:
    """Run `argv` under both modes, `repetitions` times each, in alternating order.

    Raises VtaxError when the lab does not come up, a switch fails, or the workload fails.
    """
    own = argv[0] in builtin_workloads()
    kind = replace(lab, guest="builtin" if own else "host")
    line = [AGENT_INSIDE, "workload", *argv, "--json"] if own else list(argv)
    stretches: dict[Mode, list[Stretch]] = {mode: [] for mode in MODES}
    with tempfile.TemporaryDirectory(prefix="vtax-paging-lab-") as folder:
        opened = _switched(kind, Path(folder), told) if own else _apart(kind, Path(folder), told)
        with opened as bench:
            runner = _Runner(bench, line, environment, timeout_s, Path(folder))
            for number, mode in enumerate(order(repetitions)):
                if warm_up and runner.arrive(mode):
                    told(f"warming up under {mode} paging")
                    runner.run(mode, f"warm-up-{number}")
                told(f"running under {mode} paging")
                stretches[mode].append(runner.run(mode, f"run-{number}"))
    return LabResult(
        tuple(argv),
        {mode: tuple(each) for mode, each in stretches.items()},
        tuple(bench.reports),
        bench.description,
    )


def order(repetitions: int) -> list[Mode]:
    """Nested and shadow in turn, mirrored every second time: few switches, and drift cancels."""
    pairs = [MODES if number % 2 == 0 else MODES[::-1] for number in range(repetitions)]
    return [mode for pair in pairs for mode in pair]


@dataclass(slots=True)
class _Bench:
    """Machines by mode; `enter` makes a mode the one that the machine is in."""

    machine: Callable[[Mode], LabMachine]
    work: Callable[[Mode], Path]
    enter: Callable[[Mode], bool]
    reports: list[Mapping[str, Any]]
    description: str


@contextlib.contextmanager
def _switched(lab: Lab, folder: Path, told: Told) -> Iterator[_Bench]:
    """One guest, switched between the modes while it runs."""
    told("starting the lab")
    with _started(lab, folder / "work") as machine:
        reports: list[Mapping[str, Any]] = []
        mode: list[Mode] = ["nested" if lab.nested_paging else "shadow"]
        fresh = [True]

        def enter(to: Mode) -> bool:
            changed, fresh[0] = fresh[0], False
            if to == mode[0]:
                return changed
            told(f"switching the running guest to {to} paging")
            reports.append(machine.host.switch(to))
            mode[0] = to
            return True

        description = lab.description(machine.facts)
        yield _Bench(lambda _: machine, lambda _: folder / "work", enter, reports, description)


@contextlib.contextmanager
def _apart(lab: Lab, folder: Path, told: Told) -> Iterator[_Bench]:
    """One emulated host for each mode."""
    labs = {mode: replace(lab, nested_paging=mode == "nested") for mode in MODES}
    with contextlib.ExitStack() as stack:
        machines = {}
        for mode, each in labs.items():
            told(f"starting the lab with {mode} paging")
            machines[mode] = stack.enter_context(_started(each, folder / mode))
        fresh = set(MODES)

        def enter(to: Mode) -> bool:
            changed = to in fresh
            fresh.discard(to)
            return changed

        description = labs["nested"].description(machines["nested"].facts)
        yield _Bench(machines.__getitem__, lambda mode: folder / mode, enter, [], description)


def _started(lab: Lab, work: Path) -> LabMachine:
    from vtax.environments.base import allowed_cpus
    from vtax.environments.lab.machine import LabMachine

    work.mkdir(mode=0o700)
    return LabMachine(lab, work, allowed_cpus())


@dataclass(frozen=True, slots=True)
class _Runner:
    bench: _Bench
    argv: Sequence[str]
    environment: Mapping[str, str]
    timeout_s: float | None
    folder: Path

    def arrive(self, mode: Mode) -> bool:
        """Be in a mode; True when that is news to the guest."""
        return self.bench.enter(mode)

    def run(self, mode: Mode, name: str) -> Stretch:
        self.bench.enter(mode)
        exchange = Exchange(self.bench.work(mode), name)
        exchange.create({})
        machine = self.bench.machine(mode)
        before = machine.counters()
        finished = machine.run(self.argv, self.environment, name, self.timeout_s)
        counted = metrics(before, machine.counters())
        self._require_success(finished, exchange, mode)
        return _stretch(finished, counted, exchange)

    def _require_success(self, finished: Finished, exchange: Exchange, mode: Mode) -> None:
        outcome = finished.outcome
        # First, because a workload that is asked to end may do so in good order.
        if outcome.timed_out:
            raise VtaxError(
                f"the workload was ended after {self.timeout_s:.0f} s under {mode} paging",
                "give it more time (--timeout) or less to do",
            )
        if outcome.exit_code == 0:
            return
        said = tail(exchange.read_text("stderr", OUTPUT_BYTES)) or "it says nothing"
        how = f"code {outcome.exit_code}" if outcome.signal is None else f"signal {outcome.signal}"
        raise VtaxError(f"the workload ended with {how} under {mode} paging: {said}")


def _stretch(finished: Finished, counted: Sequence[Metric], exchange: Exchange) -> Stretch:
    values = {each.name.removeprefix("kvm."): each for each in counted}
    guest = values.pop("guest_s", None)
    report: Mapping[str, Any] | None = None
    with contextlib.suppress(VtaxError, ValueError):
        parsed = json.loads(exchange.read_text("stdout", OUTPUT_BYTES))
        report = parsed if isinstance(parsed, dict) and "workload" in parsed else None
    return Stretch(
        outcome=finished.outcome,
        counters={name: metric.value for name, metric in values.items()},
        gauges=frozenset(name for name, metric in values.items() if metric.unit == "pages"),
        guest_s=guest.value if guest else None,
        report=report,
    )
