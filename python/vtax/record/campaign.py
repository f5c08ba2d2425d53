"""`record --in`: one repetition in one environment, with the recorder as its instrument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.folder import RunFolder
from vtax.core.recorder.options import RecordOptions
from vtax.core.runner.given import NO_WISHES, Wishes, given
from vtax.core.runner.instruments.record import Recording
from vtax.core.runner.runner import Done, Keeper, Listener, Plan, Runner, Step, Variant
from vtax.environments import sharing
from vtax.environments.agent import OUTPUT_LIMIT_BYTES
from vtax.environments.base import Environment, MachineLike, require, working_folder
from vtax.environments.capabilities import GuestPage
from vtax.environments.guest_group import Grouped
from vtax.record import folder
from vtax.record.folder import RecordedMachine
from vtax.workloads import builtin
from vtax.workloads.base import Command, Outcome

NAME = "run"
"""Name of the workload's folder, below the machine's."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A finished recording."""

    path: Path
    """The run folder."""
    outcomes: Sequence[Outcome]
    """How the workload ended, in each guest."""
    outputs: Sequence[Path]
    """Folders with the workload's stdout and stderr."""
    interrupted: bool = False
    """Whether Ctrl-C came; the rows are those until then."""


def record_in(
    environment: Environment,
    spec: str,
    argv: Sequence[str],
    options: RecordOptions,
    out: Path | None = None,
    timeout_s: float | None = None,
    *,
    by_guest: bool = False,
    workdir: Path | None = None,
    max_output_bytes: int = OUTPUT_LIMIT_BYTES,
    wishes: Wishes = NO_WISHES,
    stdin: bytes | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Recorded:
    """Record a workload in an environment, in a new run folder; `by_guest`: from inside the guest.

    The workload runs in `workdir`; None: in the current folder, where the environment has it. It
    gets the user's variables and files as `wishes` say, and `stdin`; `note` is told what it does
    not get. It is stopped when it writes more than `max_output_bytes`.

    Raises MisuseError for what the environment cannot do, VtaxError when the machine does not come
    up, the recorder fails or the workload cannot be started. The caller has to look at how the
    workload ended.
    """
    if not argv:
        raise MisuseError("--in needs a workload", "name one after --")
    instrument = Recording(options, by_guest)
    environment = _fitting(environment, argv, instrument)
    environment.check()
    machine = {spec: environment}
    workdir = working_folder(workdir, machine)
    own = not builtin.is_builtin(argv)
    gets = given(machine, argv[:1] if own else (), workdir, wishes)
    environment = environment.with_shown(gets.shown)
    if environment.has_folder(Path("/usr")) and own:
        sharing.require_seen({spec: environment}, builtin.require_here(argv))
    for said in gets.said:
        note(said)
    recorded = RecordedMachine(
        spec, cpus=environment.shape().cpus, memory_bytes=environment.memory_limit()
    )
    asked = options.asked() | ({"from": "guest"} if by_guest else {})
    run: RunFolder | None = None
    try:
        with folder.opened(out, Path(argv[0]).name, argv, asked, recorded) as run:
            work = _work(run, spec)
            variant = Variant(spec, environment, work, (instrument,))
            command = Command(
                tuple(builtin.line(argv, environment.agent_inside())),
                timeout_s=timeout_s,
                in_user_folder=True,
                stdin=stdin,
            )
            keeper = _Keeper(recorded)
            step = Step(spec, 0, command, NAME, run.path)
            plan = Plan(
                (variant,),
                (step,),
                gets.environment,
                max_output_bytes=max_output_bytes,
                workdir=workdir,
                everywhere=True,
            )
            Runner(plan, keeper, Listener()).run()
            return Recorded(run.path, keeper.outcomes, _outputs(work, len(keeper.outcomes)))
    except KeyboardInterrupt:
        # A folder without a row has been removed by now.
        if run is None or not run.path.exists():
            raise
        return Recorded(run.path, (), (), interrupted=True)


@dataclass(slots=True)
class _Keeper(Keeper):
    """Records where the recording is made, and keeps how the workload ended."""

    recorded: RecordedMachine
    outcomes: Sequence[Outcome] = field(default=())

    def booted(self, variant: Variant, machine: MachineLike) -> None:
        self.recorded.description = variant.environment.description(machine.facts)
        self.recorded.facts = machine.facts
        self.recorded.boot_s = machine.boot_s
        self.recorded.notes = machine.launch.notes

    def done(self, done: Done) -> None:
        self.outcomes = [each.outcome for each in done.repetition.finished]


def _fitting(environment: Environment, argv: Sequence[str], instrument: Recording) -> Environment:
    """The environment as this workload and this recording need it. Raises MisuseError if it cannot
    be."""
    page = instrument.options.guest
    if instrument.by_guest and page is not None:
        raise MisuseError("--from guest and --guest exclude each other", "leave one of them out")
    what = "--from guest" if instrument.by_guest else "--in"
    require(environment, instrument.needs, what)
    if page is None:
        return environment.for_builtin() if builtin.is_builtin(argv) else environment
    if GuestPage in environment.offers:
        require(environment, GuestPage, "--guest")
        if page.name != str(page) and not isinstance(environment, Grouped):
            raise MisuseError(
                f"--guest names a page of this machine, which {environment.name}'s recorder "
                "cannot see",
                "give a name without a folder: the guest publishes by itself",
            )
    return environment


def _work(run: RunFolder, spec: str) -> Path:
    try:
        (run.path / "raw").mkdir(mode=0o700, exist_ok=True)
        return run.raw(spec)
    except OSError as error:
        raise VtaxError(f"cannot write in {run.path}: {error.strerror}") from None


def _outputs(work: Path, count: int) -> Sequence[Path]:
    """Folders of the workload's output: one, or one for each guest."""
    each = [work / f"{NAME}-{number}" for number in range(count)]
    return each if each[0].is_dir() else (work / NAME,)
