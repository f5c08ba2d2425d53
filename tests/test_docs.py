"""The pages: each link leads somewhere, and there are no more pages than a reader can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from command_line import ROOT

PAGES = [
    *ROOT.glob("*.md"),
    *ROOT.glob("docs/*.md"),
    *ROOT.glob("bench/*.md"),
    *ROOT.glob("studies/*.md"),
    *ROOT.glob("crates/*/*.md"),
]
MOST_PAGES = 17
"""Below docs/, beside the index."""
NOT_COUNTED = {"README.md"}
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in _HEADING.findall(page.read_text()):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
        found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return found


def broken(page: Path) -> Iterator[str]:
    for target in _LINK.findall(page.read_text()):
        if re.match("[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        to = page.parent / path if path else page
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            yield f"{page.relative_to(ROOT)}: {target}"


def test_every_link_leads_somewhere() -> None:
    assert [each for page in PAGES for each in broken(page)] == []


def test_every_page_is_in_the_index() -> None:
    pages = {page.name for page in ROOT.glob("docs/*.md")} - NOT_COUNTED
    assert len(pages) <= MOST_PAGES
    index = (ROOT / "docs/README.md").read_text()
    assert [name for name in sorted(pages) if f"({name})" not in index] == []
