"""`vtax place`: which work of the host for guests can run on slow cores."""

from __future__ import annotations

import typer

from vtax.core.command import forwarded
from vtax.place import advise as place_advise
from vtax.place import measure as place_measure

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    short_help="Find out which work for guests can run on slow cores.",
    help="Which work for guests can run on slow cores: what throughput guests lose when the\n"
    "threads that serve them are slowed (measure), which threads may go (advise), and putting\n"
    "them there and back (apply, watch).",
)
group.command(**place_measure.SETTINGS)(place_measure.measure)
group.command(**place_advise.SETTINGS)(place_advise.advise)
forwarded.add(group, "apply", "Put threads where a plan has them, or take it back.")
forwarded.add(group, "watch", "Move one thread at a time, and take back what hurts.")


def add(app: typer.Typer) -> None:
    """Make its verbs a group of `app`."""
    app.add_typer(group, name="place")
