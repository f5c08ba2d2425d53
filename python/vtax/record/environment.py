"""Recording in an environment: a machine is started, recorded while it works, and ended."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from vtax.environments.agent import OUTPUT_LIMIT_BYTES
from vtax.environments.base import Environment, MachineLike, allowed_cpus
from vtax.environments.lab.environment import Lab
from vtax.environments.lab.machine import LabMachine
from vtax.environments.machine import Machine
from vtax.errors import MisuseError, VtaxError
from vtax.formats.folder import RunFolder
from vtax.record import folder, host, inside, lab, workload
from vtax.record.folder import Place
from vtax.record.options import Options
from vtax.workloads.base import Outcome

GUEST_PATH = "/bin:/usr/bin"
"""Of a guest that has nothing but busybox."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A finished recording."""

    path: Path
    """The run folder."""
    outcomes: Sequence[Outcome]
    """How the workload ended, in each guest."""
    outputs: Sequence[Path]
    """Folders with its stdout and stderr."""
    interrupted: bool = False
    """Ctrl-C came; the rows are those until then."""


@dataclass(frozen=True, slots=True)
class Bench:
    """A started machine that can be recorded again and again."""

    machine: MachineLike
    work: Path
    by_guest: bool = False
    """The recorder runs in the machine, not on this one."""

    def record(
        self,
        argv: Sequence[str],
        options: Options,
        out: Path,
        *,
        name: str = "run",
        copies: int = 1,
        timeout_s: float | None = None,
    ) -> Recorded:
        """Record one workload; its rows go to `out`. `copies` run at once in each guest."""
        environment = _variables(self.machine)
        if isinstance(self.machine, LabMachine):
            ends: Sequence[Outcome] = lab.record(
                self.machine,
                self.work,
                argv,
                environment,
                options,
                out,
                name=name,
                copies=copies,
                timeout_s=timeout_s,
            )
            outputs = [self.work / f"{name}-{number}" for number in range(len(ends))]
            return Recorded(out, ends, outputs)
        assert isinstance(self.machine, Machine)
        recorded = inside.record if self.by_guest else host.record
        end = recorded(
            self.machine,
            self.work,
            argv,
            environment,
            options,
            out,
            name=name,
            copies=copies,
            timeout_s=timeout_s,
        )
        return Recorded(out, (end,), (self.work / name,))


@contextmanager
def started(environment: Environment, work: Path, *, by_guest: bool = False) -> Iterator[Bench]:
    """A machine on as many of the last CPUs as it has, ended afterwards."""
    cpus = allowed_cpus()
    # The emulated host of a lab has CPUs beside those of the guests.
    own = len(cpus) if isinstance(environment, Lab) else environment.shape().cpus
    machine = environment.start(work, cpus[-own:])
    try:
        yield Bench(machine, work, by_guest)
    finally:
        machine.close()


def fitting(environment: Environment, argv: Sequence[str]) -> Environment:
    """The environment as this workload needs it: a built-in one needs no files of the host."""
    if isinstance(environment, Lab) and environment.kind == "host" and workload.is_builtin(argv):
        return replace(environment, guest="builtin")
    return environment


def record_in(
    environment: Environment,
    spec: str,
    argv: Sequence[str],
    options: Options,
    out: Path | None = None,
    timeout_s: float | None = None,
    *,
    by_guest: bool = False,
    max_output_bytes: int = OUTPUT_LIMIT_BYTES,
) -> Recorded:
    """Record a workload in an environment, in a new run folder; `by_guest`: from within.

    It is stopped when it writes more than `max_output_bytes`.

    Raises MisuseError for what cannot be had there, VtaxError when the machine does not come up,
    the recorder fails or the workload cannot be started. How the workload ended is the caller's
    to look at.
    """
    if not argv:
        raise MisuseError("--in needs a workload", "name one after --")
    if by_guest:
        _require_own_recorder(environment, options)
    if isinstance(environment, Lab) and options.guest is not None:
        _require_shared_page(environment, options.guest)
    else:
        environment = fitting(environment, argv)
    environment.check()
    shape = environment.shape()
    place = Place(spec, cpus=shape.cpus, memory_bytes=environment.memory_limit())
    name = Path(argv[0]).name
    asked = options.asked() | ({"from": "guest"} if by_guest else {})
    run: RunFolder | None = None
    try:
        with folder.opened(out, name, argv, asked, place) as run:
            work = _work(run, spec)
            with started(environment, work, by_guest=by_guest) as bench:
                bench.machine.output_limit_bytes = max_output_bytes
                _describe(place, environment, bench.machine)
                return bench.record(argv, options, run.path, timeout_s=timeout_s)
    except KeyboardInterrupt:
        # A folder without a row is gone by now.
        if run is None or not run.path.exists():
            raise
        return Recorded(run.path, (), (), interrupted=True)


def _require_own_recorder(environment: Environment, options: Options) -> None:
    if isinstance(environment, Lab):
        raise MisuseError(
            "--from guest: the lab's guests are recorded by their host", "leave it out"
        )
    if options.guest is not None:
        raise MisuseError("--from guest and --guest exclude each other", "leave one of them out")


def _require_shared_page(lab: Lab, page: Path) -> None:
    if page.name != str(page):
        raise MisuseError(
            "--guest names a page of this machine, which the lab's recorder cannot see",
            "give a name without a folder: the lab's first guest publishes by itself",
        )
    if lab.kind != "host":
        raise MisuseError("the lab's guest shares no folder for its page", "use guest=host")


def _work(run: RunFolder, spec: str) -> Path:
    try:
        (run.path / "raw").mkdir(mode=0o700, exist_ok=True)
        return run.raw(spec)
    except OSError as error:
        raise VtaxError(f"cannot write in {run.path}: {error.strerror}") from None


def _describe(place: Place, environment: Environment, machine: MachineLike) -> None:
    place.description = environment.description(machine.facts)
    place.facts = machine.facts
    place.boot_s = machine.boot_s
    place.notes = machine.launch.notes


def _variables(machine: MachineLike) -> Mapping[str, str]:
    path = os.environ.get("PATH", "/usr/bin:/bin")
    if isinstance(machine, LabMachine):
        path = f"{path}:{GUEST_PATH}"
    return {"PATH": path, "LANG": "C.UTF-8"}
