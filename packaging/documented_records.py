"""The tables of docs/run-folder.md, made from the records and the docstrings of their fields.

A docstring speaks for its field and for the fields straight above it that have none.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from vtax.compare.sweep.record import ComparisonSweepRecord
from vtax.core.formats.bill import BillRecord
from vtax.core.formats.model import (
    AuditRecord,
    ComparisonRecord,
    RecordingRecord,
    Sample,
    Strict,
    VerbRecord,
)
from vtax.core.formats.samples import columns
from vtax.core.formats.study import StudyRecord
from vtax.core.page.render_markdown import table
from vtax.memory.record import MemoryRecord
from vtax.paging.sweep.record import SweepRecord
from vtax.place.record import PlaceRecord
from vtax.prices.record import PricesRecord
from vtax.tune.record import TuneRecord

RECORDS: Mapping[str, type[Strict]] = {
    "run": VerbRecord,
    "audit": AuditRecord,
    "compare": ComparisonRecord,
    "memory": MemoryRecord,
    "tune": TuneRecord,
    "place": PlaceRecord,
    "recording": RecordingRecord,
    "sweep": SweepRecord,
    "compare-sweep": ComparisonSweepRecord,
    "prices": PricesRecord,
    "bill": BillRecord,
    "study": StudyRecord,
}
"""Records by the name of their table. A part of two records is described in the first."""
_TYPES = {str: "text", int: "integer", float: "number", bool: "boolean", NoneType: "null", Any: ""}
Row = tuple[str, str, str]


def tables() -> Mapping[str, str]:
    """The tables by name, in Markdown."""
    described = Described()
    headings = ("field", "type", "meaning")
    made = {name: table(headings, described.rows(name)) for name in RECORDS}
    types = get_type_hints(Sample)
    samples = (
        (f"`{name}`", kind(types[name]), told["meaning"], told["source"])
        for name, told in columns().items()
    )
    return {"samples": table(("column", "type", "meaning", "from"), samples), **made}


@dataclass
class Described:
    """The parts of records that have been described, with the place."""

    places: dict[type, str] = field(default_factory=dict)

    def rows(self, name: str) -> Iterator[Row]:
        """The rows of a record, without those that every `run.json` has."""
        record = RECORDS[name]
        derived = record is not VerbRecord and issubclass(record, VerbRecord)
        return self._rows(name, record, "", VerbRecord.model_fields if derived else ())

    def _rows(
        self, name: str, model: type[Strict], path: str, skipped: Collection[str] = ()
    ) -> Iterator[Row]:
        """The rows of plain fields, then each part: its row and those of its fields."""
        said = sentences(model)
        parts: list[tuple[str, str, type[Strict]]] = []
        group: list[str] = []
        types: set[str] = set()
        for key, info in model.model_fields.items():
            if key in skipped:
                continue
            shown = info.alias or key
            part = part_of(info.annotation)
            if part is not None and part not in self.places:
                assert not group, f"{model.__name__}.{group[0]} has no docstring"
                self.places[part] = f"`{path}{shown}` of `{name}`"
                parts.append((f"{path}{shown}", key, part))
                continue
            group.append(f"`{shown}`")
            types.add(kind(info.annotation) + (f", as {self.places[part]}" if part else ""))
            if key in said:
                assert len(types) == 1, f"{model.__name__}: {group} of {types} share a docstring"
                yield ", ".join(group), types.pop(), said[key]
                group = []
        assert not group, f"{model.__name__}.{group[0]} has no docstring"
        for shown, key, part in parts:
            yield f"**{shown}**", kind(model.model_fields[key].annotation), said[key]
            yield from self._rows(name, part, f"{shown}.")


def part_of(of: Any) -> type[Strict] | None:
    """The model of vtax's own in a type; what machines print is no part."""
    if isinstance(of, type) and get_origin(of) is None:
        return of if issubclass(of, Strict) else None
    return next(filter(None, map(part_of, get_args(of))), None)


def kind(of: Any) -> str:
    """A type, in a reader's words."""
    origin, args = get_origin(of), get_args(of)
    if origin in (Union, UnionType):
        return _alternatives(map(kind, args))
    if origin is Literal:
        return _alternatives(f"`{each}`" for each in args)
    if origin is tuple and args[-1] is not ...:
        return f"list ({', '.join(map(kind, args))})"
    if origin in (tuple, dict):
        each = kind(args[0 if origin is tuple else 1])
        return f"{'list' if origin is tuple else 'object'}{f' of {each}' if each else ''}"
    if origin is not None:
        return kind(args[0])  # Annotated
    if isinstance(of, type) and issubclass(of, StrEnum):
        return _alternatives(f"`{each}`" for each in of)
    return _TYPES.get(of, "object")


def _alternatives(kinds: Iterable[str]) -> str:
    *first, last = kinds
    return f"{', '.join(first)} or {last}" if first else last


def sentences(model: type) -> dict[str, str]:
    """The docstrings of the fields of a class and its bases, as a reader of the file needs them."""
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__[: model.__mro__.index(Strict)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body
        for this, after in pairwise(body):
            if isinstance(this, ast.AnnAssign) and isinstance(after, ast.Expr):
                found[this.target.id] = _shown(after.value.value)
    return found


def _shown(docstring: str) -> str:
    text = " ".join(docstring.split()).removesuffix(".").replace("``", "`")
    text = text.replace("None", "null").replace("False", "false")
    return re.sub(r"docs/(\S+\.md)", r"[\1](\1)", text)
