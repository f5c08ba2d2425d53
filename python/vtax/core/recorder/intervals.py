"""What `vtax record` left in a run folder, ready for analysis: one row per interval.

The rows are in `intervals.parquet` or, when the recorder was killed, in `intervals.arrows` up to
its last flush; `events.json` says what each event's column is, `record.json` how it was recorded.
docs/record.md describes the files.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import tables
from vtax.core.formats.files import read_bounded
from vtax.core.recorder.arrow_stream import whole_messages
from vtax.core.recorder.ways import By, Per
from vtax.core.specs import unknown
from vtax.core.units import plural

if TYPE_CHECKING:
    import polars as pl

ROWS = "intervals.parquet"
STREAM = "intervals.arrows"
EVENTS = "events.json"
RECORD = "record.json"
CALL_SITES = "call-sites.folded"
"""Folded stacks of system calls, where they were asked for."""
STACKS = "stacks.folded"
"""Folded stacks of what the rows interrupted, in nanoseconds, where they were asked for."""
MAX_SITES_BYTES = 256 << 20
MAX_ROWS_BYTES = 4 << 30
"""A file of rows that is larger is refused: it would not fit the memory of most machines."""
MAX_JSON_BYTES = 16 << 20
MAX_EVENTS = 4096

NEEDED = ("seq", "cpu", "time_ns", "length_ns")
"""Columns without which there is no interval; the other fixed ones may be absent."""
FIXED = (
    *NEEDED,
    *("interval", "lost", "tsc", "pid", "tid", "comm", "vm", "vcpu", "mode"),
    *("length_instructions", "length_cycles", "time_enabled", "time_running"),
    *("throttled_ns", "stack"),
)
_TEXTS = ("mode", "comm")
_CLOCKS = ("seq", "interval", "time_ns", "tsc", "time_enabled", "time_running")
"""Columns that go on from row to row, and are not summed."""
MOST_COUNTED = float(1 << 62)
FORMAT = 1
"""The version of the files' format; `record.json` names theirs."""
CYCLES = "hw.cycles."
INSTRUCTIONS = "hw.instructions."
"""Names of events that count instructions are this and the part that was counted: user, kernel,
guest, host."""
PUBLISHED = ("guest.", "app.")
"""Layers that sample a page: a value is what was counted since the sample before."""
CPI = "derived.cpi"
"""Cycles per retired instruction of the whole row; `derived.cpi.user` and the like: of a part."""
RATIO = "ratio"
"""The kind of an event that is derived as a ratio; its average is weighted by instructions."""


class Event(BaseModel):
    """One column of `events.json`. Only the name is needed to read the rows.

    A row lacks the value of an event that was not counted during its whole interval. What lost rows
    before it had counted is in the row, and so is their length.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(min_length=1, max_length=200)
    unit: str = ""
    source: str = ""
    kind: str = "delta"
    """`gauge` is a level; anything else counts, and its column holds what each interval added."""
    coverage: float | None = None

    @property
    def is_level(self) -> bool:
        """Whether its value stands for itself, and is no count to be divided by a length."""
        return self.kind in ("gauge", RATIO)

    def weight(self, per: Per) -> str:
        """The column by which values of several rows are averaged."""
        if self.kind != RATIO:
            return per.column
        part = self.name.removeprefix(CPI)
        return INSTRUCTIONS + part[1:] if part else Per.GIGA_INSTRUCTION.column


class _Events(BaseModel):
    """`events.json`."""

    columns: list[Event] = Field(max_length=MAX_EVENTS)


class _Record(BaseModel):
    """What an analysis needs of `record.json`."""

    format: int = FORMAT
    warnings: list[str] = Field(default=[], max_length=1000)


@dataclass(frozen=True, slots=True)
class Recording:
    """The rows of one run, ordered within each CPU, and what they are."""

    path: Path
    label: str
    frame: pl.DataFrame
    events: tuple[Event, ...]
    """The events that have a column, in the recorder's order."""
    notes: tuple[str, ...]
    """What a reader must know: losses, rows left out, a recorder that was killed."""

    def event(self, name: str) -> Event:
        """Raises MisuseError, with the nearest name, for an event that was not recorded."""
        for event in self.events:
            if event.name == name:
                return event
        raise unknown("event", name, [event.name for event in self.events])

    def total(self, event: Event) -> int | None:
        """What the rows counted; None when the event was not counted in all of them.

        A guest's page is read now and then, and what it counted since is in the next value: its
        columns have no coverage, and nothing is missing from their sum.
        """
        if event.coverage is not None and event.coverage < 1:
            return None
        return round(self.frame[event.name].sum())

    def measured_ns(self, event: Event) -> int:
        """The time of the rows in which the event was counted."""
        rows = self.frame
        if event.coverage is not None:
            rows = rows.drop_nulls(event.name)
        return int(rows["length_ns"].sum())

    def measures(self, per: Per) -> bool:
        """Whether any row has a length in the unit `per`."""
        return self.frame[per.column].count() > 0


