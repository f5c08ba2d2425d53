"""`compare`: one workload in several environments, in one run folder."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from vtax import __version__, binaries, foreign_json
from vtax.analysis.audit import worst
from vtax.analysis.clocks import fact, seconds
from vtax.analysis.results import PROGRAM_TIMES
from vtax.environments.agent import OUTPUT_LIMIT_BYTES, NotBelievedError, unless_lost
from vtax.environments.base import MachineLike
from vtax.environments.host_facts import facts_here
from vtax.errors import VtaxError
from vtax.formats.exchange import Exchange
from vtax.formats.folder import RunFolder
from vtax.formats.model import (
    AuditCard,
    Better,
    Clock,
    ComparisonRecord,
    EnvironmentRecord,
    Failure,
    MetricReading,
    Sample,
)
from vtax.runner.allocation import MOST_ROUNDS, next_runs
from vtax.runner.audit import QUICK, audit
from vtax.runner.instruments import usable
from vtax.runner.matching import ComparedVariant, Observed, common_shape, differences
from vtax.runner.plan import Interleaving
from vtax.runner.repetition import Instrument, Repetition
from vtax.runner.runner import (
    Done,
    Keeper,
    Listener,
    Plan,
    Reboot,
    Runner,
    Starter,
    State,
    Step,
    Variant,
    boot,
)
from vtax.runner.samples import sample
from vtax.workloads.base import Reading, Workload
from vtax.workloads.metric_units import conversion
from vtax.workloads.one_unit import OneUnit
from vtax.workloads.outcomes import PROGRAM_METRICS

IDENTIFY_TIMEOUT_S = 60.0
USUAL_REPETITIONS = 5


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a campaign."""

    workload: Workload
    compared_variants: tuple[ComparedVariant, ...]
    environment: Mapping[str, str]
    """The complete environment of the workload's processes."""
    recorded_variables: Mapping[str, str]
    scrubbed_variables: Mapping[str, str]
    command_line: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    """What commands get that differs from a native start, in sentences."""
    repetitions: int = USUAL_REPETITIONS
    """The number of rounds with one run each."""
    until_percent: float | None = None
    """After those rounds, go on until every interval of the metric that decides is within plus or
    minus this."""
    warm_up: bool = True
    reboot: Reboot = "never"
    budget_s: float | None = None
    timeout_s: float | None = None
    max_output_bytes: int = OUTPUT_LIMIT_BYTES
    margin_percent: float = 2.0
    clock: Clock = "wall"
    seed: int = 0
    audit: bool = False
    """Whether to audit the environments' clocks before and after."""
    workdir: Path | None = None
    """Where command lines run; None: in the folder of their results."""
    instruments: Sequence[Instrument] = ()
    """Instruments; each is used where the environment has what it needs."""


@dataclass(slots=True)
class _Seen:
    """What the campaign learns about one environment while it runs."""

    variant: ComparedVariant
    observed: Observed | None = None
    notes: tuple[str, ...] = ()
    boots: list[float] = field(default_factory=list)
    left_processes: int = 0
    """The most processes that a command left running."""


