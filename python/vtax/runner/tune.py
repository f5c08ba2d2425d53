"""`tune`: probes and a search in each environment, then everything in turn in all of them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from vtax import __version__, binaries, cache
from vtax.analysis import tune as analysis
from vtax.analysis.rounds import Run
from vtax.analysis.tune import Candidate, Measured, Peer
from vtax.environments.base import Environment, MachineLike
from vtax.errors import VtaxError
from vtax.formats.exchange import Exchange
from vtax.formats.files import read_bounded, write_atomic
from vtax.formats.folder import RunFolder, slug
from vtax.formats.tune import TuneRecord
from vtax.runner import campaign
from vtax.runner.plan import Interleaving
from vtax.runner.repetition import Repetition
from vtax.runner.runner import Done, Listener, Plan, Starter, State, Step, Variant
from vtax.runner.runner import boot as boot_machine
from vtax.runner.samples import sample
from vtax.workloads import tuner
from vtax.workloads.base import Command, Metric
from vtax.workloads.tuner import Tuner

UNIT = "GFLOP/s"
GENERATED = "generated"
"""The name of restricted code among the libraries is this and its instruction set."""
Kind = Literal["look", "identify", "search", "edges", "measure"]


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a campaign."""

    environments: Mapping[str, Environment]
    """Environments by spec."""
    tuner: Tuner
    rounds: int
    margin_percent: float
    seed: int
    variables: Mapping[str, str]
    """The complete environment of the programs."""
    command_line: tuple[str, ...]
    peers: Mapping[str, str]
    """Libraries by name."""
    generated: Sequence[str] = ()
    """Instruction sets whose best code is compared with the libraries."""
    probe: bool = True
    cache_edge: bool = False
    fresh: bool = False
    """Whether to ignore the logs of earlier searches."""
    use: tuple[str, bytes] | None = None
    """A file's name and the parameters in it, instead of a search."""


@dataclass(frozen=True, slots=True)
class _Task:
    """The purpose of a step."""

    kind: Kind
    command: Command
    candidate: Candidate | None = None
    """For `identify` and `measure`, and for a search that is restricted to an instruction set."""
    round: int = 0


@dataclass(slots=True)
class _Seen:
    """What the campaign learns about one environment."""

    measured: Measured
    tasks: list[_Task] = field(default_factory=list)
    """Tasks in the order of their steps' numbers."""
    parameters: bytes | None = None
    """The winner's parameters, as a file for other machines and for the user."""
    generated: dict[str, bytes] = field(default_factory=dict)
    """The parameters of restricted code, by the peer's name."""
    logs: dict[str | None, Path] = field(default_factory=dict)
    """Paths of the logs of its searches, by instruction set."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Gflop/s by routine, of the step that was just read."""


