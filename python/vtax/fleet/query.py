"""SQL over the samples of many runs.

polars answers: it is there already, scans all files as one table, reads only the columns that a
query names, and its streaming engine holds a part of the rows at a time. DuckDB would do as well,
at the price of a dependency whose S3 support is fetched at run time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats import samples, tables
from vtax.core.formats.folder import JOURNAL, SAMPLES
from vtax.core.formats.journal import Journal
from vtax.core.formats.model import EnvironmentRecord
from vtax.core.page.format import significant
from vtax.core.page.page import Note, Page, Section, table, warnings
from vtax.fleet.runs import Run
from vtax.fleet.separation import facts_of

if TYPE_CHECKING:
    import polars as pl

OWN_COLUMNS = (
    *("run", "host", "verb", "command", "state", "started_utc", "finished_utc", "vtax_version"),
    *("environment", "role", "baseline", "spec"),
)
"""Columns of `runs`; facts follow."""
MOST_COLUMNS = 500
MOST_TEXT = 200
"""Characters of a value in a table."""


def query(sql: str, runs: Sequence[Run], scratch: Path) -> tuple[pl.LazyFrame, list[str]]:
    """What `sql` asks of the relations `samples` and `runs`, and a line about each run without
    readable samples. Raises MisuseError for what is not SQL or names what is not there."""
    import polars as pl

    files, unreadable = _files(runs, scratch)
    relations = {"samples": _samples(files), "runs": _runs(runs).lazy()}
    try:
        found = pl.SQLContext(relations).execute(sql, eager=False)
        found.collect_schema()
    except pl.exceptions.PolarsError as error:
        raise MisuseError(
            f"--query: {_first_line(error)}",
            "the relations are samples and runs: --query 'SELECT * FROM samples LIMIT 1'",
        ) from None
    return found, unreadable


def first_rows(found: pl.LazyFrame, most: int) -> tuple[pl.DataFrame, bool]:
    """The first rows of a query, and whether there are more."""
    with answering():
        head = found.head(most + 1).collect(engine="streaming")
    return head.head(most), head.height > most


def as_json(found: pl.LazyFrame, scratch: Path) -> Iterator[str]:
    """Every row of a query as a line of a JSON array; the rows wait on disk, not in memory."""
    file = scratch / "rows.jsonl"
    with answering():
        found.sink_ndjson(file, engine="streaming")
    yield "["
    with file.open() as lines:
        before = None
        for line in lines:
            if before is not None:
                yield f" {before},"
            before = line.rstrip("\n")
        if before is not None:
            yield f" {before}"
    yield "]"


def answer(rows: pl.DataFrame, more: bool, unreadable: Sequence[str]) -> Page:
    """The rows of a query as a page, with a line where there are more."""
    cells = [["" if v is None else _value(v) for v in row] for row in rows.iter_rows()]
    said = [Note(f"the first {rows.height} rows; all of them: --json")] if more else []
    notes = (*said, *warnings(unreadable))
    return Page("fleet", (Section(table=table(rows.columns, cells), notes=notes),))


def _value(value: object) -> str:
    text = significant(value, 6) if isinstance(value, float) else str(value)
    return text if len(text) <= MOST_TEXT else f"{text[: MOST_TEXT - 1]}…"


@contextlib.contextmanager
def answering() -> Iterator[None]:
    """Raise VtaxError in one line where a query cannot be answered."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise VtaxError(f"--query: {_first_line(error)}") from None


def _files(runs: Sequence[Run], scratch: Path) -> tuple[Mapping[Path, Run], list[str]]:
    """The Parquet file of each run with samples, and a line about each whose file is damaged, too
    large or has other columns. Samples of a run that was killed or goes on become a file here."""
    files: dict[Path, Run] = {}
    unreadable, wanted = [], samples.schema()
    for number, run in enumerate(runs):
        journal, spare = run.path / JOURNAL, scratch / f"{number}.parquet"
        if (run.path / SAMPLES).is_file():
            files[run.path / SAMPLES] = run
        elif journal.is_file():
            try:
                rows = samples.validated(journal, Journal(journal).read())
                samples.frame(rows).write_parquet(spare)
                files[spare] = run
            except VtaxError as error:
                unreadable.append(run.said(error))
    for file, schema in zip([*files], tables.schemas([*files], samples.MAX_BYTES), strict=True):
        if isinstance(schema, VtaxError):
            unreadable.append(files.pop(file).said(schema))
        elif other := [name for name, kind in schema.items() if wanted.get(name, kind) != kind]:
            run = files.pop(file)
            unreadable.append(f"{run.name}: {SAMPLES} is damaged: no samples in {other[0]:.80}")
    return files, unreadable


def _samples(files: Mapping[Path, Run]) -> pl.LazyFrame:
    import polars as pl

    own: dict[str, pl.DataType] = {"run": pl.String(), "host": pl.String()}
    file: dict[str, pl.DataType] = {"file": pl.String()}
    if not files:
        return pl.LazyFrame(schema=own | samples.schema())
    scanned = pl.scan_parquet(
        list(files), schema=samples.schema(), glob=False, hive_partitioning=False,
        missing_columns="insert", extra_columns="ignore", include_file_paths="file",
    )  # fmt: skip
    where = [(str(file), run.name, run.host) for file, run in files.items()]
    names = pl.LazyFrame(where, schema=file | own, orient="row")
    return scanned.join(names, on="file", how="left").select(*own, *samples.schema())


def _runs(runs: Sequence[Run]) -> pl.DataFrame:
    """A row for each environment of each run; facts are text, by their dotted paths."""
    import polars as pl

    rows = [
        {**({} if each is None else facts_of(each)), **_described(run, each)}
        for run in runs
        for each in run.environments or (None,)
    ]
    facts = sorted({name for row in rows for name in row} - {*OWN_COLUMNS})
    names = [*OWN_COLUMNS, *facts[:MOST_COLUMNS]]
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pl.DataFrame(columns, schema=dict.fromkeys(names, pl.String()))


def _described(run: Run, environment: EnvironmentRecord | None) -> Mapping[str, str | None]:
    record = run.record
    values = (
        *(run.name, run.host, record.verb, record.name, getattr(record, "state", None)),
        *(record.started_utc, record.finished_utc, record.vtax_version),
        *(getattr(environment, name, None) for name in ("label", "role", "baseline", "spec")),
    )
    return dict(zip(OWN_COLUMNS, values, strict=True))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
