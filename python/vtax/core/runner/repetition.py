"""One repetition: a command runs in a machine while instruments look on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.environments.agent import STDIN, Finished
from vtax.environments.base import MachineLike
from vtax.environments.capabilities import Capability, Guests
from vtax.environments.machine_command import MachineCommand
from vtax.workloads.base import Command, Metric


@dataclass(slots=True)
class Repetition:
    """What instruments see of a repetition; an instrument may change it.

    Before the command starts, an instrument may replace `argv`, e.g. to start the command itself.
    Afterwards it may correct `finished`, add to `metrics`, and put files into `out`.
    """

    label: str
    """The label of the variant."""
    machine: MachineLike
    work: Path
    """Host folder that the machine may write."""
    folder: str
    """The folder of the command's results, below `work`."""
    out: Path
    """Host folder for files of instruments. The first instrument that needs it makes it."""
    argv: Sequence[str]
    finished: Sequence[Finished] = ()
    """How the command ended: once, or once per guest."""
    metrics: list[Metric] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    """Why instruments could not measure something, each in a clause."""
    step: str = ""
    """The folder of the step that it is, or for which it warms up."""

    @property
    def exchange(self) -> Exchange:
        """The folder of results as the host reads it."""
        return Exchange(self.work, self.folder)


class Instrument(Protocol):
    """Measures a machine while a command runs in it; CONTRIBUTING.md says how to add one."""

    name: ClassVar[str]

    @property
    def needs(self) -> type[Capability]:
        """What a machine must be able to do."""
        ...

    def around(self, repetition: Repetition) -> AbstractContextManager[None]:
        """Measure from the entry of the block, before the command starts, to the end of the
        block."""
        ...


def run(
    repetition: Repetition,
    command: Command,
    variables: Mapping[str, str],
    instruments: Sequence[Instrument] = (),
    *,
    workdir: Path | None = None,
    everywhere: bool = False,
) -> None:
    """Run the command to its end; the result is in `repetition`.

    `workdir`: where a command runs that wants the user's folder. `everywhere`: run in all nested
    guests of the machine, where it has guests. Raises VtaxError when the command cannot be started
    or an instrument fails, MachineLostError when the machine is lost. The caller has to look at how
    the command ended.
    """
    given = {} if command.stdin is None else {STDIN: command.stdin}
    repetition.exchange.create({**command.files, **given})
    machine = repetition.machine
    with ExitStack() as stack:
        for instrument in instruments:
            if machine.offer(instrument.needs) is None:
                raise VtaxError(f"the machine does not offer '{instrument.needs.name}'")
            stack.enter_context(instrument.around(repetition))
        guests = machine.offer(Guests) if everywhere else None
        line, folder, timeout_s = repetition.argv, repetition.folder, command.timeout_s
        where = workdir if command.in_user_folder else None
        if guests:
            asked = MachineCommand(line, variables, folder, timeout_s, where)
            repetition.finished = guests.run(asked)
        else:
            ended = machine.run(line, variables, folder, timeout_s, workdir=where)
            repetition.finished = (ended,)
        repetition.exchange.check()
        if given:
            repetition.exchange.remove(STDIN)
