"""Large pages: programs of the kind of benchmarks that are not free, traced and timed."""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import polars as pl

from vtax.core.errors import VtaxError
from vtax.core.page.format import signed
from vtax_studies.dav2m import data as m
from vtax_studies.dav2m.data import Data, need
from vtax_studies.dav2m.validation.programs import Program
from vtax_studies.model import StudyTable
from vtax_studies.rule import Missing

SOURCE = "kinds.c"
ADVICE = {"4K": "small", "2M": "large"}
ROUNDS = 5
TIMEOUT_S = 120.0
LEAST_GAIN_PERCENT = 10.0
"""Below it a benchmark counts as insensitive to the page size; the study's reading."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A program of the study's own that does what some benchmarks do."""

    name: str
    about: str
    benchmarks: Sequence[str]


KINDS = (
    Kind("chase", "pointers through 192 MB in random order", ("mcf",)),
    Kind("stencil", "seven-point stencil over twelve arrays, 201 MB", ("cactusADM", "zeusmp")),
    Kind("streams", "loops over fourteen two-dimensional arrays, 200 MB", ("swim",)),
)
STATED: Mapping[str, Callable[[float], bool]] = {
    **dict.fromkeys(("mcf", "cactusADM"), lambda gain: gain < 0),
    **dict.fromkeys(("zeusmp", "swim"), lambda gain: abs(gain) < LEAST_GAIN_PERCENT),
}
"""What the paper says of the gain, in percent (sections 3 and 4)."""


def compiled(kind: Kind, page: str, folder: Path) -> Program:
    """The program, compiled into the folder. Raises VtaxError without a compiler."""
    binary = folder / "kinds"
    with resources.as_file(resources.files(__package__) / SOURCE) as source:
        argv = ["gcc", "-O2", "-o", str(binary), str(source)]
        try:
            if not binary.exists():
                subprocess.run(argv, check=True, capture_output=True, timeout=TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise VtaxError(f"{SOURCE} cannot be compiled: {error}") from None
    words = (str(binary), kind.name, ADVICE[page])
    return Program(f"kind-{kind.name}", words, (str(binary),))


def timed(kind: Kind, folder: Path) -> pl.DataFrame:
    """Seconds of the work on this machine with both page sizes, in turn. Raises VtaxError."""
    enabled = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not enabled.exists() or "[never]" in enabled.read_text():
        raise VtaxError("this kernel gives no large pages to programs that ask for them")
    rows = []
    for turn in range(ROUNDS):
        for page in ADVICE:
            argv = [os.fspath(word) for word in compiled(kind, page, folder).words]
            try:
                done = subprocess.run(argv, check=True, capture_output=True, timeout=TIMEOUT_S)
                seconds = float(done.stdout)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                raise VtaxError(f"{kind.name} cannot be timed: {error}") from None
            rows.append({"benchmark": kind.name, "page": page, "round": turn, "seconds": seconds})
    return pl.DataFrame(rows)


def traced_gain(data: Data, kind: Kind) -> float:
    """Percent that large pages save of the traced program's cycles by its translations alone.

    Both runs are taken to do the work of the run with large pages: what the guest's kernel does
    for page faults and timer interrupts, which depend on how busy this machine was, is left out.
    """
    rows = need(data.kinds, "programs of the benchmarks' kind")
    found = {row["page"]: row for row in rows.filter(benchmark=kind.name).to_dicts()}
    if missing := [page for page in ADVICE if page not in found]:
        raise Missing(f"not traced: {kind.name} with {missing[0]} pages")
    small, large = (
        float(found[page]["cycles_tlb"]) + float(found[page]["cycles_walks"]) for page in ADVICE
    )
    return 100 * (small - large) / (float(found["2M"]["cycles_base"]) + small)


def timed_gain(data: Data, kind: Kind) -> tuple[float, float, float]:
    """Median, least and most of the rounds' percent of the time that large pages save here."""
    rows = need(data.timed, "programs of the benchmarks' kind, timed")
    table = rows.filter(benchmark=kind.name).pivot("page", index="round", values="seconds")
    if table.is_empty():
        raise Missing(f"not timed: {kind.name}")
    gains = (100 * (1 - table["2M"] / table["4K"])).to_list()
    return statistics.median(gains), min(gains), max(gains)


def verdict(data: Data, kind: Kind, benchmark: str) -> str:
    """Which of paper and model such a program agrees with, traced and timed."""
    traced = traced_gain(data, kind)
    gains = f"{kind.name} gains {signed(traced, 2)} % traced"
    words = f"{benchmark}: {gains} (as {_who(benchmark, traced)})"
    try:
        middle, low, high = timed_gain(data, kind)
    except Missing:
        return words
    sides = {_who(benchmark, gain) for gain in (low, high)}
    who = f"as {sides.pop()}" if len(sides) == 1 else "which is too noisy to say"
    return (
        f"{words}, {signed(middle, 2)} % timed here [{signed(low, 2)}, {signed(high, 2)}] ({who})"
    )


def _who(benchmark: str, gain: float) -> str:
    return "the paper says" if STATED[benchmark](gain) else "the model says"


def sentence(data: Data, names: Sequence[str]) -> str:
    """The end of a reason: what programs of these benchmarks' kind say; empty without any."""
    if data.traced is None or data.traced.kinds.is_empty():
        return ""
    found = [
        verdict(data.traced, kind, name)
        for kind in KINDS
        for name in kind.benchmarks
        if name in names
    ]
    return f" Programs of that kind: {'; '.join(found)}." if found else ""


def kinds_table(data: Data) -> StudyTable:
    """Large pages: the model's profile, a traced program of its kind, and that program here."""
    if data.traced is None:
        raise Missing("no program was traced")
    rows = []
    for kind in KINDS:
        traced = signed(traced_gain(data.traced, kind), 3)
        try:
            here = "{} [{}, {}]".format(*(signed(g, 3) for g in timed_gain(data.traced, kind)))
        except Missing:
            here = ""
        for name in kind.benchmarks:
            model = signed(m.large_page_gain(data, name), 3)
            rows.append((name, kind.about, model, traced, here))
    return StudyTable(
        "kinds",
        "Large pages on programs of the benchmarks' kind",
        "Percent of the time that large pages save: of the profile in the model; of a program of "
        "the study's own, traced with small and large pages and simulated natively, by its "
        "translations alone; and of the same program on this machine, median and range of "
        f"{ROUNDS} rounds. The paper says that mcf and cactusADM lose, and that swim and zeusmp "
        "are insensitive.",
        ("Benchmark", "Program of its kind", "Profile %", "Traced %", "Timed here %"),
        rows,
    )
