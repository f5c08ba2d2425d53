"""Rewrite the tables of docs/environments.md from what the code declares."""

from pathlib import Path

from vtax.cli.declared import with_tables

page = Path(__file__).resolve().parent.parent / "docs/environments.md"
page.write_text(with_tables(page.read_text()))
