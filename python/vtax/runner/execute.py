"""Running a campaign: boot, warm up, measure in the planned order, save after each repetition."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from vtax import __version__, binaries
from vtax.environments.agent import Finished, MachineLostError
from vtax.environments.base import Environment, MachineLike, allowed_cpus
from vtax.errors import VtaxError
from vtax.formats.exchange import Exchange
from vtax.formats.folder import RunFolder
from vtax.formats.model import EnvironmentRecord, Failure, RunRecord, Sample
from vtax.runner.instruments import chosen, usable
from vtax.runner.matching import Entrant, Observed, common_shape, differences
from vtax.runner.plan import interleaved
from vtax.runner.repetition import Repetition, run
from vtax.workloads.base import Command, Metric, Workload

State = Literal["running", "complete", "interrupted", "budget", "failed"]

BOOT_ATTEMPTS = 2
"""An environment whose machine fails this often in a row is given up for the rest of the run."""
IDENTIFY_TIMEOUT_S = 60.0


Starter = Callable[[Environment, Path, Sequence[int]], MachineLike]


def _start(environment: Environment, work: Path, cpus: Sequence[int]) -> MachineLike:
    return environment.start(work, cpus)


class Listener(Protocol):
    """Told what happens, for progress; must not fail."""

    def booting(self, label: str) -> None: ...

    def warming(self, label: str) -> None: ...

    def running(self, label: str, repetition: int) -> None: ...

    def finished(self, label: str, repetition: int, wall_s: float) -> None: ...

    def failed(self, label: str, repetition: int, message: str) -> None: ...

    def stopped(self, state: State) -> None: ...


@dataclass(frozen=True, slots=True)
class Settings:
    """What a campaign is asked to do."""

    workload: Workload
    entrants: tuple[Entrant, ...]
    environment: Mapping[str, str]
    """The complete environment of the workload's processes."""
    recorded_variables: Mapping[str, str]
    scrubbed_variables: Mapping[str, str]
    command_line: tuple[str, ...]
    repetitions: int = 5
    warm_up: bool = True
    reboot: Literal["each", "never"] = "never"
    budget_s: float | None = None
    timeout_s: float | None = None
    margin_percent: float = 2.0
    seed: int = 0


@dataclass(slots=True)
class _Seat:
    """What the campaign knows of one environment while it runs."""

    entrant: Entrant
    machine: MachineLike | None = None
    observed: Observed | None = None
    notes: tuple[str, ...] = ()
    boots: list[float] = field(default_factory=list)
    warm: bool = False
    lost_in_a_row: int = 0

    @property
    def given_up(self) -> bool:
        return self.lost_in_a_row >= BOOT_ATTEMPTS