def load(path: Path, label: str | None = None) -> Recording:
    """Read the recording in a run folder.

    Raises VtaxError when the folder has none or its files cannot be understood.
    """
    import polars as pl

    if not path.is_dir():
        raise MisuseError(f"'{path}' is not a run folder", "give a folder that vtax record wrote")
    raw, notes = _rows(path)
    _require_columns(path, raw)
    events = _events(path, raw)
    levels = [event.name for event in events if event.is_level]
    _require_counts(path, raw, {*_CLOCKS, *levels})
    wanted = [name for name in FIXED if name in raw.columns] + [event.name for event in events]
    frame = raw.select(wanted)
    for name in FIXED:
        if name not in frame.columns:
            frame = frame.with_columns(pl.lit(None, dtype=_fixed_type(name)).alias(name))
    for name in _TEXTS:
        frame = frame.with_columns(pl.col(name).cast(pl.String))
    frame, more = _of_some_length(frame)
    frame = _spread(frame, events)
    frame, events = _with_cpi(frame, events)
    warned = _warnings(path) or _losses(frame)
    return Recording(path, label or path.name, frame, events, (*notes, *more, *warned))


def load_all(arguments: Iterable[str]) -> list[Recording]:
    """Read the recordings of `RUN` or `LABEL=RUN` arguments; recordings with one label are
    repetitions.

    Raises MisuseError for an argument without a label or a path, and as `load` does.
    """
    return [load(path, label) for label, path in map(labelled, arguments)]


def labelled(argument: str) -> tuple[str, Path]:
    """The label and the folder of a `RUN` or `LABEL=RUN`; a folder's label is its name.

    Raises MisuseError for an argument without a label or a path.
    """
    label, equals, path = argument.partition("=")
    # An equals sign may be part of a folder's own name.
    if not equals or Path(argument).exists():
        return Path(argument).name, Path(argument)
    if not (label and path):
        raise MisuseError(f"'{argument}' is not a LABEL=RUN", "write for example native=runs/one")
    return label, Path(path)


def axis_of(recordings: Sequence[Recording], asked: Per | None) -> Per:
    """The unit of rates: the one asked for, else instructions, else (where none were counted) time.

    Raises MisuseError when a recording has no length in the unit asked for.
    """
    if asked is None:
        both = all(one.measures(Per.GIGA_INSTRUCTION) for one in recordings)
        return Per.GIGA_INSTRUCTION if both else Per.SECOND
    for one in recordings:
        if not one.measures(asked):
            what = "instructions" if asked is Per.GIGA_INSTRUCTION else "cycles"
            raise MisuseError(f"{one.path} counted no {what}", "use --per s")
    return asked