class TuneCampaign(campaign.Campaign[TuneRecord]):
    """One campaign in one run folder."""

    def __init__(
        self,
        settings: Settings,
        folder: RunFolder,
        listener: Listener,
        start: Starter = boot_machine,
    ) -> None:
        super().__init__(folder, listener, start)
        self._settings = settings
        threads = settings.tuner.threads
        self._seen = {
            label: _Seen(Measured(label, threads=threads)) for label in settings.environments
        }
        self._order = Interleaving(settings.seed)
        self._stages = self._planned()

    @property
    def found(self) -> bool:
        """Whether anything was measured."""
        seen = (each.measured for each in self._seen.values())
        return any(each.tuned or each.probed or each.cache_edge for each in seen)

    @property
    def first_failure(self) -> str | None:
        """The message of the first environment that failed."""
        return next((m for each in self._seen.values() for m in each.measured.failures), None)

    def parameters(self, label: str) -> bytes | None:
        """The winner of an environment as TOML; None: there is no winner."""
        return self._seen[label].parameters

    def record(self, state: State) -> TuneRecord:
        """The record of what is known by now."""
        settings, own = self._settings, self._settings.tuner
        measured = [each.measured for each in self._seen.values()]
        moved = () if settings.use else analysis.transfers(measured, settings.margin_percent)
        return TuneRecord(
            vtax_version=__version__,
            command_line=settings.command_line,
            name="tune",
            started_utc=self._started,
            finished_utc=self._finished(state),
            state=state,
            search=own.search,
            use=settings.use[0] if settings.use else None,
            precision=own.precision,
            threads=own.threads,
            size=own.size,
            budget_s=own.budget_s,
            rounds=settings.rounds,
            margin_percent=settings.margin_percent,
            seed=settings.seed,
            environments=tuple(analysis.environment(each, settings.seed) for each in measured),
            transfer=moved,
            equivalence=analysis.equivalence(measured, moved, settings.margin_percent),
        )

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        if reason := machine.hello.get("memory_limit_error"):
            raise VtaxError(f"its memory is not limited: {reason}")
        seen = self._seen[variant.label]
        seen.measured.description = variant.environment.description(machine.facts)
        seen.measured.notes = tuple(machine.launch.notes)
        own = self._settings.tuner
        for each in (own, *map(own.restricted, self._settings.generated)):
            seen.logs[each.vectors] = _log_of(variant.label, machine, each)

    def read(self, this: Repetition) -> None:
        seen, task = self._of(this.label, this.folder)
        finished, folder = this.finished[0], this.exchange
        outcome, measured = finished.outcome, seen.measured
        if task.kind == "look":
            if self._settings.probe:
                measured.probed = tuner.probed(outcome, folder)
            return
        if task.kind == "identify":
            peer = measured.peers[_named(task).name]
            known = tuner.identified(peer.library, outcome, folder)
            peer.version, peer.reason = known.version, known.reason
            return
        if doubt := finished.doubt():
            raise VtaxError(f"not believed: {doubt}")
        if task.kind == "edges":
            found = tuner.tuned(outcome, folder)
            measured.cache_edge = found.cache_edge
            measured.notes += tuple(f"CacheEdge: {note}" for note in found.notes)
            if not found.complete and found.cache_edge:
                runs = len(found.cache_edge.chosen)
                measured.notes += (f"CacheEdge: the time was over after {runs} runs",)
        elif task.kind == "search":
            self._keep_log(this.label)
            self._read_search(seen, task, this)
        else:
            self._read_values(seen, task, this)

    def _read_search(self, seen: _Seen, task: _Task, this: Repetition) -> None:
        """Read the winner and its parameters."""
        found, measured = tuner.tuned(this.finished[0].outcome, this.exchange), seen.measured
        if not found.routines:
            raise VtaxError("nothing was found within its time", "give it more --budget")
        parameters = this.exchange.read_bytes(tuner.PARAMETERS, tuner.PARAMETERS_BYTES)
        if task.candidate is not None:
            seen.generated[task.candidate.name] = parameters
            if not found.complete:
                measured.notes += (f"{task.candidate.name}: the budget ended its search",)
            return
        seen.parameters, measured.tuned = parameters, found
        if not self._settings.use:
            measured.search_s = found.seconds

    def _read_values(self, seen: _Seen, task: _Task, this: Repetition) -> None:
        """Read what a candidate gave in a round."""
        outcome, folder = this.finished[0].outcome, this.exchange
        own = _named(task)
        if own.kind == "peer" and seen.measured.peers[own.name].vectors is None:
            seen.values = {"dgemm": tuner.library_gflops(outcome, folder)}
        else:
            found = tuner.tuned(outcome, folder)
            size = self._size(seen)
            if found.size != size:
                raise VtaxError(
                    f"it timed matrices of {found.size} rows, not of {size}",
                    "give it more --budget, or choose a smaller --size",
                )
            seen.values = {each.routine: each.gflops for each in found.routines}
        this.metrics += [Metric(name, UNIT, "higher", value) for name, value in seen.values.items()]

    def done(self, done: Done) -> None:
        seen, task = self._of(done.step.variant, done.step.folder)
        if task.kind != "measure":
            return
        candidate = _named(task)
        own = seen.measured.runs.setdefault(candidate, {})
        for name, value in seen.values.items():
            own.setdefault(name, []).append(Run(task.round, done.boot, value))
        title = f"{candidate.kind} {candidate.name}"
        rows = [sample(None, title, each, done, task.round) for each in done.repetition.metrics]
        self._keep(rows)

    def failed(self, step: Step, error: VtaxError) -> None:
        seen, task = self._of(step.variant, step.folder)
        measured = seen.measured
        if task.kind == "identify" or (task.kind == "search" and task.candidate):
            measured.peers[_named(task).name].reason = tuner.refusal(str(error))
            return
        if task.kind == "measure":
            measured.refused[_named(task)] = tuner.refusal(str(error))
            if _named(task) != Candidate("winner", measured.spec):
                return
        if str(error) not in measured.failures:
            measured.failures.append(str(error))

    def _of(self, label: str, folder: str) -> tuple[_Seen, _Task]:
        seen = self._seen[label]
        return seen, seen.tasks[int(folder.rpartition("-")[2])]

    def _ending(self) -> None:
        for label in self._seen:
            self._keep_log(label)

    def _keep_log(self, label: str) -> None:
        """Keep the log, also of a search that was cut short: the next search goes on from there."""
        seen = self._seen[label]
        for number, task in enumerate(seen.tasks):
            log = seen.logs.get(_vectors(seen, task)) if task.kind == "search" else None
            if log is not None:
                exchange = Exchange(self._folder.raw(label), _folder(task, number))
                with contextlib.suppress(VtaxError):
                    write_atomic(log, exchange.read_bytes(tuner.LOG, tuner.LOG_BYTES))

    def _plan(self) -> Plan:
        settings = self._settings
        return Plan(
            [
                Variant(label, each, self._folder.raw(label))
                for label, each in settings.environments.items()
            ],
            next(self._stages),
            settings.variables,
            more=lambda: next((stage for stage in self._stages if stage), ()),
            matched=True,
        )

    def _planned(self) -> Iterator[Sequence[Step]]:
        """The stages, each of which depends on the results of the stages before it."""
        settings = self._settings
        yield [step for label in settings.environments for step in self._looks(label)]
        rounds = map(self._round, range(settings.rounds))
        for stage in (self._searches(), self._edges(), *rounds):
            steps = list(stage)
            self._listener.extended(len(steps))
            self._save()
            yield steps

    def _looks(self, label: str) -> Iterator[Step]:
        settings, seen = self._settings, self._seen[label]
        environment = settings.environments[label]
        agent = environment.agent_inside()
        yield self._step(label, _Task("look", settings.tuner.look(agent, settings.probe)))
        for vectors in settings.generated:
            name = f"{GENERATED} {vectors}"
            seen.measured.peers[name] = Peer(analysis.GENERATED_BY, vectors=vectors)
        for name, library in settings.peers.items():
            seen.measured.peers[name] = Peer(library)
            if not environment.has_folder(binaries.FOLDER):
                seen.measured.peers[name].reason = "it lacks this machine's programs"
                continue
            candidate = Candidate("peer", name)
            yield self._step(label, _Task("identify", tuner.identify(library), candidate))

    def _searches(self) -> Iterator[Step]:
        settings = self._settings
        for label, environment in settings.environments.items():
            seen, agent = self._seen[label], environment.agent_inside()
            if settings.use:
                command = settings.tuner.measured(agent, settings.use[1])
            else:
                command = self._searched(seen, agent, settings.tuner)
            yield self._step(label, _Task("search", command))
            for name, peer in seen.measured.peers.items():
                if peer.vectors is not None:
                    own = settings.tuner.restricted(peer.vectors)
                    command = self._searched(seen, agent, own)
                    yield self._step(label, _Task("search", command, Candidate("peer", name)))

    def _searched(self, seen: _Seen, agent: str, own: Tuner) -> Command:
        """The command of a search, from the log of the last search."""
        log = None if self._settings.fresh else seen.logs.get(own.vectors)
        return own.searched(agent, None if log is None else _kept(log))

    def _edges(self) -> Iterator[Step]:
        """Steps that sweep cache block sizes with the parameters that the searches found."""
        settings = self._settings
        analysis.choose_sizes([each.measured for each in self._seen.values()], settings.tuner.size)
        for label, environment in settings.environments.items() if settings.cache_edge else ():
            own = self._seen[label].parameters
            command = settings.tuner.edges(environment.agent_inside(), own)
            yield self._step(label, _Task("edges", command))

    def _round(self, number: int) -> Iterator[Step]:
        """Everything in every environment once, in a new random order."""
        commands: dict[str, tuple[str, _Task]] = {}
        for label in self._seen:
            for candidate, command in self._candidates(label):
                task = _Task("measure", command, candidate, number)
                commands[f"{label} {candidate.kind} {candidate.name}"] = (label, task)
        for name, _ in self._order.add(dict.fromkeys(commands, 1)) if commands else ():
            yield self._step(*commands[name])

    def _candidates(self, label: str) -> Iterator[tuple[Candidate, Command]]:
        """What is to be measured in an environment: everything that it has not refused."""
        settings, measured = self._settings, self._seen[label].measured
        agent = settings.environments[label].agent_inside()
        own_tuner = replace(settings.tuner, size=self._size(self._seen[label]))
        for other, seen in self._seen.items():
            own = other == label
            if seen.parameters is not None and (own or not settings.use):
                candidate = Candidate("winner", other)
                # Its own candidate cannot be refused: what went wrong may go well in the next
                # round.
                if own or candidate not in measured.refused:
                    yield candidate, own_tuner.measured(agent, seen.parameters)
        for name, peer in measured.peers.items():
            candidate = Candidate("peer", name)
            if peer.reason is not None or candidate in measured.refused:
                continue
            if peer.vectors is None:
                yield candidate, own_tuner.product(peer.library)
            elif (own_code := self._seen[label].generated.get(name)) is not None:
                yield candidate, own_tuner.restricted(peer.vectors).measured(agent, own_code)

    def _size(self, seen: _Seen) -> int:
        """Rows of the matrices in the rounds."""
        return seen.measured.measured_size or self._settings.tuner.size

    def _step(self, label: str, task: _Task) -> Step:
        seen = self._seen[label]
        number = len(seen.tasks)
        seen.tasks.append(task)
        out = self._folder.instruments(label)
        return Step(label, number, task.command, _folder(task, number), out)


def _folder(task: _Task, number: int) -> str:
    return f"{task.kind}-{number}"


def _named(task: _Task) -> Candidate:
    assert task.candidate is not None
    return task.candidate


def _vectors(seen: _Seen, task: _Task) -> str | None:
    """The instruction set that a search is restricted to, if any."""
    return None if task.candidate is None else seen.measured.peers[task.candidate.name].vectors


def _log_of(label: str, machine: MachineLike, own: Tuner) -> Path:
    """The log of searches of this kind in this environment on this processor."""
    processor = machine.facts.get("cpu")
    about = processor if isinstance(processor, Mapping) else {}
    names = ("vendor", "model", "family", "model_number", "stepping", "flags")
    key = repr((label, own.key(), [about.get(name) for name in names]))
    digest = hashlib.blake2b(key.encode(errors="replace"), digest_size=8).hexdigest()
    return cache.folder("tune") / f"{slug(label)}-{digest}.jsonl"


def _kept(path: Path) -> bytes | None:
    """The log of earlier searches; None: there is no readable one."""
    try:
        return read_bounded(path, tuner.LOG_BYTES)
    except (OSError, VtaxError):
        return None
