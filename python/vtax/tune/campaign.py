"""`tune`: probes and a search in each environment, then everything in turn in all of them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from vtax.core import binaries, cache
from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.formats.files import read_bounded, write_atomic
from vtax.core.formats.folder import slug
from vtax.core.runner.campaign import Request, StagedCampaign, require_limited
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Step, Variant
from vtax.core.runner.samples import sample
from vtax.core.statistics.rounds import Run
from vtax.environments.base import Environment, MachineLike
from vtax.tune import analysis, tuner
from vtax.tune.analysis import Candidate, Measured, Peer
from vtax.tune.record import TuneRecord
from vtax.tune.tuner import Tuner
from vtax.workloads.base import Command, Metric

UNIT = "GFLOP/s"
GENERATED = "generated"
"""The name of restricted code among the libraries is this and its instruction set."""
Kind = Literal["look", "identify", "search", "edges", "measure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneRequest(Request):
    """What `vtax tune` is asked for."""

    environments: Mapping[str, Environment]
    """Environments by spec."""
    tuner: Tuner
    rounds: int
    margin_percent: float
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
    steps: int = 0
    """The number of its steps by now."""
    parameters: bytes | None = None
    """The winner's parameters, as a file for other machines and for the user."""
    generated: dict[str, bytes] = field(default_factory=dict)
    """The parameters of restricted code, by the peer's name."""
    logs: dict[str | None, Path] = field(default_factory=dict)
    """Paths of the logs of its searches, by instruction set."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Gflop/s by routine, of the step that was just read."""


