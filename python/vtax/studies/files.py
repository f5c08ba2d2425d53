"""The folder of a study: `study.json`, `claims.md`, a Parquet file per table, `report.html`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vtax import __version__
from vtax.errors import VtaxError
from vtax.present.format import one_line
from vtax.studies.html import write_report
from vtax.studies.model import Basis, Claim, Outcome, Study
from vtax.studies.table import SYMBOLS

SCHEMA = 1


def write(study: Study, outcome: Outcome, folder: Path) -> None:
    """Writes everything; files of an earlier run are replaced.

    Raises VtaxError when a file cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in outcome.frames.items():
            frame.write_parquet(folder / f"{name}.parquet")
        (folder / "study.json").write_text(to_json(study, outcome) + "\n", "utf-8")
        (folder / "claims.md").write_text(to_markdown(study, outcome), "utf-8")
    except OSError as error:
        raise VtaxError(
            f"cannot write in {folder}: {error.strerror or error}", "choose another --out"
        ) from None
    write_report(study, outcome, folder / "report.html")


def to_markdown(study: Study, outcome: Outcome) -> str:
    """The claims as a table for a document, and each table of the study after it."""
    claims = [
        (c.section, c.statement, c.stated, c.ours, _verdict(c), c.reason) for c in outcome.claims
    ]
    headings = ("Section", "The paper says", "Its value", study.found, "Verdict", "Criterion")
    parts = [_table(headings, claims)]
    parts += [f"### {t.title}\n\n{_table(t.headings, t.rows)}" for t in outcome.tables]
    return "\n".join(parts)


def _verdict(claim: Claim) -> str:
    fitted = " (fitted)" if claim.basis is Basis.FITTED else ""
    return f"{SYMBOLS[claim.verdict]} {claim.verdict.value}{fitted}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|")


def to_json(study: Study, outcome: Outcome) -> str:
    """The claims, tables and setup; the rows behind the figures are in the Parquet files."""
    return json.dumps(_content(study, outcome), indent=1, ensure_ascii=False)


def _claim(claim: Claim) -> dict[str, Any]:
    """The paper's value is called `seed` there, for those who read these files already."""
    return {"seed" if name == "stated" else name: value for name, value in asdict(claim).items()}


def _content(study: Study, outcome: Outcome) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "study": study.name,
        "paper": study.paper,
        "vtax_version": __version__,
        "written_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "setup": dict(outcome.setup),
        "cautions": list(outcome.cautions),
        "claims": [_claim(claim) for claim in outcome.claims],
        "tables": [asdict(table) for table in outcome.tables],
        "figures": [
            {"number": f.number, "title": f.title, "caption": f.caption, "seed": f.paper}
            for f in outcome.figures
        ],
        "files": {name: f"{name}.parquet" for name in outcome.frames},
    }
