"""Records of runs as JSON files: one type per verb, each of one version."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.files import read_bounded, write_atomic
from vtax.core.formats.model import Kept

MAX_BYTES = 64 << 20
MODELS = {
    "compare": "vtax.core.formats.model:ComparisonRecord",
    "compare sweep": "vtax.compare.sweep.record:ComparisonSweepRecord",
    "explain": "vtax.core.formats.bill:BillRecord",
    "prices": "vtax.prices.record:PricesRecord",
    "audit": "vtax.core.formats.model:AuditRecord",
    "memory": "vtax.memory.record:MemoryRecord",
    "tune": "vtax.tune.record:TuneRecord",
    "place": "vtax.place.record:PlaceRecord",
    "record": "vtax.core.formats.model:RecordingRecord",
    "paging sweep": "vtax.paging.sweep.record:SweepRecord",
    "study": "vtax.core.formats.study:StudyRecord",
}
"""The type of each verb's record; a verb's own is imported when one is read."""
_READS = f"this vtax reads {', '.join(map(repr, MODELS))}"
_REMEDY = "read it with the version of vtax that wrote it, or run it again"


class _Head(BaseModel):
    """What must be known of a record before the rest of it can be read."""

    schema_version: int = Field(validation_alias=AliasChoices("schema_version", "schema"))
    verb: str | None = None


def text(record: Kept) -> str:
    """A record as JSON."""
    return record.model_dump_json(indent=1, by_alias=True)


def write(file: Path, record: Kept) -> None:
    """Replace the file in one step. Raises VtaxError when it cannot be written."""
    write_atomic(file, text(record).encode() + b"\n")


def read(file: Path) -> Kept:
    """The record in a file, of its verb's type.

    Raises MisuseError for a record of another version or verb, VtaxError for a damaged one, OSError
    when the file cannot be read.
    """
    content = read_bounded(file, MAX_BYTES)
    try:
        head = _Head.model_validate_json(content)
        if head.verb not in MODELS:
            raise MisuseError(f"{file} has the verb {head.verb!r}; {_READS}", _REMEDY)
        model = _model(head.verb)
        known = model.model_fields["schema_version"].default
        if head.schema_version != known:
            raise MisuseError(
                f"{file} has schema version {head.schema_version}; this vtax reads {known}",
                _REMEDY,
            )
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise VtaxError(f"{file} is damaged: {where}: {first['msg']}") from None


def _model(verb: str) -> type[Kept]:
    module, _, name = MODELS[verb].partition(":")
    found: type[Kept] = getattr(import_module(module), name)
    return found
