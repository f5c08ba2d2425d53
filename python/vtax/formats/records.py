"""Records of runs as JSON files: one type per verb, each of one version."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

from pydantic import AliasChoices, BaseModel, Field, TypeAdapter, ValidationError

from vtax.errors import MisuseError, VtaxError
from vtax.formats.files import read_bounded, write_atomic
from vtax.formats.memory import MemoryRecord
from vtax.formats.model import AuditRecord, ComparisonRecord, RecordingRecord
from vtax.formats.place import PlaceRecord
from vtax.formats.study import StudyRecord
from vtax.formats.sweep import SweepRecord
from vtax.formats.tune import TuneRecord

MAX_BYTES = 64 << 20
AnyRecord = (
    ComparisonRecord
    | AuditRecord
    | MemoryRecord
    | TuneRecord
    | PlaceRecord
    | RecordingRecord
    | SweepRecord
    | StudyRecord
)
VERSIONS: dict[str, int] = {
    model.model_fields["verb"].default: model.model_fields["schema_version"].default
    for model in get_args(AnyRecord)
}
"""For each verb, the version of its record that this vtax reads and writes."""
_ANY: TypeAdapter[AnyRecord] = TypeAdapter(Annotated[AnyRecord, Field(discriminator="verb")])
_READS = f"this vtax reads {', '.join(map(repr, VERSIONS))}"
_REMEDY = "read it with the version of vtax that wrote it, or run it again"


class _Head(BaseModel):
    """What must be known of a record before the rest of it can be read."""

    schema_version: int = Field(validation_alias=AliasChoices("schema_version", "schema"))
    verb: str | None = None


def text(record: AnyRecord) -> str:
    """A record as JSON."""
    return record.model_dump_json(indent=1, by_alias=True)


def write(file: Path, record: AnyRecord) -> None:
    """Replace the file in one step. Raises VtaxError when it cannot be written."""
    write_atomic(file, text(record).encode() + b"\n")


def read(file: Path) -> AnyRecord:
    """The record in a file.

    Raises MisuseError for a record of another version or verb, VtaxError for a damaged one, OSError
    when the file cannot be read.
    """
    content = read_bounded(file, MAX_BYTES)
    try:
        head = _Head.model_validate_json(content)
        if (known := VERSIONS.get(head.verb or "")) is None:
            raise MisuseError(f"{file} has the verb {head.verb!r}; {_READS}", _REMEDY)
        if head.schema_version != known:
            raise MisuseError(
                f"{file} has schema version {head.schema_version}; this vtax reads {known}",
                _REMEDY,
            )
        return _ANY.validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise VtaxError(f"{file} is damaged: {where}: {first['msg']}") from None