class Campaign:
    """One campaign in one run folder."""

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        listener: Listener,
        start: Starter = _start,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._listener = listener
        self._start = start
        self._clock = clock
        self._seats = {each.label: _Seat(each) for each in settings.entrants}
        self._order = interleaved(list(self._seats), settings.repetitions, settings.seed)
        # Before anything boots, so that a problem that does not fit is refused at once.
        self._shape = common_shape(settings.entrants)
        self._command: Command = settings.workload.command(self._shape)
        self._cpus = allowed_cpus()
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self.samples: list[Sample] = []
        self.failures: list[Failure] = []
        self.state: State = "running"

    def run(self) -> RunRecord:
        """Run to the end, the budget's end, or an interrupt; what was finished is saved.

        Raises VtaxError when an environment does not come up at all at the start, or when
        samples cannot be saved; everything that was started has ended by then.
        """
        try:
            with self._apart():
                self._boot_all()
                self._folder.write_record(self.record())
                self.state = self._measure()
        except KeyboardInterrupt:
            self.state = "interrupted"
        except BaseException:
            self.state = "failed"
            raise
        finally:
            with _uninterrupted():
                self._close_all()
                self._listener.stopped(self.state)
        return self._finish()

    def record(self) -> RunRecord:
        """The state of the run as `run.json` keeps it."""
        settings = self._settings
        done = None if self.state == "running" else datetime.now(UTC).isoformat(timespec="seconds")
        return RunRecord(
            vtax_version=__version__,
            verb="compare",
            command_line=settings.command_line,
            name=settings.workload.label(),
            started_utc=self._started,
            finished_utc=done,
            state=self.state,
            workload=settings.workload.name,
            workload_parameters=settings.workload.parameters(),
            environment_variables=dict(settings.recorded_variables),
            scrubbed_variables=dict(settings.scrubbed_variables),
            repetitions=settings.repetitions,
            reboot=settings.reboot,
            budget_s=settings.budget_s,
            margin_percent=settings.margin_percent,
            seed=settings.seed,
            expected_metrics=tuple(settings.workload.expected_metrics(self._shape)),
            order=self._order,
            environments=tuple(self._environment_record(seat) for seat in self._seats.values()),
            failures=tuple(self.failures),
        )

    def _finish(self) -> RunRecord:
        self._folder.finish(self.samples)
        record = self.record()
        self._folder.write_record(record)
        return record

    @contextlib.contextmanager
    def _apart(self) -> Iterator[None]:
        """Keep vtax itself off the CPUs under measurement where there are others."""
        most = max(each.environment.shape().cpus for each in self._settings.entrants)
        rest = self._cpus[:-most]
        if rest:
            os.sched_setaffinity(0, rest)
        try:
            yield
        finally:
            os.sched_setaffinity(0, self._cpus)

    def _boot_all(self) -> None:
        """The boot probe: an environment that does not come up ends the run before it begins."""
        for seat in self._seats.values():
            try:
                self._machine(seat)
            except MachineLostError as error:
                message = f"environment '{seat.entrant.label}': {error}"
                raise VtaxError(message, seat.entrant.environment.boot_remedy()) from None
            except VtaxError as error:
                raise VtaxError(f"environment '{seat.entrant.label}': {error}") from None
            if self._settings.reboot == "each":
                self._close(seat)

    def _measure(self) -> State:
        begin = self._clock()
        for position, (label, repetition) in enumerate(self._order):
            budget = self._settings.budget_s
            if budget is not None and self._clock() - begin >= budget:
                return "budget"
            seat = self._seats[label]
            self._repetition(seat, repetition, position)
            if self._settings.reboot == "each":
                self._close(seat)
        return "complete"

    def _repetition(self, seat: _Seat, repetition: int, position: int) -> None:
        label = seat.entrant.label
        if seat.given_up:
            return self._fail(label, repetition, "not run: its machine failed twice in a row")
        try:
            machine = self._machine(seat)
            self._listener.running(label, repetition)
            folder = f"r{repetition:03d}"
            finished, metrics = self._once(seat, machine, folder)
        except MachineLostError as error:
            self._drop(seat)
            seat.lost_in_a_row += 1
            return self._fail(label, repetition, str(error))
        except VtaxError as error:
            return self._fail(label, repetition, str(error))
        seat.lost_in_a_row = 0
        self._save(seat, repetition, position, finished, metrics)
        self._listener.finished(label, repetition, finished.outcome.wall_s)
        return None

    def _once(
        self, seat: _Seat, machine: MachineLike, folder: str
    ) -> tuple[Finished, Sequence[Metric]]:
        # What the user asked to keep wins over what the workload would set.
        settings = self._settings
        environment = {
            **settings.environment,
            **self._command.environment,
            **settings.recorded_variables,
        }
        timeout_s = settings.timeout_s or self._command.timeout_s
        raw = self._raw(seat)
        this = Repetition(machine, raw, folder, raw / folder, self._command.argv)
        used = usable(chosen((), ()), seat.entrant.environment)
        run(this, self._command, environment, timeout_s, used)
        finished = this.finished[0]
        metrics = self._settings.workload.metrics(finished.outcome, this.exchange)
        return finished, (*metrics, *this.metrics)

    def _machine(self, seat: _Seat) -> MachineLike:
        """The seat's machine, booted and warmed up if it is not."""
        if seat.machine is None:
            label = seat.entrant.label
            self._listener.booting(label)
            cpus = self._cpus[-seat.entrant.environment.shape().cpus :]
            machine = self._start(seat.entrant.environment, self._raw(seat), cpus)
            seat.machine, seat.warm = machine, False
            seat.boots.append(machine.boot_s)
            if seat.observed is None:
                seat.observed = self._observe(seat, machine)
                seat.notes = tuple(machine.launch.notes)
        if not seat.warm and self._settings.warm_up:
            self._listener.warming(seat.entrant.label)
            self._once(seat, seat.machine, f"warm-up-{len(seat.boots) - 1}")
            if seat.observed is not None:
                seat.machine.refresh_facts()
                seat.observed = replace(seat.observed, facts=seat.machine.facts)
        seat.warm = True
        return seat.machine

    def _observe(self, seat: _Seat, machine: MachineLike) -> Observed:
        libraries = {}
        for program in self._settings.workload.libraries():
            libraries.update(self._identify(seat, machine, program))
        return Observed(machine.facts, libraries, machine.hello.get("memory_limit_error"))

    def _identify(self, seat: _Seat, machine: MachineLike, program: str) -> dict[str, str]:
        """Which BLAS the program gets inside the machine; nothing where that cannot be told."""
        exchange = Exchange(self._raw(seat), f"identify-{Path(program).name}")
        exchange.create({})
        tool = str(binaries.find("vtax-dgemm"))
        own = Path(program).name == "vtax-dgemm"
        path = shutil.which(program, path=self._settings.environment.get("PATH")) or program
        argv = [tool, "--identify"] if own else [tool, "--identify-for", path]
        with contextlib.suppress(VtaxError, ValueError):
            machine.run(argv, self._settings.environment, exchange.name, IDENTIFY_TIMEOUT_S)
            return _library(json.loads(exchange.read_text("stdout", 1 << 20)))
        return {}

    def _raw(self, seat: _Seat) -> Path:
        return self._folder.raw(seat.entrant.label)

    def _save(
        self,
        seat: _Seat,
        repetition: int,
        position: int,
        finished: Finished,
        metrics: Sequence[Metric],
    ) -> None:
        boot = len(seat.boots) - 1
        name = self._settings.workload.name
        samples = [
            _sample(seat.entrant.label, name, metric, repetition, boot, position, finished)
            for metric in metrics
        ]
        self._folder.append(samples)
        self.samples += samples

    def _fail(self, label: str, repetition: int, message: str) -> None:
        self.failures.append(Failure(environment=label, repetition=repetition, message=message))
        self._listener.failed(label, repetition, message)
        with contextlib.suppress(VtaxError):
            self._folder.write_record(self.record())

    def _environment_record(self, seat: _Seat) -> EnvironmentRecord:
        entrant, observed = seat.entrant, seat.observed
        facts = dict(observed.facts) if observed else {}
        baseline = self._seats[entrant.baseline].observed if entrant.baseline else None
        differ = differences(baseline, observed) if baseline and observed else ()
        return EnvironmentRecord(
            label=entrant.label,
            spec=entrant.spec,
            role=entrant.role,
            baseline=entrant.baseline,
            description=entrant.environment.description(facts),
            cpus=entrant.environment.shape().cpus,
            memory_bytes=entrant.environment.memory_limit(),
            facts=facts,
            libraries=dict(observed.libraries) if observed else {},
            boot_s=tuple(seat.boots),
            differences=differ,
            notes=seat.notes,
        )

    def _close(self, seat: _Seat) -> None:
        if seat.machine is not None:
            machine, seat.machine = seat.machine, None
            machine.close()

    def _drop(self, seat: _Seat) -> None:
        """Forget a machine that is gone; closing it again is harmless."""
        with contextlib.suppress(VtaxError):
            self._close(seat)

    def _close_all(self) -> None:
        for seat in self._seats.values():
            self._drop(seat)


