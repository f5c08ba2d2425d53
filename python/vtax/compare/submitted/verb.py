"""`vtax submit` and `vtax collect`: a comparison in batch jobs of Slurm, apart from the session."""

from __future__ import annotations

import os
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.compare import report
from vtax.compare.history import gate
from vtax.core.command.options import RUNS, Json, Notes, Out, ShownNotes

if TYPE_CHECKING:
    from vtax.compare.submitted.folder import Part
    from vtax.core.command.spec_file import SpecFile

EXAMPLES = """\b
Examples:
  vtax submit --partition batch --nodes 4 --time 2h --chain 3 compare.yaml
  vtax collect runs/20261129T120000Z-compare
  vtax collect --wait runs/20261129T120000Z-compare
  vtax collect --cancel runs/20261129T120000Z-compare
"""
SETTINGS: dict[str, Any] = {"epilog": EXAMPLES}
LOOK_EVERY_S = 5.0
MOST_CHAINED = 1000


def submit(
    spec: Annotated[Path, typer.Argument(help="A spec file of vtax compare.", metavar="SPEC")],
    nodes: Annotated[
        int, typer.Option(min=1, max=64, help="Nodes that measure at once, each its share.")
    ] = 1,
    partition: Annotated[
        str | None, typer.Option(help="Slurm's partition. Default: Slurm's.", metavar="NAME")
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            "--time", help="Time limit of a job. Default: the partition's.", metavar="TIME"
        ),
    ] = None,
    chain: Annotated[
        int,
        typer.Option(
            min=1,
            max=MOST_CHAINED,
            help="Jobs, each after the end of the one before: for more than one time limit.",
        ),
    ] = 1,
    out: Out = RUNS,
) -> None:
    """Let Slurm run a comparison in batch jobs, and return at once.

    On each node vtax measures its share of the repetitions, with every environment of the spec, so
    that each round runs on one node. vtax, this folder and DIR have to be there under the same
    paths. Ctrl-C and the end of your session change nothing; vtax collect shows what there is.
    """
    from vtax.compare.submitted import folder as submitted_folder
    from vtax.compare.submitted import jobs
    from vtax.core.command import spec_file
    from vtax.core.formats.folder import RunFolder
    from vtax.core.units import parse_duration

    found = spec_file.read(spec)
    repetitions = _repetitions(found)
    time_s = None if limit is None else parse_duration(limit)
    made = RunFolder.create(out, spec.stem)
    folder = made.path.absolute()
    made.write_spec(spec.read_text())
    wanted = jobs.Wanted(nodes, partition, time_s)
    try:
        own = submitted_folder.Submitted(
            name=spec.stem,
            repetitions=repetitions,
            seed=secrets.randbits(31),
            time_s=time_s,
            jobs=(),
        )
        # A job may begin before the next one is submitted.
        submitted_folder.write(folder, own)
        numbers = jobs.submit(wanted, folder, chain)
        submitted_folder.write(folder, own.model_copy(update={"jobs": numbers}))
    except BaseException:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
        raise
    print(f"submitted: {', '.join(numbers)}\ncollect:   vtax collect {made.path}")


def _repetitions(found: SpecFile) -> int:
    """The rounds that a spec asks for. Raises MisuseError for what no batch job can do."""
    from vtax.compare.request import USUAL_REPETITIONS

    repetitions = USUAL_REPETITIONS
    for entry in found.entries:
        if entry.key == "verb" and entry.values != ("compare",):
            raise found.error(entry, "vtax submit takes a spec of vtax compare")
        if entry.key == "until":
            raise found.error(entry, "a job cannot know of the others' intervals", "write reps: N")
        if entry.key == "audit" and entry.is_switch:
            raise found.error(entry, "vtax submit does not audit", "vtax compare --audit there")
        if entry.key == "param" and any("=random:" not in each for each in entry.values):
            raise found.error(entry, "vtax submit takes one comparison", "a spec for each value")
        if entry.key == "in" and any(map(_allocates, entry.values)):
            raise found.error(entry, "in a job the node is native", "write native, or compare it")
        if entry.key in {"reps", "repetitions"}:
            if not entry.values[0].isdecimal() or not int(entry.values[0]):
                raise found.error(entry, f"reps: {entry.values[0]} is not a number of repetitions")
            repetitions = int(entry.values[0])
    return repetitions


