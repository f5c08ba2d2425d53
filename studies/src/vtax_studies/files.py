"""The folder of a study: `study.json`, `claims.md`, a Parquet file per table, `report.html`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from vtax import __version__
from vtax.core.errors import VtaxError
from vtax.core.formats import records
from vtax.core.formats.study import ClaimRecord, FigureRecord, StudyRecord, TableRecord
from vtax.core.page.format import one_line
from vtax_studies.html import write_report
from vtax_studies.model import Claim, Outcome, Study
from vtax_studies.table import second_cells, verdict

RECORD = "study.json"


def write(study: Study, outcome: Outcome, folder: Path) -> None:
    """Write everything; files of an earlier run are replaced.

    Raises VtaxError when a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in outcome.frames.items():
            frame.write_parquet(folder / f"{name}.parquet")
        records.write(folder / RECORD, _record(study, outcome))
        (folder / "claims.md").write_text(to_markdown(study, outcome), "utf-8")
    except OSError as error:
        raise VtaxError(
            f"cannot write in {folder}: {error.strerror or error}", "choose another --out"
        ) from None
    write_report(study, outcome, folder / "report.html")


def to_markdown(study: Study, outcome: Outcome) -> str:
    """The claims as a table for a document, and each table of the study after it."""
    headings = ["Section", study.says, "Its value", study.found, "Verdict", "Criterion"]
    if any(claim.second for claim in outcome.claims):
        headings += [study.second, "Verdict", "Why the verdicts differ"]
    claims = [_cells(claim) for claim in outcome.claims]
    parts = [_table(headings, claims)]
    parts += [f"### {t.title}\n\n{_table(t.headings, t.rows)}" for t in outcome.tables]
    return "\n".join(parts)


def _cells(c: Claim) -> list[str]:
    cells = [c.section, c.statement, c.stated, c.ours, verdict(c), c.reason]
    if c.second:
        cells += [*second_cells(c.second), c.second.differs]
    return cells


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|")


def to_json(study: Study, outcome: Outcome) -> str:
    """The claims, tables and setup; the rows behind the figures are in the Parquet files."""
    return records.text(_record(study, outcome))


def _record(study: Study, outcome: Outcome) -> StudyRecord:
    return StudyRecord(
        study=study.name,
        paper=study.paper,
        vtax_version=__version__,
        written_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        setup=dict(outcome.setup),
        cautions=tuple(outcome.cautions),
        claims=tuple(_claim(claim) for claim in outcome.claims),
        tables=tuple(TableRecord.model_validate(asdict(table)) for table in outcome.tables),
        figures=tuple(
            FigureRecord(number=f.number, title=f.title, caption=f.caption, seed=f.paper)
            for f in outcome.figures
        ),
        files={name: f"{name}.parquet" for name in outcome.frames},
    )


def _claim(claim: Claim) -> ClaimRecord:
    fields = asdict(claim)
    return ClaimRecord(seed=fields.pop("stated"), **fields)
