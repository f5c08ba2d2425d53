"""Rewrite the tables in docs/ from what the code declares."""

from pathlib import Path

from vtax.core.command.declared import PAGES, with_tables

for name in PAGES:
    page = Path(__file__).resolve().parent.parent / "docs" / name
    page.write_text(with_tables(page.read_text()))