def _sample(
    label: str,
    workload: str,
    metric: Metric,
    repetition: int,
    boot: int,
    position: int,
    finished: Finished,
) -> Sample:
    outcome = finished.outcome
    return Sample(
        environment=label,
        workload=workload,
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        value=metric.value,
        repetition=repetition,
        boot=boot,
        position=position,
        wall_s=outcome.wall_s,
        cpu_s=outcome.cpu_s,
        steal_s=outcome.steal_s,
        host_wall_s=finished.host_wall_s,
        max_rss_bytes=outcome.max_rss_bytes,
        minor_faults=outcome.minor_faults,
        major_faults=outcome.major_faults,
        voluntary_switches=outcome.voluntary_switches,
        involuntary_switches=outcome.involuntary_switches,
    )


def _library(answer: Mapping[str, Any]) -> dict[str, str]:
    """`vtax-dgemm --identify` as name to text: path, version and the kernels chosen.

    Of the version its first two words, e.g. ``OpenBLAS 0.3.21``: build options follow them. The
    whole answer stays in the run's raw folder.
    """
    library = answer.get("library")
    if not isinstance(library, Mapping):
        return {}
    version, core = str(library.get("version") or ""), str(library.get("core") or "")
    details = [text for text in (" ".join(version.split()[:2]), core) if text]
    text = str(library.get("path")) + (f" ({', '.join(details)})" if details else "")
    return {str(library.get("requested", "BLAS")): text}


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let cleaning up finish: a second Ctrl-C must not leave a guest behind."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    except ValueError:  # not the main thread (a notebook's worker): nothing to hold back
        yield
        return
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
