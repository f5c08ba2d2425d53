"""The recorder as an instrument: rows of events while a command runs.

Outside of the machine the recorder runs either here, on the machine's processes, or in a host
around the machine, on that host's guests. Inside the machine it starts the command itself: with a
mediated vPMU only the guest can count its own hardware events, by the guest's clock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.formats.exchange import Exchange
from vtax.core.formats.files import write_atomic
from vtax.core.recorder.intervals import (
    CALL_SITES,
    EVENTS,
    MAX_ROWS_BYTES,
    RECORD,
    ROWS,
    STACKS,
    STREAM,
)
from vtax.core.recorder.options import RecordOptions, Target
from vtax.core.recorder.recorder import OWN_WORDS, Recorder, failure
from vtax.core.runner.repetition import Repetition
from vtax.environments import guest_page
from vtax.environments.agent import unless_lost
from vtax.environments.background import Background
from vtax.environments.capabilities import (
    Capability,
    GuestPage,
    RecordInside,
    RecordOutside,
    Shell,
)
from vtax.workloads.base import Outcome, tail

FOLDERS_THERE = PurePosixPath("/run/vtax/recordings")
READY_TENTHS = 600
"""Tenths of a second; an emulated CPU verifies the eBPF programs for about 5 s."""
FINISH_TENTHS = 1800
"""With four domUs on a busy emulated CPU it took more than 50 s."""
MAX_FILE_BYTES = 1 << 30
FOLDER_INSIDE = "rows"
"""Folder of the rows of a recorder inside the machine, below the folder of the workload's
output."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Rows of events of each repetition, as `vtax record` makes them.

    They are files in the repetition's `out`. After Ctrl-C the files are finished first.
    """

    name: ClassVar[str] = "record"

    options: RecordOptions = field(default_factory=RecordOptions)
    by_guest: bool = False
    """Whether the recorder runs in the machine, beside the command."""
    rows: bool = True
    """Whether the rows of a recorder in the machine are wanted, beside their sums."""

    @property
    def needs(self) -> type[Capability]:
        return RecordInside if self.by_guest else RecordOutside

    @contextmanager
    def around(self, repetition: Repetition) -> Iterator[None]:
        repetition.out.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        outside, inside = (repetition.machine.offer(each) for each in (RecordOutside, RecordInside))
        if self.by_guest and isinstance(inside, RecordInside):
            recording = _inside(repetition, inside, self.options, self.rows)
        elif isinstance(outside, RecordOutside) and outside.host:
            recording = _around(repetition, outside, outside.host, self.options)
        elif isinstance(outside, RecordOutside):
            recording = _here(repetition, outside, self.options)
        else:
            raise VtaxError("the machine cannot be recorded")
        with recording:
            yield


@contextmanager
def _here(repetition: Repetition, outside: RecordOutside, options: RecordOptions) -> Iterator[None]:
    """Record on this machine. A page that is a file of this machine is read as it is."""
    target = Target(**outside.target)
    named = options.guest is not None and options.guest.name == str(options.guest)
    offer = repetition.machine.offer(GuestPage) if named else None
    with _published(repetition, offer) as pages:
        own = options.with_pages(pages) if pages else options
        arguments = [*own.arguments(), *target.arguments()]
        with Recorder(arguments, repetition.out) as recorder:
            recorder.ready()
            try:
                yield
            except KeyboardInterrupt:
                recorder.finish()
                raise
            recorder.finish()


@contextmanager
def _published(repetition: Repetition, offer: GuestPage | None) -> Iterator[Sequence[Path]]:
    """The pages in which the machine's guests publish while the block runs; none without an offer.

    After an error the publishers are left to end with their guests.
    """
    if offer is None:
        yield ()
        return
    guests = offer.guests or [(repetition.machine, repetition.work)]
    begun = [
        (machine, work, guest_page.begin(machine, work, device=offer.device))
        for machine, work in (() if offer.published else guests)
    ]
    yield [offer.seen_at] if offer.seen_at else [page.path for _, _, page in begun]
    for machine, work, page in begun:
        guest_page.end(machine, work, page)


@contextmanager
def _around(
    repetition: Repetition, outside: RecordOutside, host: Shell, options: RecordOptions
) -> Iterator[None]:
    """Record in the machine's own host. With `options.guest` the guest publishes counters."""
    machine = repetition.machine
    offer = machine.offer(GuestPage) if options.guest is not None else None
    with _published(repetition, offer) as pages:
        own = options.with_pages(pages) if pages else options
        own = own.with_clock(machine.clock_skew(), host.clock_skew())
        recorder = RemoteRecorder(host, outside.program, repetition.folder)
        recorder.start(own, Target(**outside.target))
        try:
            yield
            recorder.finish()
        except KeyboardInterrupt:
            with contextlib.suppress(VtaxError):
                recorder.finish()
                recorder.fetch(repetition.out)
            raise
        except VtaxError:
            with contextlib.suppress(VtaxError):
                recorder.kill()
            raise
        recorder.fetch(repetition.out)


