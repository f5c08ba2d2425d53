"""The folder of a study: `study.json`, a Parquet file per table, `report.html`."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vtax import __version__
from vtax.errors import VtaxError
from vtax.studies.html import write_report
from vtax.studies.model import Outcome, Study

SCHEMA = 1


def write(study: Study, outcome: Outcome, folder: Path) -> None:
    """Writes everything; files of an earlier run are replaced."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in outcome.frames.items():
            frame.write_parquet(folder / f"{name}.parquet")
        (folder / "study.json").write_text(to_json(study, outcome) + "\n", "utf-8")
    except OSError as error:
        raise VtaxError(
            f"cannot write in {folder}: {error.strerror or error}", "choose another --out"
        ) from None
    write_report(study, outcome, folder / "report.html")


def to_json(study: Study, outcome: Outcome) -> str:
    """The claims, tables and setup; the rows behind the figures are in the Parquet files."""
    return json.dumps(_content(study, outcome), indent=1, ensure_ascii=False)


def _content(study: Study, outcome: Outcome) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "study": study.name,
        "paper": study.paper,
        "vtax_version": __version__,
        "written_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "setup": dict(outcome.setup),
        "cautions": list(outcome.cautions),
        "claims": [asdict(claim) for claim in outcome.claims],
        "tables": [asdict(table) for table in outcome.tables],
        "figures": [
            {"number": f.number, "title": f.title, "caption": f.caption, "seed": f.seed}
            for f in outcome.figures
        ],
        "files": {name: f"{name}.parquet" for name in outcome.frames},
    }
