"""One page, shown by each renderer."""

from __future__ import annotations

from vtax.core.page import render_markdown, render_terminal
from vtax.core.page.page import (
    Cell,
    Column,
    Depth,
    Figure,
    Note,
    Page,
    Section,
    Table,
    Tone,
    drawn,
    notes,
    parted,
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


WIDE = Table(
    (
        Column("metric"),
        Column("here,with=this", below="median"),
        Column("there", below="share"),
        Column("again", below="control", spare=True),
    ),
    (
        (parted("a_metric_with_a_long_name", "↑"), Cell("5 s"), parted("9", "[8]"), Cell("1")),
        (parted("short", "↓"), Cell("6 s"), parted("10", "[9]"), Cell("<b>")),
    ),
    wide=True,
)


def test_columns_that_do_not_fit_stand_below_and_a_spare_one_is_left_out() -> None:
    page = Page("try", (Section(table=WIDE),))
    found = plain(*render_terminal.parts(page), width=36)
    assert found.count("\nmetric ") == 2 and "control" not in found
    assert plain(*render_terminal.parts(page), width=40) == (
        "                       here,\n"
        "                       with=this  there\n"
        "metric                 median     share\n"
        "────────────────────────────────────────\n"
        "a_metric_…long_name ↑  5 s         9 [8]\n"
        "short ↓                6 s        10 [9]\n"
    )


def test_a_note_has_a_sign_and_a_subject_and_a_legend_several_texts() -> None:
    said = (Note("it is slow " * 3, subject="uml", sign="!"), Note("= same", further=("≠ other",)))
    page = Page("try", (Section(notes=said),), "A trial", run="runs/x")
    assert plain(*render_terminal.parts(page), width=24) == (
        "A trial   run runs/x\n! uml: it is slow it is\n  slow it is slow\n= same  ≠ other\n"
    )
    assert "- uml: it is slow" in render_markdown.render(page)
    assert "- = same, ≠ other\n" in render_markdown.render(page)