@dataclass(eq=False)
class TuneCampaign(StagedCampaign[TuneRequest, TuneRecord, _Task]):
    """Probes and a search in each environment, then everything in turn in all of them."""

    _seen: dict[str, _Seen] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        threads = self.request.tuner.threads
        self._seen = {
            label: _Seen(Measured(label, threads=threads)) for label in self.request.environments
        }

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

    def record(self) -> TuneRecord:
        request, own = self.request, self.request.tuner
        measured = [each.measured for each in self._seen.values()]
        moved = () if request.use else analysis.transfers(measured, request.margin_percent)
        return TuneRecord(
            **self._head(),
            name="tune",
            state=self.state,
            search=own.search,
            use=request.use[0] if request.use else None,
            precision=own.precision,
            threads=own.threads,
            size=own.size,
            budget_s=own.budget_s,
            rounds=request.rounds,
            margin_percent=request.margin_percent,
            seed=request.seed,
            environments=tuple(analysis.environment(each, request.seed) for each in measured),
            transfer=moved,
            equivalence=analysis.equivalence(measured, moved, request.margin_percent),
        )

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        require_limited(machine)
        seen = self._seen[variant.label]
        seen.measured.description = variant.environment.description(machine.facts)
        seen.measured.notes = tuple(machine.launch.notes)
        own = self.request.tuner
        for each in (own, *map(own.restricted, self.request.generated)):
            seen.logs[each.vectors] = _log_of(variant.label, machine, each)

    def read(self, this: Repetition) -> None:
        seen, task = self._seen[this.label], self._point(this)
        finished, folder = this.finished[0], this.exchange
        outcome, measured = finished.outcome, seen.measured
        if task.kind == "look":
            if self.request.probe:
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
        if not self.request.use:
            measured.search_s = found.seconds

    def _read_values(self, seen: _Seen, task: _Task, this: Repetition) -> None:
        """Read what a candidate gave in a round."""
        outcome, folder = this.finished[0].outcome, this.exchange
        own = _named(task)
        if own.kind == "peer" and seen.measured.peers[own.name].vectors is None:
            routine = f"{self.request.tuner.libraries_precision}gemm"
            seen.values = {routine: tuner.library_gflops(outcome, folder)}
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
        seen, task = self._seen[done.step.variant], self._point(done.step)
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
        measured, task = self._seen[step.variant].measured, self._point(step)
        if task.kind == "identify" or (task.kind == "search" and task.candidate):
            measured.peers[_named(task).name].reason = tuner.refusal(str(error))
            return
        if task.kind == "measure":
            measured.refused[_named(task)] = tuner.refusal(str(error))
            if _named(task) != Candidate("winner", measured.spec):
                return
        if str(error) not in measured.failures:
            measured.failures.append(str(error))

    def _ending(self) -> None:
        for label in self._seen:
            self._keep_log(label)

    def _keep_log(self, label: str) -> None:
        """Keep the log, also of a search that was cut short: the next search goes on from there."""
        seen = self._seen[label]
        for (variant, folder), task in self._points.items():
            searched = variant == label and task.kind == "search"
            log = seen.logs.get(_vectors(seen, task)) if searched else None
            if log is not None:
                exchange = Exchange(self.folder.raw(label), folder)
                with contextlib.suppress(VtaxError):
                    write_atomic(log, exchange.read_bytes(tuner.LOG, tuner.LOG_BYTES))

    def _variants(self) -> Sequence[Variant]:
        made = self.request.environments.items()
        return [Variant(label, each, self.folder.raw(label)) for label, each in made]

    def _stages(self) -> Iterator[Sequence[Step]]:
        yield [step for label in self.request.environments for step in self._looks(label)]
        yield list(self._searches())
        yield list(self._edges())
        for number in range(self.request.rounds):
            yield list(self._round(number))

    def _looks(self, label: str) -> Iterator[Step]:
        request, seen = self.request, self._seen[label]
        environment = request.environments[label]
        agent = environment.agent_inside()
        yield self._tasked(label, _Task("look", request.tuner.look(agent, request.probe)))
        for vectors in request.generated:
            name = f"{GENERATED} {vectors}"
            seen.measured.peers[name] = Peer(analysis.GENERATED_BY, vectors=vectors)
        for name, library in request.peers.items():
            seen.measured.peers[name] = Peer(library)
            if not environment.has_folder(binaries.FOLDER):
                seen.measured.peers[name].reason = "it lacks this machine's programs"
                continue
            candidate = Candidate("peer", name)
            yield self._tasked(label, _Task("identify", tuner.identify(library), candidate))

    def _searches(self) -> Iterator[Step]:
        request = self.request
        for label, environment in request.environments.items():
            seen, agent = self._seen[label], environment.agent_inside()
            if request.use:
                command = request.tuner.measured(agent, request.use[1])
            else:
                command = self._searched(seen, agent, request.tuner)
            yield self._tasked(label, _Task("search", command))
            for name, peer in seen.measured.peers.items():
                if peer.vectors is not None:
                    own = request.tuner.restricted(peer.vectors)
                    command = self._searched(seen, agent, own)
                    yield self._tasked(label, _Task("search", command, Candidate("peer", name)))

    def _searched(self, seen: _Seen, agent: str, own: Tuner) -> Command:
        """The command of a search, from the log of the last search."""
        log = None if self.request.fresh else seen.logs.get(own.vectors)
        return own.searched(agent, None if log is None else _kept(log))

    def _edges(self) -> Iterator[Step]:
        """Steps that sweep cache block sizes with the parameters that the searches found."""
        request = self.request
        analysis.choose_sizes([each.measured for each in self._seen.values()], request.tuner.size)
        for label, environment in request.environments.items() if request.cache_edge else ():
            own = self._seen[label].parameters
            command = request.tuner.edges(environment.agent_inside(), own)
            yield self._tasked(label, _Task("edges", command))

    def _round(self, number: int) -> Iterator[Step]:
        """Everything in every environment once, in a new random order."""
        commands: dict[str, tuple[str, _Task]] = {}
        for label in self._seen:
            for candidate, command in self._candidates(label):
                task = _Task("measure", command, candidate, number)
                commands[f"{label} {candidate.kind} {candidate.name}"] = (label, task)
        for name, _ in self._order.add(dict.fromkeys(commands, 1)) if commands else ():
            yield self._tasked(*commands[name])

    def _candidates(self, label: str) -> Iterator[tuple[Candidate, Command]]:
        """What is to be measured in an environment: everything that it has not refused."""
        request, measured = self.request, self._seen[label].measured
        agent = request.environments[label].agent_inside()
        own_tuner = replace(request.tuner, size=self._size(self._seen[label]))
        for other, seen in self._seen.items():
            own = other == label
            if seen.parameters is not None and (own or not request.use):
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
        return seen.measured.measured_size or self.request.tuner.size

    def _tasked(self, label: str, task: _Task) -> Step:
        seen, out = self._seen[label], self.folder.instruments(label)
        number, seen.steps = seen.steps, seen.steps + 1
        return self._step(label, number, task.command, f"{task.kind}-{number}", out, task)


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