def select(events: Sequence[Event], globs: str | None) -> list[Event]:
    """Events that match one of the comma-separated names or globs; all events without a glob.

    Raises MisuseError, with the nearest name, for a pattern that matches none.
    """
    if globs is None:
        return list(events)
    chosen: dict[str, Event] = {}
    for pattern in filter(None, (part.strip() for part in globs.split(","))):
        found = [event for event in events if fnmatch.fnmatchcase(event.name, pattern)]
        if not found:
            raise unknown("event", pattern, [event.name for event in events])
        chosen |= {event.name: event for event in found}
    if not chosen:
        raise MisuseError("no event is named", "write for example kvm.exits or 'hw.*'")
    return list(chosen.values())


def series(recording: Recording, by: By) -> list[tuple[str, pl.DataFrame]]:
    """The rows of each CPU, task or vCPU in the order of time, with its name.

    Rows that belong to no series (the host's, in series by VM) are left out.
    """
    import polars as pl

    keys = list(by.columns)
    # No VM and the idle task are 0; a CPU may be.
    least = 0 if by is By.CPU else 1
    rows = recording.frame.filter(pl.col(keys[0]) >= least)
    # Within a CPU the sequence number is the order; a task that moves has only the clock.
    order = ["seq"] if by is By.CPU else ["time_ns", "cpu", "seq"]
    parts = rows.sort([*keys, *order]).partition_by(keys, as_dict=True, maintain_order=True)
    return [(" ".join(_named(by, key)), part) for key, part in parts.items()]


def rates(frame: pl.DataFrame, events: Sequence[Event], per: Per) -> pl.DataFrame:
    """A column of rates for each event, one value per row; null where it was not measured.

    A level stays as it is.
    """
    import polars as pl

    length = pl.col(per.column).cast(pl.Float64)
    length = pl.when(length > 0).then(length)
    columns = []
    for event in events:
        value = pl.col(event.name).cast(pl.Float64)
        columns.append(value if event.is_level else (value / length * 1e9).alias(event.name))
    return frame.select(columns)


