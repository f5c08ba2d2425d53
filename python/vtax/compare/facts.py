"""Machine facts side by side.

Facts come from guests, which may be hostile or merely old: any key may be missing or of another
type, and depth, number and length of what is shown are limited.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vtax.core.formats.model import EnvironmentRecord
from vtax.core.page.format import (
    DASH,
    MINUS,
    bytes_text,
    listing,
    one_line,
    plural,
    seconds_text,
    significant,
)

NOT_REPORTED = "not reported"
EMPTY = DASH
MAX_DEPTH = 6
MAX_ROWS = 300
MAX_TEXT = 240

# These differ on every reading, so a difference says nothing about the machines.
VOLATILE = frozenset({"uptime_s", "memory.available_bytes"})
_FLAGS = "cpu.flags"
_CACHES = "cpu.caches"
_TITLES = {
    "kernel": "Kernel",
    "virtualization": "Virtualization",
    "cpu": "CPU",
    "memory": "Memory",
    "clock": "Clocks",
    "mitigations": "Mitigations",
    "cgroup": "Control group",
    "pmu": "Performance counters",
}
_LABELS = {"cpu": "CPU", "smt": "SMT", "numa": "NUMA", "pmu": "PMU"}


@dataclass(frozen=True, slots=True)
class FactRow:
    """One fact of all environments."""

    name: str
    path: str
    cells: tuple[str, ...]
    differs: bool


@dataclass(frozen=True, slots=True)
class FactGroup:
    """Facts that belong together."""

    title: str
    rows: tuple[FactRow, ...]


@dataclass(frozen=True, slots=True)
class FactSheet:
    """All facts of all environments, and how many rows were left out."""

    groups: tuple[FactGroup, ...]
    left_out: int


def side_by_side(environments: Sequence[EnvironmentRecord]) -> FactSheet:
    """The facts of the environments as rows; where they differ the row says so."""
    rows = [*_own_rows(environments), *_fact_rows(environments), *_library_rows(environments)]
    groups: dict[str, list[FactRow]] = {}
    for title, row in rows[:MAX_ROWS]:
        groups.setdefault(title, []).append(row)
    return FactSheet(
        groups=tuple(FactGroup(title, tuple(found)) for title, found in groups.items()),
        left_out=max(0, len(rows) - MAX_ROWS),
    )


def _own_rows(environments: Sequence[EnvironmentRecord]) -> Iterator[tuple[str, FactRow]]:
    getters: tuple[tuple[str, Callable[[EnvironmentRecord], str]], ...] = (
        ("What it is", lambda env: env.description or NOT_REPORTED),
        ("Role", lambda env: env.role),
        ("Specification", lambda env: env.spec),
        ("Compared with", lambda env: env.baseline or "(is a baseline)"),
        ("Boot time", _boot_text),
    )
    for name, getter in getters:
        cells = tuple(one_line(getter(env)) for env in environments)
        yield "Environment", FactRow(name, name, cells, differs=False)


def _boot_text(environment: EnvironmentRecord) -> str:
    boots = environment.boot_s
    if not boots:
        return NOT_REPORTED
    middle = seconds_text(statistics.median(boots))
    if len(boots) == 1:
        return middle
    span = f"{seconds_text(min(boots))} to {seconds_text(max(boots))}"
    return f"{middle} (median of {plural(len(boots), 'boot')}, {span})"


def _fact_rows(environments: Sequence[EnvironmentRecord]) -> Iterator[tuple[str, FactRow]]:
    flat = [dict(flatten(env.facts)) for env in environments]
    flags = _flag_cells([env.facts for env in environments])
    for path in dict.fromkeys(path for facts in flat for path in facts):
        top, _, rest = path.partition(".")
        title = _TITLES.get(top, _humanise(top) if rest else "Machine")
        if path == _FLAGS and flags is not None:
            yield title, FactRow("Flags", path, flags, differs=_flags_differ(flags))
            continue
        cells = tuple(facts.get(path, NOT_REPORTED) for facts in flat)
        differs = path not in VOLATILE and len(set(cells)) > 1
        yield title, FactRow(_humanise(rest or top), path, cells, differs)


def _library_rows(environments: Sequence[EnvironmentRecord]) -> Iterator[tuple[str, FactRow]]:
    for name in dict.fromkeys(name for env in environments for name in env.libraries):
        cells = tuple(one_line(env.libraries.get(name, NOT_REPORTED)) for env in environments)
        yield "Libraries", FactRow(one_line(name), name, cells, differs=len(set(cells)) > 1)


def flatten(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Nested facts as (dotted path, text)."""
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        for key, inner in value.items():
            name = one_line(str(key))
            yield from flatten(inner, f"{path}.{name}" if path else name, depth + 1)
    elif path:
        yield path, _cut(_text(value, path))


def _text(value: Any, path: str) -> str:
    match value:
        case None:
            return EMPTY
        case bool():
            return "yes" if value else "no"
        case int() | float():
            return _number_text(value, path)
        case [*items] if path == _CACHES:
            return "; ".join(_cache_text(item) for item in items) or "none"
        case [*items]:
            return ", ".join(_text(item, "") for item in items[:64]) or "none"
        case _:
            return one_line(str(value)) or "(empty)"


def _number_text(value: int | float, path: str) -> str:
    if path.endswith("_bytes"):
        return bytes_text(value)
    if path.endswith("_s"):
        return seconds_text(value)
    return str(value) if isinstance(value, int) else significant(value)


def _cache_text(cache: Any) -> str:
    if not isinstance(cache, Mapping):
        return one_line(str(cache))
    level = f"L{cache.get('level', '?')} {str(cache.get('type', '')).lower()}"
    size = cache.get("size_bytes")
    text = f"{level} {bytes_text(size) if isinstance(size, int | float) else EMPTY}"
    shared = cache.get("shared_by")
    return one_line(text if shared in (None, "") else f"{text} (shared by {shared})")


def _flag_cells(facts: Sequence[Mapping[str, Any]]) -> tuple[str, ...] | None:
    """CPU flags as set differences to the first environment that has them."""
    sets = [_flag_set(item) for item in facts]
    reference = next((flags for flags in sets if flags is not None), None)
    if reference is None:
        return None
    first = sets.index(reference)
    return tuple(
        _flag_cell(flags, reference, is_reference=index == first)
        for index, flags in enumerate(sets)
    )


def _flag_set(facts: Mapping[str, Any]) -> frozenset[str] | None:
    cpu = facts.get("cpu")
    flags = cpu.get("flags") if isinstance(cpu, Mapping) else None
    return frozenset(map(str, flags)) if isinstance(flags, list) else None


def _flag_cell(
    flags: frozenset[str] | None, reference: frozenset[str], *, is_reference: bool
) -> str:
    if flags is None:
        return NOT_REPORTED
    if is_reference:
        return plural(len(flags), "flag")
    parts = [
        f"{sign} {listing([one_line(flag) for flag in sorted(changed)], 12)}"
        for sign, changed in ((MINUS, reference - flags), ("+", flags - reference))
        if changed
    ]
    return _cut("; ".join(parts)) if parts else "the same flags"


def _flags_differ(cells: Sequence[str]) -> bool:
    return any(cell.startswith(("+", MINUS)) for cell in cells)


def _humanise(path: str) -> str:
    words = path.removesuffix("_bytes").removesuffix("_s").replace("_", " ").replace(".", ": ")
    text = " ".join(_LABELS.get(word, word) for word in words.split(" "))
    return text[:1].upper() + text[1:]


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
