"""Where in a program its system calls are made: the call sites of a bill's dearest lines.

The recorder takes the stacks in a native run of its own, for that takes longer than counting. A
call site is the innermost function outside the C library, which only passes calls on.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vtax.compare.request import ComparisonRequest
from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.formats.bill import Bill, Site
from vtax.core.formats.files import read_bounded, write_atomic
from vtax.core.formats.folder import RAW, RunFolder
from vtax.core.recorder.intervals import CALL_SITES, MAX_JSON_BYTES, MAX_SITES_BYTES, RECORD
from vtax.core.recorder.options import RecordOptions
from vtax.core.runner.instruments.record import Recording
from vtax.core.runner.matching import ComparedVariant
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Done, Keeper, Listener, Plan, Runner, Step, Variant
from vtax.explain.operations import OPERATIONS
from vtax.workloads.outcomes import require_success

LABEL = "call-sites"
OPTIONS = RecordOptions({"every": "1s", "events": "calls", "call-sites": "", "without-vdso": ""})
MOST_LINES, MOST_SITES = 5, 3
PASSING_ON = re.compile(
    r"(libc|libpthread|ld-linux.*|ld-musl.*|libc\.musl.*)([-.][\d.]+)?\.so(\..*)?"
)
"""Files whose functions make calls for others: the C library and the loader."""
COLUMN = "calls."


@dataclass(frozen=True, slots=True)
class Sites:
    """Where calls were made: for each class of calls, how many by module and function."""

    counts: Mapping[str, Counter[tuple[str, str]]]
    note: str
    """How they are known, or why they are not."""


UNKNOWN = Sites({}, "call sites are not known: only eBPF sees them")


def find(request: ComparisonRequest, native: ComparedVariant, folder: RunFolder,
         listener: Listener) -> Sites:  # fmt: skip
    """Run the program natively once more while the recorder takes stacks; what it wrote stays in
    the run folder.

    No error where that cannot be: the bill is as right without.
    """
    # What an earlier bill of the same run has left.
    shutil.rmtree(folder.path / RAW / LABEL, ignore_errors=True)
    (folder.path / CALL_SITES).unlink(missing_ok=True)
    variant = Variant(
        LABEL,
        native.environment,
        folder.raw(LABEL),
        (Recording(OPTIONS, by_guest=True, rows=False),),
    )
    out = folder.instruments(LABEL)
    plan = Plan(
        (variant,),
        [Step(LABEL, 0, request.command, "r000", out / "0")],
        request.variables,
        warm_up=False,
        max_output_bytes=request.max_output_bytes,
        workdir=request.workdir,
        matched=True,
    )
    listener.extended(1)
    keeper = _Keeper(request, folder.path / CALL_SITES)
    try:
        Runner(plan, keeper, listener).run()
    except VtaxError as error:
        return Sites({}, f"call sites are not known: {error}")
    finally:
        shutil.rmtree(out, ignore_errors=True)
    return keeper.found or Sites({}, "call sites are not known: the program was not run")


@dataclass(slots=True)
class _Keeper(Keeper):
    request: ComparisonRequest
    kept: Path
    found: Sites | None = field(default=None)

    def read(self, this: Repetition) -> None:
        require_success(self.request.workload.label(), this.finished[0].outcome, this.exchange)

    def done(self, done: Done) -> None:
        try:
            stacks = read_bounded(done.step.out / CALL_SITES, MAX_SITES_BYTES)
            told = foreign_json.parse(read_bounded(done.step.out / RECORD, MAX_JSON_BYTES))
            calls, lost = (int(told["call_sites"][name]) for name in ("calls", "lost"))
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise VtaxError(f"the recorder's files cannot be used: {error}") from None
        write_atomic(self.kept, stacks)
        note = f"call sites of {calls:,} calls, in a native run of its own ({CALL_SITES})"
        if lost:
            note += f"; {lost:,} more had no room"
        self.found = Sites(by_class(stacks.decode(errors="replace").splitlines()), note)


def by_class(lines: Iterable[str]) -> Mapping[str, Counter[tuple[str, str]]]:
    """The call sites of folded stacks ``class;program;outer;...;inner COUNT``, by class: module
    and function. A line of another form raises ValueError."""
    found: dict[str, Counter[tuple[str, str]]] = {}
    for line in lines:
        stack, _, count = line.rpartition(" ")
        kind, program, *frames = stack.split(";")
        found.setdefault(kind, Counter())[_site(program, frames)] += int(count)
    return found


def _site(program: str, frames: Sequence[str]) -> tuple[str, str]:
    """Module and function; only the module where that is all that can be said."""
    module = program
    for frame in reversed(frames):
        module, mark, function = frame.partition("`")
        if not mark:
            module, mark, function = frame.rpartition("+")
            function = mark + function
        if module and not PASSING_ON.fullmatch(module):
            return module, function
    return module or program, ""


def with_sites(bill: Bill, sites: Sites) -> Bill:
    """A bill whose dearest lines have their dearest call sites."""
    columns = {each.name: each.columns for each in OPERATIONS}
    dear = [line.operation for line in bill.lines if line.seconds][:MOST_LINES]
    lines = []
    for line in bill.lines:
        counts: Counter[tuple[str, str]] = Counter()
        for column in columns.get(line.operation, ()) if line.operation in dear else ():
            counts += sites.counts.get(column.removeprefix(COLUMN), Counter())
        whole = counts.total()
        found = tuple(
            Site(module=module, function=function, count=count, share=count / whole)
            for (module, function), count in counts.most_common(MOST_SITES)
        )
        lines.append(line.model_copy(update={"sites": found}))
    return bill.model_copy(update={"lines": tuple(lines)})