class ComparisonCampaign(Keeper):
    """One campaign in one run folder."""

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        listener: Listener,
        start: Starter = boot,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._listener = listener
        self._seen = {each.label: _Seen(each) for each in settings.compared_variants}
        self._order = Interleaving(settings.seed)
        for _ in range(settings.repetitions):
            self._order.add(dict.fromkeys(self._seen, 1))
        self._shape = common_shape(settings.compared_variants)
        self._start, self._clock = start, clock
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self._run_id = secrets.token_hex(8)
        self._units = OneUnit()
        self._readings: dict[tuple[str, str], list[Reading]] = {}
        self.samples: list[Sample] = []
        self.failures: list[Failure] = []
        self.state: State = "running"
        self._before: Sequence[AuditCard] = ()
        self._after: Sequence[AuditCard] = ()

    def run(self) -> ComparisonRecord:
        """Run to the end, the budget's end, or an interrupt; finished repetitions are saved.

        If every environment's warm-up fails at the start, the run ends as `failed`.

        Raises VtaxError when an environment does not come up at all at the start, or when
        samples cannot be saved; everything that was started has ended by then.
        """
        try:
            if self._settings.audit:
                self._before = self._audit("before")
            plan = self._plan()
            self.state = Runner(plan, self, self._listener, self._start, self._clock).run()
            if self._settings.audit and self.samples:
                # The measurements are worth more than this audit.
                with contextlib.suppress(VtaxError):
                    self._after = self._audit("after")
        except KeyboardInterrupt:
            self.state = "interrupted"
        except BaseException:
            self.state = "failed"
            self._folder.clean_raw()
            with contextlib.suppress(VtaxError):
                self._folder.write_record(self.record())
            raise
        return self._finish()

    def _audit(self, when: str) -> Sequence[AuditCard]:
        """The report cards of all environments but the A/A control, which is its baseline again."""
        looked_at = {
            each.label: each.environment
            for each in self._settings.compared_variants
            if each.role != "control"
        }
        self._listener.extended(QUICK.steps * len(looked_at))
        return audit(
            looked_at,
            self._settings.environment,
            QUICK,
            self._listener,
            self._folder.raw(f"audit-{when}"),
            self._start,
        )

    def _stamped(self, sample: Sample) -> Sample:
        """The sample with the worse verdict of its environment's audits so far."""
        own = self._seen[sample.environment].variant
        label = own.baseline if own.role == "control" else own.label
        found = [card.verdict for card in (*self._before, *self._after) if card.spec == label]
        return replace(sample, audit=worst(found).value) if found else sample

    def _plan(self) -> Plan:
        """The plan of what to run. Raises MisuseError for a problem that does not fit."""
        settings = self._settings
        command = settings.workload.command(self._shape)
        command = replace(
            command,
            # Variables that the user asked to keep win over what the workload would set.
            environment={**command.environment, **settings.recorded_variables},
            timeout_s=settings.timeout_s or command.timeout_s,
        )
        variants = [
            Variant(
                each.label,
                each.environment,
                self._folder.raw(each.label),
                usable(settings.instruments, each.environment),
            )
            for each in settings.compared_variants
        ]

        def steps(order: Sequence[tuple[str, int]]) -> Sequence[Step]:
            return [
                Step(label, repetition, command, name, self._folder.instruments(label) / name)
                for label, repetition in order
                for name in [f"r{repetition:03d}"]
            ]

        return Plan(
            variants,
            steps(self._order.order),
            settings.environment,
            more=lambda: steps(self._next_round()),
            warm_up=settings.warm_up,
            reboot=settings.reboot,
            budget_s=settings.budget_s,
            matched=True,
            workdir=settings.workdir,
            max_output_bytes=settings.max_output_bytes,
        )

    def record(self) -> ComparisonRecord:
        """The state of the run as `run.json` keeps it."""
        settings = self._settings
        done = None if self.state == "running" else datetime.now(UTC).isoformat(timespec="seconds")
        return ComparisonRecord(
            vtax_version=__version__,
            command_line=settings.command_line,
            name=settings.workload.label(),
            started_utc=self._started,
            run_id=self._run_id,
            finished_utc=done,
            state=self.state,
            workload=settings.workload.name,
            workload_parameters=settings.workload.parameters(),
            environment_variables=dict(settings.recorded_variables),
            scrubbed_variables=dict(settings.scrubbed_variables),
            inputs=settings.inputs,
            repetitions=settings.repetitions,
            until_percent=settings.until_percent,
            reboot=settings.reboot,
            budget_s=settings.budget_s,
            margin_percent=settings.margin_percent,
            clock=settings.clock,
            seed=settings.seed,
            workdir=None if settings.workdir is None else str(settings.workdir),
            expected_metrics=self._expected(),
            better_from={
                name: metric.better_from or "given" for name, metric in self._units.first.items()
            },
            readings=tuple(
                MetricReading(
                    environment=label,
                    metric=metric,
                    matches=tuple(each.matches for each in found),
                    units=tuple(sorted({each.unit for each in found} - self._equal(metric, found))),
                )
                for (label, metric), found in self._readings.items()
            ),
            order=tuple(self._order.order),
            environments=tuple(self._environment_record(seen) for seen in self._seen.values()),
            audit_before=tuple(self._before),
            audit_after=tuple(self._after),
            failures=tuple(self.failures),
        )

    def _expected(self) -> tuple[tuple[str, str, Better], ...]:
        first = self._units.first
        found = tuple(
            (name, first[name].unit, first[name].better) if name in first else (name, unit, better)
            for name, unit, better in self._settings.workload.expected_metrics(self._shape)
        )
        lead = PROGRAM_TIMES[self._settings.clock]
        return found if any(name == lead for name, _, _ in found) else (*found, _time(lead))

    def _equal(self, metric: str, found: Sequence[Reading]) -> set[str]:
        """The printed units that are the metric's own unit under another name, and the absent
        unit."""
        own = self._units.first[metric].unit
        return {each.unit for each in found if not each.unit or conversion(each.unit, own) == 1}

    def _next_round(self) -> Sequence[tuple[str, int]]:
        """The runs of one more round where `until_percent` asks for one."""
        until = self._settings.until_percent
        if until is None or max(self._order.rounds.values()) + 1 >= MOST_ROUNDS:
            return ()
        added = self._order.add(next_runs(self.record(), self.samples, until))
        if added:
            self._listener.extended(len(added))
            self._folder.write_record(self.record())
        return added

    def _finish(self) -> ComparisonRecord:
        self.samples = list(map(self._stamped, self.samples))
        self._folder.finish(self.samples)
        record = self.record()
        self._folder.write_record(record)
        return record

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        seen = self._seen[variant.label]
        seen.boots.append(machine.boot_s)
        if seen.observed is None:
            libraries = {}
            for program in self._settings.workload.libraries():
                libraries.update(self._identify(variant.work, machine, program))
            limit_error = machine.hello.get("memory_limit_error")
            seen.observed = Observed(
                machine.facts, libraries, limit_error, variant.environment.is_guest
            )
            seen.notes = tuple(machine.launch.notes)

    def warmed(self, variant: Variant, machine: MachineLike) -> None:
        machine.refresh_facts()
        seen = self._seen[variant.label]
        if seen.observed is not None:
            seen.observed = replace(seen.observed, facts=machine.facts)

    def ready(self) -> None:
        self._folder.write_record(self.record())

    def read(self, this: Repetition) -> None:
        outcome = this.finished[0].outcome
        seen = self._seen[this.label]
        seen.left_processes = max(seen.left_processes, outcome.left_processes)
        if doubt := this.finished[0].doubt():
            raise NotBelievedError(f"not believed: {doubt}")
        found = self._settings.workload.metrics(outcome, this.exchange)
        this.metrics[:0] = self._units.same(found)

    def done(self, done: Done) -> None:
        name = self._settings.workload.name
        own = self._order.rounds[done.step.variant, done.step.repetition]
        metrics = done.repetition.metrics
        for metric in metrics:
            if metric.reading is not None:
                key = done.step.variant, metric.name
                self._readings.setdefault(key, []).append(metric.reading)
        samples = [sample(self._run_id, name, metric, done, own) for metric in metrics]
        samples += self._by_clock(samples[0])
        samples = list(map(self._stamped, samples))
        self._folder.append(samples)
        self.samples += samples

    def _by_clock(self, sample: Sample) -> Sequence[Sample]:
        """The program's time by the chosen clock, where the workload has no such metric."""
        clock = self._settings.clock
        lead = PROGRAM_TIMES[clock]
        hz = self._tsc_hz(self._seen[sample.environment])
        value = seconds(sample, clock, hz)
        if value is None or lead in {name for name, _, _ in PROGRAM_METRICS}:
            return ()
        name, unit, better = _time(lead)
        return [replace(sample, metric=name, unit=unit, better=better, value=value, ran_s=None)]

    @cached_property
    def _host_facts(self) -> Mapping[str, Any]:
        return facts_here()

    def _tsc_hz(self, seen: _Seen) -> float | None:
        if seen.variant.environment.own_counter:
            return fact(seen.observed.facts, "tsc_hz") if seen.observed else None
        return fact(self._host_facts, "tsc_hz")

    def failed(self, step: Step, error: VtaxError) -> None:
        failure = Failure(
            environment=step.variant,
            repetition=step.repetition,
            message=str(error),
            believed=not isinstance(error, NotBelievedError),
        )
        self.failures.append(failure)
        with contextlib.suppress(VtaxError):
            self._folder.write_record(self.record())

    def _identify(self, work: Path, machine: MachineLike, program: str) -> dict[str, str]:
        """Which BLAS the program gets inside the machine; empty where unknown."""
        exchange = Exchange(work, f"identify-{Path(program).name}")
        exchange.create({})
        tool = str(binaries.find("vtax-dgemm"))
        own = Path(program).name == "vtax-dgemm"
        path = shutil.which(program, path=self._settings.environment.get("PATH")) or program
        path = str((self._settings.workdir or Path()) / path)
        argv = [tool, "--identify"] if own else [tool, "--identify-for", path]
        with unless_lost(ValueError):
            machine.run(argv, self._settings.environment, exchange.name, IDENTIFY_TIMEOUT_S)
            return _library(foreign_json.parse_object(exchange.read_text("stdout", 1 << 20)))
        return {}

    def _environment_record(self, seen: _Seen) -> EnvironmentRecord:
        variant, observed = seen.variant, seen.observed
        facts = dict(observed.facts) if observed else {}
        baseline = self._seen[variant.baseline].observed if variant.baseline else None
        differ = differences(baseline, observed) if baseline and observed else ()
        return EnvironmentRecord(
            label=variant.label,
            spec=variant.spec,
            role=variant.role,
            baseline=variant.baseline,
            description=variant.environment.description(facts),
            cpus=variant.environment.shape().cpus,
            memory_bytes=variant.environment.memory_limit(),
            facts=facts,
            libraries=dict(observed.libraries) if observed else {},
            boot_s=tuple(seen.boots),
            tsc_hz=self._tsc_hz(seen),
            emulated_clock=variant.environment.emulates_clock(),
            host_clock=variant.environment.has_host_clock(),
            left_processes=seen.left_processes,
            differences=differ,
            notes=((variant.note,) if variant.note else ()) + seen.notes,
        )


def _time(metric: str) -> tuple[str, str, Better]:
    return metric, "s", "lower"


def _library(answer: Mapping[str, Any]) -> dict[str, str]:
    """`vtax-dgemm --identify` as name to text: path, version and the kernels chosen.

    The version is cut to its first two words, e.g. ``OpenBLAS 0.3.21``: how it was built follows
    them. The whole answer stays in the run's raw folder.
    """
    library = answer.get("library")
    if not isinstance(library, Mapping):
        return {}
    version, core = str(library.get("version") or ""), str(library.get("core") or "")
    details = [text for text in (" ".join(version.split()[:2]), core) if text]
    text = str(library.get("path")) + (f" ({', '.join(details)})" if details else "")
    return {str(library.get("requested", "BLAS")): text}