def _allocates(spec: str) -> bool:
    """Whether an environment asks for nodes of its own."""
    from vtax.core.specs import parse_spec
    from vtax.environments import registry
    from vtax.environments.capabilities import Nodes

    cls = registry().get(parse_spec(spec).name)
    return cls is not None and Nodes in cls.offers


def collect(
    run: Annotated[Path, typer.Argument(help="A folder of vtax submit.", metavar="RUN")],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all jobs have ended.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the jobs first.")] = False,
    measure: Annotated[bool, typer.Option("--measure", hidden=True)] = False,
    notes: ShownNotes = Notes.FEW,
    as_json: Json = False,
) -> None:
    """Show what a submitted comparison has measured so far, as one run.

    Every repetition that had ended counts, whatever became of its job. The run folder gets the
    samples, the report and the record of one comparison; collect again for more.
    """
    from vtax.compare.submitted import folder as submitted_folder
    from vtax.compare.submitted import jobs
    from vtax.core.errors import VtaxError

    if measure:
        _measure(run)
        return
    own = submitted_folder.read(run)
    if cancel:
        jobs.cancel(own.jobs)
    states = _states(own.jobs)
    while (wait or cancel) and jobs.go_on(states):
        time.sleep(LOOK_EVERY_S if wait else 0.2)
        states = _states(own.jobs)
    found = list(_parts(run))
    for number, state in states.items():
        print(f"job {number}: {state}", file=sys.stderr)
    ended = not jobs.go_on(states)
    if not found and ended:
        said = submitted_folder.last_words(run) or "its jobs printed nothing"
        raise VtaxError(f"nothing was measured: {said}", f"see {run}/job-*.txt")
    if not found:
        raise VtaxError("nothing was measured yet", f"collect again later: vtax collect {run}")
    _show(run, found, own.repetitions, notes, ended=ended, as_json=as_json)


def _states(numbers: tuple[str, ...]) -> dict[str, str]:
    """The jobs' states; empty, with a line, where Slurm does not answer: the samples are there."""
    from vtax.compare.submitted import jobs
    from vtax.core.errors import VtaxError

    try:
        return jobs.states(numbers)
    except VtaxError as error:
        print(f"vtax: {error}", file=sys.stderr)
        return {}


def _parts(run: Path) -> list[Part]:
    """The parts that can be read; each of the others is a line."""
    from vtax.compare.submitted import folder as submitted_folder
    from vtax.core.errors import VtaxError

    found = []
    for each in submitted_folder.parts(run):
        if isinstance(each, VtaxError):
            print(f"left out: {each.message}", file=sys.stderr)
        else:
            found.append(each)
    return found


def _show(
    run: Path, found: list[Part], repetitions: int, notes: Notes, *, ended: bool, as_json: bool
) -> None:
    from vtax.compare.analysis import compare
    from vtax.compare.submitted.merge import merged
    from vtax.core.formats.folder import RunFolder

    whole = merged(found, repetitions, ended=ended)
    folder = RunFolder(run)
    if folder.claim():
        folder.write_record(whole.record)
        folder.finish(whole.samples)
        folder.release()
    comparison = compare(whole.record, whole.samples, str(run))
    asked = gate.opened(None, None, None, None, beside=run.parent, as_json=as_json)
    report.show(comparison, whole.samples, run, notes, asked, as_json=as_json)


def _measure(run: Path) -> None:
    """Become the vtax that measures this node's share; nothing is left to do at the end."""
    from vtax.compare.submitted import jobs
    from vtax.core import slurm

    line = jobs.measure_line(run, _parts(run))
    if line is not None:
        # mpirun would start programs through Slurm where it sees the job's variables.
        os.execve(line[0], line, slurm.variables())


def add(app: typer.Typer) -> None:
    """Make them verbs of `app`."""
    app.command(short_help="Let Slurm run a comparison in batch jobs.", **SETTINGS)(submit)
    app.command(short_help="Show what a submitted comparison has measured.", **SETTINGS)(collect)
