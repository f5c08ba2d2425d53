"""The result of a comparison on standard output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vtax.core.statistics.results import Comparison


def show(comparison: Comparison, path: Path, *, as_json: bool, all_notes: bool) -> None:
    """Print the result on standard output: JSON, or the table and the path of the report."""
    from vtax.core.formats.folder import REPORT

    if as_json:
        from vtax.compare.analysis import to_json

        print(json.dumps(to_json(comparison), indent=1))
        return
    from vtax.compare.terminal import render_table
    from vtax.core.page.tables import show as show_parts

    show_parts(render_table(comparison, all_notes=all_notes))
    print(f"report: {path / REPORT}")
