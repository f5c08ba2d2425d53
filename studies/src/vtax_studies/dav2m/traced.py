"""Real programs: traced as plain guests, and each trace simulated as the profiles are."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import polars as pl

from vtax.core.errors import VtaxError
from vtax.core.formats.scratch import scratch
from vtax.paging import locality, machine_description, walk_locality
from vtax_studies.dav2m.data import Data, covering_share
from vtax_studies.dav2m.kinds import KINDS, compiled, timed
from vtax_studies.dav2m.setup import (
    CHOICES,
    MACHINE,
    PAPER_SETTINGS,
    PHASED,
    SECOND_MACHINE,
    Choice,
)
from vtax_studies.dav2m.simulate import (
    AFTER,
    COMPARED,
    SENSITIVE,
    STEP,
    Frames,
    Job,
    Scripted,
    compared,
    excess,
    run,
    simulated,
    stamped,
)
from vtax_studies.dav2m.validation.programs import PROGRAMS as VALIDATED
from vtax_studies.dav2m.validation.programs import Program, shell
from vtax_studies.dav2m.validation.tracing import trace_into
from vtax_studies.model import Progress, StudyOptions

MEMORY = "2G"
"""As in the paper's setup."""
KERNEL = {"4K": "transparent_hugepage=never", "2M": "transparent_hugepage=always"}
"""The guest kernel's parameter by page size: anonymous memory in large pages where it fits."""
WINDOWS = 200
"""Windows of a trace: the paper's, of 1e9 instructions, would be longer than the programs."""
FOLDER = "traces"
KIND = "kind-"
"""The traces of programs of a benchmark's kind have names that begin so."""
QUICK = ("gcc", "gzip")
VARIANTS = (
    None,
    *(c for c in CHOICES if (c.parameter, c.shown) in {("threshold_rise", "1 (never)"),
                                                       ("prepaging", "off")}),
)  # fmt: skip
"""The variants of DAV2M that claims are about."""

_FUNCTION = (
    "int g$i(const char*,int);int f$i(int*a,int n){int s=$i;for(int i=0;i<n;i++){a[i]+=s*i;"
    'if(a[i]%($i+2))s^=a[i]>>2;else s+=$i*n;}return g$i(\\"f$i\\",s);}'
)
_COMPILED = f'for i in $(seq 50); do echo "{_FUNCTION}"; done | gcc -O2 -S -x c -o /dev/null -'
_NUMBERS = "with recursive n(i) as (select 1 union all select i+1 from n where i < 150000)"
_SQL = (
    f"create table t (i integer, s text); insert into t {_NUMBERS} select i, hex(i * 7919) from n; "
    "create index k on t (s); select count(*) from t a join t b on a.s = b.s;"
)
_HASH = 'my %h; $h{$_ % 50000} .= "x" x ($_ % 7) for 1..2000000; print scalar(keys %h), "\\n"'
_HPCC = next(program for program in VALIDATED if program.name == "hpcc")

PROGRAMS: Sequence[Program] = (
    shell("gcc", _COMPILED, "gcc"),
    shell("gzip", "gzip -c /usr/bin/perl > /dev/null", "gzip", "perl"),
    Program("sqlite3", ("sqlite3", ":memory:", _SQL), ("sqlite3",)),
    Program("python3", ("/usr/bin/python3", "-S", "-c",
            "print(len({str(i): i for i in range(400000)}))"), ("/usr/bin/python3",)),
    Program("perl", ("perl", "-e", _HASH), ("perl",)),
    shell("pipeline", "seq 200000 | sed s/1/one/ | grep -v 7 | sort -r | tr a-z A-Z | wc -l",
          "seq"),
    _HPCC,
    Program("gups", ("gups", "--mem", "128M", "--count", "10000000")),
)  # fmt: skip
"""gcc and gzip are in the paper, with other inputs; the others stand for themselves."""