@contextmanager
def _inside(
    repetition: Repetition, inside: RecordInside, options: RecordOptions, with_rows: bool
) -> Iterator[None]:
    """Let the recorder run in the machine and start the command."""
    target = Target(command=tuple(repetition.argv))
    there = repetition.machine.launch.work_inside / repetition.folder / FOLDER_INSIDE
    line = [inside.program(), "record", "--child", "--out", str(there)]
    repetition.argv = [*line, *options.arguments(), *target.arguments()]
    rows = Exchange(repetition.exchange.path, FOLDER_INSIDE)
    out = repetition.out
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(VtaxError):
            _fetch(rows, out, (STREAM, EVENTS))
        raise
    finished = repetition.finished[0]
    if finished.outcome.exit_code != 0:
        said = repetition.exchange.read_text("stderr")
        raise failure(finished.outcome.exit_code, said)
    given = ([ROWS] if with_rows else []) + _folded(options)
    _fetch(rows, out, (*given, EVENTS, RECORD))
    try:
        found = foreign_json.parse_object((out / RECORD).read_bytes())
    except ValueError as error:
        raise VtaxError(f"the recorder in the machine wrote no {RECORD}: {error}") from None
    repetition.finished = (replace(finished, told=_of_the_command(finished.told, found)),)


def _folded(options: RecordOptions) -> list[str]:
    """The files of stacks that a recording has."""
    files = {"call-sites": CALL_SITES, "stacks": STACKS}
    return [file for name, file in files.items() if name in options.given]


def _fetch(rows: Exchange, out: Path, names: Sequence[str]) -> None:
    """Fetch files that the guest has written; nothing but their bytes is trusted."""
    out.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        write_atomic(out / name, rows.read_bytes(name, MAX_ROWS_BYTES))


def _of_the_command(recorder: Outcome, found: Mapping[str, Any]) -> Outcome:
    """The command's outcome: the recorder ends with 0 however its command ended, and reports
    that."""
    end = found.get("end")
    own = end.get("command") if isinstance(end, Mapping) else None
    if not isinstance(own, Mapping):
        return recorder
    return replace(recorder, exit_code=own.get("exit_code"), signal=own.get("signal"))


class RemoteRecorder:
    """A recorder in a machine around the measured one: started, finished, its files fetched."""

    def __init__(self, host: Shell, program: str, name: str = "0") -> None:
        self._host, self._program = host, program
        self._running = Background(host, FOLDERS_THERE / name)
        self._out = self._running.folder / "rows"
        self._files = [ROWS, EVENTS, RECORD]

    def start(self, options: RecordOptions, target: Target) -> None:
        """Start the recorder and wait until it counts; raises VtaxError with its own words."""
        line = [self._program, "record", "--out", str(self._out)]
        line += [*options.arguments(), *target.arguments()]
        self._files += _folded(options)
        self._running.start(line, "start the recorder")
        if not self._running.wait(f"[ -e {self._out / STREAM} ]", READY_TENTHS):
            raise self._failed("did not begin in time")

    def finish(self) -> None:
        """Ask the recorder to end, and wait until its files are complete. Raises VtaxError when it
        does not finish in time.
        """
        self._running.signal("INT")
        self._running.ended(FINISH_TENTHS)
        if self._running.shell(f"[ -e {self._out / RECORD} ]") != 0:
            raise self._failed("did not finish")

    def fetch(self, out: Path) -> None:
        """Fetch the files, and remove them in the machine."""
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in self._files:
            write_atomic(out / file, self._host.pull(str(self._out / file), MAX_FILE_BYTES))
        self._running.remove()

    def kill(self) -> None:
        """End the recorder now, if it runs."""
        self._running.signal("KILL")

    def _failed(self, what: str) -> VtaxError:
        said = tail(self._running.errors(), 1)
        with unless_lost():
            self.kill()
        if said.startswith(OWN_WORDS):
            return failure(None, said)
        # Another program's, such as what xentrace says of itself when it begins.
        more = f"; its last words: {said}" if said else ""
        return VtaxError(f"the recorder around the machine {what}{more}")