def merged(frame: pl.DataFrame, events: Sequence[Event], count: int) -> pl.DataFrame:
    """Merge every `count` rows into one, so that counters that took turns meet in one row.

    Counts and lengths are summed. A count that was measured in some of the rows only is brought to
    the whole row's length, but only where the row holds a whole rotation: a value of each event
    that took turns. A level is the weighted mean. Rows left over at the end are dropped.
    """
    import polars as pl

    if count == 1:
        return frame
    whole = frame.height // count * count
    group = (pl.int_range(pl.len()) // count).alias("_group")
    lengths = [per.column for per in Per]
    basis = next((name for name in reversed(lengths[:2]) if frame[name].count()), "length_ns")
    made: list[pl.Expr] = [pl.col("time_ns").last(), pl.col("cpu").first()]
    made += [pl.col(name).sum().cast(pl.Float64) for name in lengths]
    turns = [
        pl.col(event.name).count() > 0
        for event in events
        if not event.is_level and 0 < frame[event.name].null_count() < frame.height
    ]
    rotated = pl.all_horizontal(turns) if turns else pl.lit(True)
    for event in events:
        value = pl.col(event.name).cast(pl.Float64)
        if event.is_level:
            weight = pl.col(event.weight(Per.SECOND)).cast(pl.Float64)
            known = weight.filter(value.is_not_null()).sum()
            made.append(((value * weight).sum() / known).alias(event.name))
            continue
        seen = pl.col(basis).filter(pl.col(event.name).is_not_null()).sum()
        scaled = value.sum() * pl.col(basis).sum() / seen
        summed = pl.when(value.null_count() == 0).then(value.sum())
        made.append(summed.when(rotated & (seen > 0)).then(scaled).alias(event.name))
    rows = frame.head(whole).with_columns(group)
    return rows.group_by("_group", maintain_order=True).agg(made).drop("_group")


_NOT_A_RECORDING = "give a folder that vtax record wrote"


def _rows(path: Path) -> tuple[pl.DataFrame, list[str]]:
    """The table of rows, and a note where the rows are the stream of a killed recorder."""
    import polars as pl

    try:
        if (path / ROWS).is_file():
            return _signed(tables.read(path / ROWS, _known_columns, MAX_ROWS_BYTES)), []
        if (path / STREAM).is_file():
            _bounded(path / STREAM, MAX_ROWS_BYTES)
            content = read_bounded(path / STREAM, MAX_ROWS_BYTES)
            whole = whole_messages(content)
            columns = len(pl.read_ipc_stream(whole.stream, n_rows=0).columns)
            tables.require_size(path / STREAM, len(content), whole.rows, columns)
            whole.stream.seek(0)
            table = pl.read_ipc_stream(whole.stream)
            tables.require_plain(path / STREAM, table)
            note = "the recorder did not finish: rows are those up to its last flush"
            if whole.torn_bytes:
                note += f" ({plural(whole.torn_bytes, 'byte')} of an unfinished flush left out)"
            # Its stacks have no names yet, so that their numbers are no lines of a file.
            return _signed(table.drop("stack", strict=False)), [note]
    except (pl.exceptions.PolarsError, OSError, ValueError, TypeError) as error:
        raise VtaxError(f"{path}: cannot read its rows: {error}", "record again") from None
    raise VtaxError(f"{path} has neither {ROWS} nor {STREAM}", _NOT_A_RECORDING)


def _known_columns(names: Sequence[str]) -> list[str]:
    """The columns that a recording has: fixed ones, and events, whose names have a dot."""
    return [name for name in names if name in FIXED or "." in name]


def _require_columns(path: Path, rows: pl.DataFrame) -> None:
    """Raise VtaxError where a column that tells rows apart is missing, or is no whole number in
    each row."""
    import polars as pl

    missing = [name for name in NEEDED if name not in rows.columns]
    if missing:
        raise VtaxError(f"{path}: its rows have no column {', '.join(missing)}", _NOT_A_RECORDING)
    for name in (name for name in FIXED if name in rows.columns and name not in _TEXTS):
        column = rows[name]
        if not column.dtype.is_integer() and (column.dtype != pl.Null or name in NEEDED):
            raise VtaxError(
                f"{path}: its column {name} is {column.dtype}, no whole number", _NOT_A_RECORDING
            )
        if name in NEEDED and column.null_count():
            raise VtaxError(f"{path}: its column {name} lacks values", _NOT_A_RECORDING)


def _require_counts(path: Path, rows: pl.DataFrame, unsummed: Container[str]) -> None:
    """Raise VtaxError for a number that no counter can have: a sum has to stay within 63 bits."""
    import polars as pl

    for name in rows.columns:
        if rows[name].dtype.is_numeric():
            sizes = rows[name].cast(pl.Float64).abs().drop_nulls()
            most = (sizes.max() if name in unsummed else sizes.sum()) or 0.0
            if not (isinstance(most, float) and most < MOST_COUNTED):
                raise VtaxError(
                    f"{path}: its column {name} has values that no counter has", "record again"
                )


def _signed(table: pl.DataFrame) -> pl.DataFrame:
    """The table with signed integers: differences of unsigned ones would wrap around. Raises
    PolarsError beyond 63 bits."""
    import polars.selectors as cs

    return table.with_columns(cs.unsigned_integer().cast(int))


def _bounded(path: Path, limit: int) -> None:
    size = path.stat().st_size
    if size > limit:
        raise VtaxError(
            f"{path} has {size >> 20} MiB, more than {limit >> 20}",
            "record with longer intervals or fewer events",
        )


def _json(path: Path) -> bytes | None:
    if not path.is_file():
        return None
    _bounded(path, MAX_JSON_BYTES)
    return path.read_bytes()


def _events(path: Path, raw: pl.DataFrame) -> tuple[Event, ...]:
    """The events that have a numeric column, in the order of `events.json` if it is there."""
    known: list[Event] = []
    content = _json(path / EVENTS)
    if content is not None:
        try:
            known = _Events.model_validate_json(content).columns
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise VtaxError(f"{path / EVENTS}: {field}: {first['msg']}", "record again") from None
    described = {event.name: event for event in known}
    columns = [name for name in raw.columns if "." in name and raw[name].dtype.is_numeric()]
    if len(columns) > MAX_EVENTS:
        raise VtaxError(f"{path} has {len(columns)} events, more than {MAX_EVENTS}")
    ordered = [name for name in described if name in columns]
    ordered += [name for name in columns if name not in described]
    return tuple(described.get(name, Event(name=name)) for name in ordered)


def _warnings(path: Path) -> list[str]:
    """What the recorder warned of; nothing when the recorder was killed before it could."""
    content = _json(path / RECORD)
    if content is None:
        return []
    try:
        record = _Record.model_validate_json(content)
    except ValidationError as error:
        raise VtaxError(
            f"{path / RECORD} cannot be understood: {error.errors()[0]['msg']}", "record again"
        ) from None
    if record.format != FORMAT:
        raise VtaxError(
            f"{path} is a recording of format {record.format}, this vtax reads {FORMAT}",
            "use the vtax that recorded it",
        )
    return record.warnings


def _fixed_type(name: str) -> Any:
    import polars as pl

    return pl.String if name in _TEXTS else pl.Int64


def _of_some_length(frame: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """The rows in the order of each CPU, without those that have no length to be divided by."""
    import polars as pl

    kept = frame.filter(pl.col("length_ns") > 0)
    if not kept.height:
        raise VtaxError("the recording has no row with a length in time", "record for longer")
    gone = frame.height - kept.height
    notes = [f"{plural(gone, 'row')} without a length in time left out"] if gone else []
    return kept.sort(["cpu", "seq"]), notes


def _spread(frame: pl.DataFrame, events: Iterable[Event]) -> pl.DataFrame:
    """The rows with each sample of a page shared out, by length, to the rows of all CPUs since the
    sample before: in its own row alone it would be divided by the length of that row.

    Sums stay as they are. Rows after the last sample have no value.
    """
    import polars as pl

    published = (event for event in events if event.name.startswith(PUBLISHED))
    names = [event.name for event in published if not event.is_level]
    if not names:
        return frame
    order = frame.with_row_index("_row").sort(["time_ns", "_row"])
    made = []
    for name in names:
        sampled = pl.col(name).is_not_null()
        since = sampled.cum_sum() - sampled.cast(int)
        share = pl.col("length_ns") / pl.col("length_ns").sum().over(since)
        # A sum over rows without any sample would be 0.
        made.append((pl.col(name).max().over(since) * share).alias(name))
    return order.with_columns(made).sort("_row").drop("_row")


def _with_cpi(
    frame: pl.DataFrame, events: tuple[Event, ...]
) -> tuple[pl.DataFrame, tuple[Event, ...]]:
    """The rows with `derived.cpi` and its parts, wherever both cycles and instructions are
    counted."""
    import polars as pl

    pairs = {CPI: ("length_cycles", "length_instructions")}
    for name in frame.columns:
        part = name.removeprefix(CYCLES)
        if part != name and INSTRUCTIONS + part in frame.columns:
            pairs[f"{CPI}.{part}"] = (name, INSTRUCTIONS + part)
    made = []
    for name, (cycles, instructions) in pairs.items():
        ratio = pl.when(pl.col(instructions) > 0).then(pl.col(cycles) / pl.col(instructions))
        column = frame.select(ratio.alias(name))
        if column[name].count() and name not in frame.columns:
            frame = frame.hstack(column)
            made.append(Event(name=name, unit="cycles/instruction", kind=RATIO))
    return frame, (*events, *made)


def _losses(frame: pl.DataFrame) -> list[str]:
    lost = frame["lost"].sum()
    return [f"{plural(int(lost), 'row')} lost while recording"] if lost else []


def _named(by: By, key: tuple[object, ...]) -> list[str]:
    words = {"cpu": ("CPU",), "task": ("task",), "vm": ("VM", "vCPU")}[by]
    return [f"{word} {value}" for word, value in zip(words, key, strict=True) if value is not None]
