"""`prices`: the agent's operations in each environment, in turn with its baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vtax.core.errors import VtaxError
from vtax.core.runner.campaign import Request, StagedCampaign
from vtax.core.runner.matching import ComparedVariant
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Step, Variant
from vtax.prices.record import (
    AbsentOperation,
    PricedEnvironment,
    PricedOperation,
    PricesRecord,
)
from vtax.workloads.base import Command
from vtax.workloads.outcomes import require_success

ROUNDS = 4
SECONDS = 4.0
"""Together with `ROUNDS` below 20 s for each environment."""
TIMEOUT_S = 180.0
"""Beside the time that is asked for; the agent ends at most 80 s after it."""
ANSWER_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesRequest(Request):
    """What `vtax prices` is asked for."""

    variants: tuple[ComparedVariant, ...]
    rounds: int = ROUNDS
    seconds: float = SECONDS
    only: tuple[str, ...] = ()
    """Names of operations; empty: all."""


class _Operation(BaseModel):
    """An operation as the agent tells it; the machine may lie, but not about types and bounds."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    name: str = Field(max_length=64, pattern=r"^[a-z][a-z_]*$")
    context: str = Field(max_length=120)
    structural: bool
    size: float | None = Field(ge=0)
    calls: float = Field(ge=0)
    faults: float = Field(ge=0)
    switches: float = Field(ge=0)
    ns: float = Field(ge=0, le=1e13)


class _Absent(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str = Field(max_length=64)
    context: str = Field(default="", max_length=120)
    reason: str = Field(max_length=400)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    operations: list[_Operation] = Field(max_length=1000)
    absent: list[_Absent] = Field(max_length=1000)


@dataclass(slots=True)
class _Seen:
    """What is known of one environment by now."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    answers: list[_Answer] = field(default_factory=list)


@dataclass(eq=False)
class PricesCampaign(StagedCampaign[PricesRequest, PricesRecord, int]):
    """Every environment once in each round; what a step is for is its round."""

    _seen: dict[str, _Seen] = field(init=False)
    _read: _Answer | None = field(default=None, init=False)
    _failure: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._seen = {each.label: _Seen() for each in self.request.variants}

    @property
    def found(self) -> bool:
        return any(seen.answers for seen in self._seen.values())

    @property
    def first_failure(self) -> str | None:
        return self._failure

    def record(self) -> PricesRecord:
        request = self.request
        return PricesRecord(
            **self._head(),
            name="prices",
            state=self.state,
            rounds=request.rounds,
            seconds=request.seconds,
            seed=request.seed,
            environments=tuple(self._priced(each) for each in request.variants),
        )

    def read(self, this: Repetition) -> None:
        require_success("vtax-agent prices", this.finished[0].outcome, this.exchange)
        text = this.exchange.read_text("stdout", ANSWER_BYTES)
        try:
            self._read = _Answer.model_validate_json(text)
        except ValidationError as error:
            raise VtaxError(f"vtax-agent prices: {error.errors()[0]['msg']}") from None

    def done(self, done: Done) -> None:
        assert self._read is not None
        seen, machine = self._seen[done.step.variant], done.repetition.machine
        if not seen.answers:
            # A kernel may choose another clock source in the first seconds after its start.
            machine.refresh_facts()
            seen.facts = dict(machine.facts)
        seen.answers.append(self._read)
        self._save()

    def failed(self, step: Step, error: VtaxError) -> None:
        self._failure = self._failure or f"{step.variant}: {error}"

    def _variants(self) -> Sequence[Variant]:
        return [
            Variant(each.label, each.environment, self.folder.raw(each.label))
            for each in self.request.variants
        ]

    def _stages(self) -> Iterator[Sequence[Step]]:
        for _ in range(self.request.rounds):
            self._order.add(dict.fromkeys(self._seen, 1))
        commands = {each.label: self._command(each) for each in self.request.variants}
        yield [
            self._step(
                label, number, commands[label], f"r{number}", self.folder.instruments(label), number
            )
            for label, number in self._order.order
        ]

    def _command(self, own: ComparedVariant) -> Command:
        only = ("--only", ",".join(self.request.only)) if self.request.only else ()
        line = (own.environment.agent_inside(), "prices", "--seconds", str(self.request.seconds))
        return Command((*line, *only), timeout_s=self.request.seconds + TIMEOUT_S)

    def _priced(self, own: ComparedVariant) -> PricedEnvironment:
        seen = self._seen[own.label]
        absent = seen.answers[-1].absent if seen.answers else ()
        return PricedEnvironment(
            label=own.label,
            spec=own.spec,
            baseline=own.baseline,
            description=own.environment.description(seen.facts),
            facts=dict(seen.facts),
            operations=tuple(_joined(seen.answers)),
            absent=tuple(AbsentOperation(**each.model_dump()) for each in absent),
        )


def _joined(answers: Sequence[_Answer]) -> Iterator[PricedOperation]:
    """Each operation that was measured in every round, with its values in their order."""
    rounds = [{(each.name, each.context): each for each in answer.operations} for answer in answers]
    for key, first in (rounds[0] if rounds else {}).items():
        if all(key in each for each in rounds):
            values = tuple(each[key].ns for each in rounds)
            yield PricedOperation(**first.model_dump(exclude={"ns"}), ns=values)