def measure(options: StudyOptions, model: Data, progress: Progress) -> Data:
    """Trace the programs, and simulate the traces.

    `model` has the costs of the machines. Raises KeyboardInterrupt after Ctrl-C.
    """
    left_out: dict[str, str] = {}
    wanted = [each for each in PROGRAMS if not options.quick or each.name in QUICK]
    with _folder(options.folder) as folder:
        files = _traces(wanted, folder, options, left_out, progress)
        names = tuple(dict.fromkeys(name for name, _ in files))
        files = {**files, **_kinds(folder, options, left_out)}
        found = run(planned(files, options), progress) if files else Data()
        shown = pl.concat(_timed(folder, left_out)) if not found.kinds.is_empty() else found.timed
    return replace(
        found, machines=model.machines, arrows=model.arrows, timed=shown, programs=names,
        left_out=left_out,
    )  # fmt: skip


def _kinds(folder: Path, options: StudyOptions, left_out: dict[str, str]) -> Files:
    """The traces of programs of the benchmarks' kind, with both page sizes."""
    found: dict[tuple[str, str], Path] = {}
    for kind in KINDS if options.figure in (None, "2") and not options.quick else ():
        try:
            made = {page: _trace(compiled(kind, page, folder), page, folder) for page in KERNEL}
            found |= {(KIND + kind.name, page): file for page, file in made.items()}
        except VtaxError as error:
            left_out[kind.name] = str(error)
    return found


def _timed(folder: Path, left_out: dict[str, str]) -> Iterator[pl.DataFrame]:
    """The same programs on this machine, without anything of the study beside them."""
    yield pl.DataFrame(schema=dict.fromkeys(("benchmark", "page"), pl.String)
                       | {"round": pl.Int64, "seconds": pl.Float64})  # fmt: skip
    for kind in KINDS:
        try:
            yield timed(kind, folder)
        except VtaxError as error:
            left_out[kind.name] = str(error)


@contextmanager
def _folder(study: Path | None) -> Iterator[Path]:
    if study is None:
        with scratch("traced") as folder:
            yield folder
    else:
        folder = study / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


Files = Mapping[tuple[str, str], Path]
"""Traces by program and page size."""


def _traces(
    programs: Sequence[Program],
    folder: Path,
    options: StudyOptions,
    left_out: dict[str, str],
    progress: Progress,
) -> Files:
    """The traces that the options need; those that are in the folder are not made again."""
    pages = ("4K", "2M") if options.figure in (None, "2") else ("4K",)
    found: dict[tuple[str, str], Path] = {}
    for at, (program, page) in enumerate((each, page) for each in programs for page in pages):
        try:
            if program.name not in left_out:
                found[program.name, page] = _trace(program, page, folder)
        except VtaxError as error:
            left_out[program.name] = str(error)
        progress(at + 1, len(programs) * len(pages), f"tracing {program.name}, {page} pages")
    return {key: file for key, file in found.items() if key[0] not in left_out}


def _trace(program: Program, page: str, folder: Path) -> Path:
    """The program's trace, whose name has what it depends on. Raises VtaxError without one."""
    if (reason := program.missing()) is not None:
        raise VtaxError(reason)
    if page == "2M" and not program.needs:
        # The built-in workloads ask the kernel for small pages unless they are told.
        program = replace(program, words=(*program.words, "--huge"))
    content = repr((program.argv(""), MEMORY, KERNEL[page]))
    key = sha256(content.encode()).hexdigest()[:8]
    file = folder / f"{program.name}-{page}-{key}.vtrace"
    if not file.exists():
        unfinished = file.with_suffix(".part")
        try:
            trace_into(unfinished, program.argv, MEMORY, warm_up=False, parameters=(KERNEL[page],))
            unfinished.rename(file)
        finally:
            unfinished.unlink(missing_ok=True)
    return file


def instructions(file: Path) -> int:
    """The length of a whole trace: the last field of its end frame (docs/trace-format.md)."""
    with file.open("rb") as content:
        content.seek(-8, 2)
        return int.from_bytes(content.read(8), "little")


def planned(files: Files, options: StudyOptions) -> list[Job]:
    """The simulations of these traces that the options ask for."""
    jobs = [job for (name, page), file in files.items() for job in _jobs(name, page, file)]
    return [job for job in jobs if options.figure is None or options.figure in job.figures]


