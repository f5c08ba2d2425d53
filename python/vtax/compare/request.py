"""What `vtax compare` is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from vtax.compare.drawing import Drawing
from vtax.core.formats.model import Clock
from vtax.core.runner.campaign import Request
from vtax.core.runner.matching import ComparedVariant, common_shape
from vtax.core.runner.repetition import Instrument
from vtax.core.runner.runner import Reboot
from vtax.environments.agent import OUTPUT_LIMIT_BYTES
from vtax.workloads.base import Command, MachineShape, Workload

USUAL_REPETITIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRequest(Request):
    """What `vtax compare` is asked for. Raises MisuseError for a problem that does not fit."""

    workload: Workload
    compared_variants: tuple[ComparedVariant, ...]
    recorded_variables: Mapping[str, str]
    """Variables that the user asked to keep; they win over what the workload would set."""
    scrubbed_variables: Mapping[str, str]
    commit: str | None = None
    """The commit that is measured; None: not known."""
    inputs: tuple[str, ...] = ()
    """What commands get that differs from a native start, in sentences."""
    repetitions: int = USUAL_REPETITIONS
    """The number of rounds with one run each."""
    until_percent: float | None = None
    """After those rounds, go on until every interval of the metric that decides is within plus or
    minus this."""
    warm_up: bool = True
    reboot: Reboot = "never"
    timeout_s: float | None = None
    max_output_bytes: int = OUTPUT_LIMIT_BYTES
    margin_percent: float = 2.0
    clock: Clock = "wall"
    audit: bool = False
    """Whether to audit the environments' clocks before and after."""
    instruments: Sequence[Instrument] = ()
    """Instruments; each is used where the environment has what it needs."""
    places: tuple[tuple[int, ...], ...] = ()
    """The CPUs of each of two environments that run at once; they swap them in half of the rounds.
    Empty: one runs after the other."""
    drawing: Drawing | None = None
    """What each round draws; `workload` is that of the first. None: all rounds run the same."""
    shape: MachineShape = field(init=False)
    """What the workload may use in every environment."""
    command: Command = field(init=False)
    """The workload's command, of the first round where rounds differ."""

    def __post_init__(self) -> None:
        shape = common_shape(each.environment for each in self.compared_variants)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "command", self._command(self.workload))

    @property
    def name(self) -> str:
        """What runs, in words."""
        return self.drawing.name if self.drawing else self.workload.label()

    def workload_of(self, number: int) -> Workload:
        """The workload of a round."""
        return self.drawing.of_round(number) if self.drawing else self.workload

    def command_of(self, number: int) -> Command:
        """The command of a round. Raises MisuseError for a problem that does not fit."""
        return self._command(self.workload_of(number)) if self.drawing else self.command

    def _command(self, workload: Workload) -> Command:
        command = workload.command(self.shape)
        environment = {**command.environment, **self.recorded_variables}
        timeout_s = self.timeout_s or command.timeout_s
        return replace(command, environment=environment, timeout_s=timeout_s)
