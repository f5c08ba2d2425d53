"""Rewrite the tables in docs/ from what the code declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import documented_records

from vtax.core.command.declared import summary
from vtax.core.page.render_markdown import table
from vtax.core.recorder import sources
from vtax.core.runner.instruments import ALWAYS, INSTRUMENTS
from vtax.environments import registry
from vtax.environments.capabilities import ALL
from vtax.study.verb import installed
from vtax.workloads.loads.registry import LOADS
from vtax_studies.roles import KINDS, Machine, Role

PAGES = ("docs/environments.md", "docs/record.md", "docs/run-folder.md", "studies/README.md")
"""The pages that have generated tables."""


def tables() -> Mapping[str, str]:
    """The tables in docs/ by name, in Markdown."""
    own = {name: cls for name, cls in registry().items() if cls.__module__.startswith("vtax.")}
    return {
        "environments": table(
            ("environment", "what it is", "for example"),
            (
                (f"`{name}`", summary(cls), ", ".join(f"`{spec}`" for spec in cls.examples))
                for name, cls in own.items()
            ),
        ),
        "keys": table(
            ("key", "meaning", "environments"),
            (
                (f"`{key}`", text, ", ".join(f"`{name}`" for name in names))
                for (key, text), names in _by_key(own).items()
            ),
        ),
        "capabilities": table(
            ("capability", "meaning", "environments"),
            (
                (
                    f"`{each.name}`",
                    each.about,
                    ", ".join(
                        f"`{cls.offers[each]}`" for cls in own.values() if each in cls.offers
                    ),
                )
                for each in ALL
            ),
        ),
        "instruments": table(
            ("instrument", "what it does", "needs", "used"),
            (
                (
                    f"`{name}`",
                    summary(cls),
                    f"`{cls().needs.name}`",
                    "wherever it can be" if name in ALWAYS else f"`--with {name}`",
                )
                for name, cls in INSTRUMENTS.items()
            ),
        ),
        "loads": table(
            ("load", "what", "programs"),
            (
                (f"`{each.name}`", each.about, ", ".join(f"`{name}`" for name in each.needs))
                for each in LOADS.values()
            ),
        ),
        "sources": table(
            ("layer", "what", "needs (checks of `vtax doctor`)"),
            (
                (f"`{each.name}`", each.about, ", ".join(f"`{need}`" for need in each.needs))
                for each in sources.declared()
            ),
        ),
        "machines": table(
            ("study", "what it needs", *KINDS),
            (
                (f"`{name}`", role.name, *(_taken(role, kind) for kind in KINDS.values()))
                for name, study in installed().items()
                for role in study.parts().roles
            ),
        ),
        **documented_records.tables(),
    }


def _taken(role: Role, machine: Machine) -> str:
    way = role.on(machine)
    return way.said if way else "-"


def with_tables(text: str) -> str:
    """A page with the content of each ``<!-- table NAME -->`` ... ``<!-- end -->`` rewritten."""
    made, inside = [], False
    for line in text.splitlines():
        if not inside:
            made.append(line)
        if line.startswith("<!-- table "):
            inside = True
            made.append(tables()[line.split()[2]])
        elif line == "<!-- end -->":
            if inside:
                made.append(line)
            inside = False
    return "\n".join(made) + "\n"


def _by_key(environments: Mapping[str, Any]) -> Mapping[tuple[str, str], Sequence[str]]:
    """Each key with its meaning to the environments that have both, in the order of keys."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, cls in environments.items():
        for declared in cls.keys.items():
            found.setdefault(declared, []).append(name)
    return dict(sorted(found.items(), key=lambda item: item[0][0]))


if __name__ == "__main__":
    for name in PAGES:
        page = Path(__file__).resolve().parent.parent / name
        page.write_text(with_tables(page.read_text()))
