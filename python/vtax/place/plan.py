"""The plan file that `vtax place apply --plan` takes: threads and interrupts on CPUs, as TOML."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from vtax.core.errors import VtaxError
from vtax.core.formats.files import read_bounded, write_atomic
from vtax.core.formats.model import Count, Strict

MAX_BYTES = 4 << 20
MAX_CPUS = 1 << 13
"""The most CPUs that Linux can be built for."""


def cpu_numbers(text: str) -> tuple[int, ...]:
    """`0-1,4` as numbers, ascending; raises ValueError for text that is no list of CPUs."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdigit() and len(end) <= 4 for end in ends):
            raise ValueError(f"{text!r} is no list of CPUs such as 0-1,4")
        low, high = map(int, ends)
        if not low <= high < MAX_CPUS:
            raise ValueError(f"{text!r} has the impossible range {part}")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def cpu_list(numbers: Iterable[int]) -> str:
    """Numbers as `0-1,4`."""
    ordered = enumerate(sorted(set(numbers)))
    runs = [
        [number for _, number in run]
        for _, run in itertools.groupby(ordered, lambda each: each[1] - each[0])
    ]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _canonical(text: str) -> str:
    return cpu_list(cpu_numbers(text))


Cpus = Annotated[str, AfterValidator(_canonical)]


class PlannedThread(Strict):
    """A thread and the CPUs that it is to run on."""

    pid: Annotated[int, Field(strict=True, gt=0)]
    tid: Annotated[int, Field(strict=True, gt=0)]
    start_ticks: Count
    """Field 22 of its /proc stat: a later thread with the same number has another value there."""
    name: str
    role: str
    cpus: Cpus


class PlannedInterrupt(Strict):
    """An interrupt and the CPUs that are to take it."""

    number: Count
    cpus: Cpus


class PlanFile(Strict):
    """A plan for one host."""

    format: Literal[1] = 1
    host: str
    """As `vtax-host place host` prints it."""
    thread: tuple[PlannedThread, ...] = ()
    interrupt: tuple[PlannedInterrupt, ...] = ()


def text(plan: PlanFile) -> str:
    """A plan as TOML, with a table for each thread and interrupt."""
    import tomli_w

    content = plan.model_dump(mode="json")
    tables = {name: content.pop(name) for name in ("thread", "interrupt")}
    # tomli_w would write short tables inline.
    parts = [tomli_w.dumps(content)]
    for name, rows in tables.items():
        parts += [f"[[{name}]]\n{tomli_w.dumps(row)}" for row in rows]
    return "\n".join(parts)


def write(file: Path, plan: PlanFile) -> None:
    """Replace the file in one step. Raises VtaxError when it cannot be written."""
    write_atomic(file, text(plan).encode())


def read(file: Path) -> PlanFile:
    """The plan in a file. Raises VtaxError when it cannot be read or is no plan."""
    try:
        return PlanFile.model_validate(tomllib.loads(read_bounded(file, MAX_BYTES).decode()))
    except OSError as error:
        raise VtaxError(f"cannot read {file}: {error.strerror or error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise VtaxError(f"{file} is no plan: {where}: {first['msg']}") from None
    except ValueError as error:
        raise VtaxError(f"{file} is no plan: {error}") from None