def _jobs(name: str, page: str, file: Path) -> Iterator[Job]:
    if name.startswith(KIND):
        yield Job(f"trace of {name}, {page}", frozenset("2"), of_kind, (name, page, file))
        return
    yield Job(f"trace of {name}, {page}", frozenset("2"), native, (name, page, file))
    yield Job(f"entries of {name}, {page}", frozenset("3"), entries, (name, page, file))
    if page != "4K":
        return
    whole = frozenset(("4", "5", "7", "8", "9", "10", "11", "12"))
    yield Job(f"trace of {name}", whole, focus, (name, file, MACHINE, COMPARED))
    second = (name, file, SECOND_MACHINE, SENSITIVE)
    yield Job(f"trace of {name}, second machine", frozenset(("10",)), focus, second)
    yield Job(f"regions of {name}", frozenset("3"), regions, (name, page, file))
    yield Job(f"switches in {name}", frozenset("6"), transitions, (name, file))
    for choice in VARIANTS if name in PHASED else ():
        figures = frozenset(("9", "choices"))
        yield Job(f"variants of DAV2M, trace of {name}", figures, variant, (name, file, choice))


def _simulated(file: Path, machine: str, modes: Any, window: int, **given: Any) -> Any:
    settings = {"guest_levels": 4, "window": window, **given}
    return simulated(file, machine_description(machine), modes, 1, **settings)


def _window(file: Path) -> int:
    return max(1, instructions(file) // WINDOWS)


def focus(name: str, file: Path, machine: str, modes: Sequence[str]) -> Frames:
    """A trace under every mode."""
    result = _simulated(file, machine, modes, _window(file))
    return compared(result, name, machine)


def native(name: str, page: str, file: Path) -> Frames:
    """A trace natively."""
    totals = _simulated(file, MACHINE, ("native",), _window(file)).modes
    totals = totals.select("instructions", "cycles", "l2_tlb_misses")
    return {"pages": stamped(totals, benchmark=name, page=page)}


def of_kind(name: str, page: str, file: Path) -> Frames:
    """A trace of a program of a benchmark's kind natively."""
    totals = _simulated(file, MACHINE, ("native",), _window(file)).modes
    parts = totals.select("instructions", "l2_tlb_misses", "^cycles_(base|tlb|walks)$")
    return {"kinds": stamped(parts, benchmark=name.removeprefix(KIND), page=page)}


def entries(name: str, page: str, file: Path) -> Frames:
    """How few page-table entries have most TLB misses, and most reads of walks."""
    settings = {**PAPER_SETTINGS, "guest_levels": 4}
    found = walk_locality(file, machine_description(MACHINE), **settings)
    rows = [
        {
            "what": what,
            "entries": len(counts),
            "covering_percent": covering_share(counts) if counts else None,
        }
        for what, counts in zip(("misses", "reads"), found, strict=True)
    ]
    return {"entries": stamped(pl.DataFrame(rows), benchmark=name, page=page)}


def regions(name: str, page: str, file: Path) -> Frames:
    """References to each region that one entry of the first table level covers."""
    counts = locality(file, sys.maxsize)
    rows = pl.DataFrame({"region": range(len(counts)), "references": counts})
    return {"locality": stamped(rows, benchmark=name, page=page)}


def variant(name: str, file: Path, choice: Choice | None) -> Frames:
    """DAV2M with one open point changed, or with all defaults."""
    parameters = {"dav2m": choice.values} if choice else None
    modes = _simulated(file, MACHINE, ("native", "dav2m"), _window(file), parameters=parameters)
    totals = modes.modes.filter(mode="dav2m").select("switches", "overhead_percent")
    parameter, setting = (choice.parameter, choice.shown) if choice else ("", "")
    return {"choices": stamped(totals, benchmark=name, parameter=parameter, setting=setting)}


def transitions(name: str, file: Path) -> Frames:
    """What a switch in each direction costs in the middle of the program, over time."""
    machine = machine_description(MACHINE)
    steps = instructions(file) // STEP
    after = min(AFTER, steps // 4)
    before = steps // 2 - after
    policy = Scripted(before, before + after)
    limit = float(STEP * (before + 2 * after))
    modes = ("shadow", "nested", policy)
    windows = _simulated(file, MACHINE, modes, STEP, instructions=limit).windows
    rows = []
    for direction, start in (("s2n", before), ("n2s", before + after)):
        curve = excess(windows, start, start + after, float(machine["clock_hz"]))
        rows.append(stamped(curve, benchmark=name, phase="middle", direction=direction))
    return {"transitions": pl.concat(rows)}
