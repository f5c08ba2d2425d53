"""`compare`: one workload in several environments, in one run folder."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from vtax.compare.request import ComparisonRequest
from vtax.compare.sweep.parameters import said
from vtax.core import binaries, foreign_json
from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.formats.model import (
    AuditCard,
    AuditVerdict,
    Better,
    ComparisonRecord,
    EnvironmentRecord,
    Failure,
    MetricReading,
    Sample,
)
from vtax.core.runner.campaign import StagedCampaign
from vtax.core.runner.duet import swapped
from vtax.core.runner.instruments import usable
from vtax.core.runner.matching import ComparedVariant, Observed, differences
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Plan, State, Step, Variant
from vtax.core.runner.samples import sample
from vtax.core.statistics.clocks import fact, seconds
from vtax.core.statistics.results import PROGRAM_TIMES
from vtax.environments.agent import NotBelievedError, unless_lost
from vtax.environments.base import MachineLike
from vtax.environments.capabilities import Nodes
from vtax.environments.host_facts import facts_here
from vtax.workloads.base import Reading
from vtax.workloads.metric_units import conversion
from vtax.workloads.one_unit import OneUnit
from vtax.workloads.outcomes import PROGRAM_METRICS

IDENTIFY_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Seen:
    """What the campaign learns about one environment while it runs."""

    variant: ComparedVariant
    observed: Observed | None = None
    notes: tuple[str, ...] = ()
    boots: list[float] = field(default_factory=list)
    left_processes: int = 0
    """The most processes that a command left running."""
    absent: Counter[str] = field(default_factory=Counter)
    """In how many repetitions an instrument lacks values, by the reason."""


@dataclass(eq=False)
class ComparisonCampaign(StagedCampaign[ComparisonRequest, ComparisonRecord, int]):
    """The workload in every environment, in rounds; what a step is for is its round."""

    keeps_empty_table: ClassVar[bool] = True

    failures: list[Failure] = field(default_factory=list, init=False)
    _seen: dict[str, Seen] = field(init=False)
    _run_id: str = field(default_factory=lambda: secrets.token_hex(8), init=False)
    _units: OneUnit = field(default_factory=OneUnit, init=False)
    _readings: dict[tuple[str, str], list[Reading]] = field(default_factory=dict, init=False)
    _before: Sequence[AuditCard] = field(default=(), init=False)
    _after: Sequence[AuditCard] = field(default=(), init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._seen = {each.label: Seen(each) for each in self.request.compared_variants}

    @property
    def found(self) -> bool:
        return bool(self.samples)

    @property
    def first_failure(self) -> str | None:
        return next((f"{each.environment}: {each.message}" for each in self.failures), None)

    @property
    def printed(self) -> Path:
        return next((self.folder.raw(each.environment) for each in self.failures), super().printed)

    def _measure(self) -> State:
        """Run every stage, between two audits if that is asked for.

        If every environment's warm-up fails at the start, the run ends as `failed`.
        """
        if self.request.audit:
            self._before = self._audit("before")
        state = super()._measure()
        if self.request.audit and self.samples:
            # The measurements are worth more than this audit.
            with contextlib.suppress(VtaxError):
                self._after = self._audit("after")
        return state

    def _audit(self, when: str) -> Sequence[AuditCard]:
        """The report cards of all environments but the A/A control, which is its baseline again."""
        # What judges an audit imports numpy, which takes long before the first run.
        from vtax.audit.measuring import QUICK, audit

        looked_at = {
            each.label: each.environment
            for each in self.request.compared_variants
            if each.role != "control"
        }
        folder = self.folder.raw(f"audit-{when}")
        return audit(looked_at, self.request.variables, QUICK, self.listener, folder, self.start)

    def _stamped(self, sample: Sample) -> Sample:
        """The sample with what its round drew, and the worse verdict of its environment's audits so
        far."""
        if (drawing := self.request.drawing) and sample.round is not None:
            sample = replace(sample, drawn=said(drawing.values(sample.round)))
        own = self._seen[sample.environment].variant
        label = own.baseline if own.role == "control" else own.label
        found = [card.verdict for card in (*self._before, *self._after) if card.spec == label]
        return replace(sample, audit=AuditVerdict.worst(found).value) if found else sample

    def _ending(self) -> None:
        self.samples = list(map(self._stamped, self.samples))

    def _plan(self) -> Plan:
        request = self.request
        return replace(
            super()._plan(),
            warm_up=request.warm_up,
            reboot=request.reboot,
            max_output_bytes=request.max_output_bytes,
            duet=bool(request.places),
        )

    def _variants(self) -> Sequence[Variant]:
        return [
            Variant(
                each.label,
                each.environment,
                self.folder.raw(each.label),
                usable(self.request.instruments, each.environment),
            )
            for each in self.request.compared_variants
        ]

    def _stages(self) -> Iterator[Sequence[Step]]:
        """The rounds that were asked for, then a round at a time where `until_percent` asks for
        it."""
        for _ in range(self.request.repetitions):
            self._order.add(dict.fromkeys(self._seen, 1))
        yield list(map(self._repeated, self._order.order))
        while added := self._next_round():
            yield list(map(self._repeated, added))

    def _repeated(self, own: tuple[str, int]) -> Step:
        label, number = own
        name = f"r{number:03d}"
        out = self.folder.instruments(label) / name
        in_round = self._order.rounds[own]
        command, places = self.request.command_of(in_round), self.request.places
        at = (list(self._seen).index(label) + swapped(self.request.seed, in_round)) % 2
        cpus = places[at] if places else ()
        return self._step(
            label, number, command, name, out, in_round, own_round=in_round, cpus=cpus
        )

    def record(self) -> ComparisonRecord:
        request, drawing = self.request, self.request.drawing
        return ComparisonRecord(
            **self._head(),
            name=request.name,
            run_id=self._run_id,
            state=self.state,
            workload=request.workload.name,
            workload_parameters=request.workload.parameters()
            | ({"words": list(drawing.words)} if drawing else {}),
            drawn=drawing.sources if drawing else {},
            environment_variables=dict(request.recorded_variables),
            scrubbed_variables=dict(request.scrubbed_variables),
            inputs=request.inputs,
            repetitions=request.repetitions,
            until_percent=request.until_percent,
            reboot=request.reboot,
            budget_s=request.budget_s,
            margin_percent=request.margin_percent,
            clock=request.clock,
            duet=bool(request.places),
            seed=request.seed,
            workdir=None if request.workdir is None else str(request.workdir),
            commit=request.commit,
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
            for name, unit, better in self.request.workload.expected_metrics(self.request.shape)
        )
        lead = PROGRAM_TIMES[self.request.clock]
        return found if any(name == lead for name, _, _ in found) else (*found, _time(lead))

    def _equal(self, metric: str, found: Sequence[Reading]) -> set[str]:
        """The printed units that are the metric's own unit under another name, and the absent
        unit."""
        own = self._units.first[metric].unit
        return {each.unit for each in found if not each.unit or conversion(each.unit, own) == 1}

    def _next_round(self) -> Sequence[tuple[str, int]]:
        """The runs of one more round where `until_percent` asks for one."""
        until = self.request.until_percent
        if until is None:
            return ()
        # This imports numpy, as an audit does.
        from vtax.compare.allocation import MOST_ROUNDS, next_runs

        if max(self._order.rounds.values()) + 1 >= MOST_ROUNDS:
            return ()
        runs = next_runs(self.record(), self.samples, until)
        if runs and self.request.places:
            runs = dict.fromkeys(self._seen, 1)
        return self._order.add(runs)

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        seen = self._seen[variant.label]
        seen.boots.append(machine.boot_s)
        if seen.observed is None:
            libraries = {}
            for program in self.request.workload.libraries():
                libraries.update(self._identify(variant.work, machine, program))
            limit_error = machine.hello.get("memory_limit_error")
            seen.observed = Observed(
                machine.facts, libraries, limit_error, variant.environment.is_guest
            )
            nodes = machine.offer(Nodes)
            seen.notes = (*machine.launch.notes, *(nodes.notes() if nodes else ()))

    def warmed(self, variant: Variant, machine: MachineLike) -> None:
        machine.refresh_facts()
        seen = self._seen[variant.label]
        if seen.observed is not None:
            seen.observed = replace(seen.observed, facts=machine.facts)

    def read(self, this: Repetition) -> None:
        outcome = this.finished[0].outcome
        seen = self._seen[this.label]
        seen.left_processes = max(seen.left_processes, outcome.left_processes)
        if doubt := this.finished[0].doubt():
            raise NotBelievedError(f"not believed: {doubt}")
        workload = self.request.workload_of(self._point(this))
        found = workload.metrics(outcome, this.exchange)
        this.metrics[:0] = self._units.same(found)

    def done(self, done: Done) -> None:
        name, own = self.request.workload.name, self._point(done.step)
        self._seen[done.step.variant].absent.update(dict.fromkeys(done.repetition.absent, 1))
        metrics = done.repetition.metrics
        for metric in metrics:
            if metric.reading is not None:
                key = done.step.variant, metric.name
                self._readings.setdefault(key, []).append(metric.reading)
        samples = [sample(self._run_id, name, metric, done, own) for metric in metrics]
        samples += self._by_clock(samples[0])
        self._keep(list(map(self._stamped, samples)))

    def _by_clock(self, sample: Sample) -> Sequence[Sample]:
        """The program's time by the chosen clock, where the workload has no such metric."""
        clock = self.request.clock
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

    def _tsc_hz(self, seen: Seen) -> float | None:
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
            self._save()

    def _identify(self, work: Path, machine: MachineLike, program: str) -> dict[str, str]:
        """Which BLAS the program gets inside the machine; empty where unknown."""
        exchange = Exchange(work, f"identify-{Path(program).name}")
        exchange.create({})
        tool = str(binaries.find("vtax-dgemm"))
        own = Path(program).name == "vtax-dgemm"
        path = shutil.which(program, path=self.request.variables.get("PATH")) or program
        path = str((self.request.workdir or Path()) / path)
        argv = [tool, "--identify"] if own else [tool, "--identify-for", path]
        with unless_lost(ValueError):
            machine.run(argv, self.request.variables, exchange.name, IDENTIFY_TIMEOUT_S)
            return _library(foreign_json.parse_object(exchange.read_text("stdout", 1 << 20)))
        return {}

    def _environment_record(self, seen: Seen) -> EnvironmentRecord:
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
            absent=dict(seen.absent),
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
