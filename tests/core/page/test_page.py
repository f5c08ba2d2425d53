"""One page, shown by each renderer."""

from __future__ import annotations

from vtax.core.page import render_markdown, render_terminal
from vtax.core.page.page import (
    Cell,
    Column,
    Depth,
    Figure,
    Page,
    Section,
    Tone,
    drawn,
    notes,
    table,
    table_section,
    warnings,
)
from vtax.core.page.tables import plain

FIGURE = Figure("Curve", "It rises.", "a curve that rises", {"data": [], "layout": {}})
PAGE = Page(
    "try",
    (
        Section(
            table=table(
                ("name", Column("more", Depth.FULL), "value"),
                [("a", "x|y", Cell("1.5", Tone.GOOD)), ("b", "<i>", "10")],
            ),
        ),
        *drawn([FIGURE, None]),
        table_section("empty", "Nothing", "There is nothing to show.", ("a",), ()),
        Section(notes=(*notes(["so"]), *warnings(["beware"])), apart=True),
        Section("Short", table=table(("a",), [("1",)]), depth=Depth.BRIEF),
    ),
    sentence="2 names",
    title="A trial",
)


def test_a_terminal_has_what_is_brief_and_draws_nothing() -> None:
    assert plain(*render_terminal.parts(PAGE)) == (
        "2 names\n"
        "name   value\n"
        "────────────\n"
        "a        1.5\n"
        "b         10\n"
        "\n"
        "Nothing\n"
        "There is nothing to show.\n"
        "\n"
        "so\n"
        "! beware\n"
        "\n"
        "Short\n"
        "a\n"
        "─\n"
        "1\n"
    )


def test_markdown_has_everything_and_no_tag() -> None:
    assert render_markdown.render(PAGE) == (
        "# A trial\n\n"
        "2 names\n\n"
        "| name | more | value |\n"
        "| --- | --- | --- |\n"
        "| a | x\\|y | 1.5 |\n"
        "| b | &lt;i> | 10 |\n\n"
        "## Curve\n\n"
        "It rises.\n\n"
        "*a curve that rises*\n\n"
        "## Nothing\n\n"
        "There is nothing to show.\n\n"
        "- so\n"
        "- **!** beware\n"
    )
