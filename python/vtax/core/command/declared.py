"""Help, completion and tables made from what each kind of part declares once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from typer.core import TyperCommand

PAGES = ("environments.md", "record.md")
"""The pages of docs/ that have generated tables."""


OLD_NAMES = {"--rounds": "--reps", "--runs": "--reps"}
"""Options that earlier versions called so; no help shows them."""


class Declared(TyperCommand):
    """A command whose help ends with a list of the environments that it takes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        for place, word in enumerate(args[:end]):
            name, equals, value = word.partition("=")
            args[place] = f"{OLD_NAMES.get(name, name)}{equals}{value}"
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The parameters are Any: their classes differ between versions of typer."""
        self.epilog = f"{self.epilog}\n\n\b\n{self.listing()}\n"
        super().format_help(ctx, formatter)

    def listing(self) -> str:
        """The lines below the examples."""
        from vtax.environments import registry

        named = {f"{name}{_keys(cls.keys)}": summary(cls) for name, cls in registry().items()}
        return "\n".join(["Environments (all keys: docs/environments.md):", *_columns(named)])


class DeclaredWithWorkloads(Declared):
    """A command whose help lists workloads and instruments too."""

    def listing(self) -> str:
        from vtax import workloads
        from vtax.core.runner.instruments import INSTRUMENTS

        named = {name: summary(cls) for name, cls in workloads.registry().items()}
        instruments = {name: summary(cls) for name, cls in INSTRUMENTS.items()}
        return "\n".join(
            [
                super().listing(),
                "Workloads ('vtax compare -- hpcc --help'; any other word is a command):",
                *_columns(named),
                "Instruments:",
                *_columns(instruments),
            ]
        )


def complete_spec(incomplete: str) -> list[str]:
    """Environments whose names begin like this; after ``name:`` their keys."""
    from vtax.environments import registry

    name, colon, rest = incomplete.partition(":")
    if not colon:
        return [each for each in registry() if each.startswith(name)]
    before, comma, last = rest.rpartition(",")
    keys = registry()[name].keys if name in registry() else ()
    return [f"{name}:{before}{comma}{key}=" for key in keys if key.startswith(last)]


def complete_instrument(incomplete: str) -> list[str]:
    """Instruments whose names begin like this."""
    from vtax.core.runner.instruments import INSTRUMENTS

    return [each for each in INSTRUMENTS if each.startswith(incomplete)]


def complete_events(incomplete: str) -> list[str]:
    """`default`, layers, and the events of a layer that is named; after a comma the same again."""
    from vtax.core.recorder import sources

    before, comma, last = incomplete.rpartition(",")
    counted = {each.name: each.events for each in sources.declared() if each.events}
    names = ["default", *counted, *counted.get(last.partition(".")[0], ())]
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


def complete_workload(incomplete: str) -> list[str]:
    """Workloads whose names begin like this."""
    from vtax import workloads

    return [each for each in workloads.names() if each.startswith(incomplete)]


def summary(declared: Any) -> str:
    """The first line of a docstring, as a phrase."""
    first = (declared.__doc__ or "").strip().partition("\n")[0]
    return first.removesuffix(".")


def tables() -> Mapping[str, str]:
    """The tables in docs/ by name, in Markdown."""
    from vtax.core.page.render_markdown import table
    from vtax.core.recorder import sources
    from vtax.core.runner.instruments import ALWAYS, INSTRUMENTS
    from vtax.environments import registry
    from vtax.environments.capabilities import ALL
    from vtax.workloads.loads.registry import LOADS

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
    }


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


def _keys(keys: Iterable[str]) -> str:
    """``[:mem=,cpus=]``, the first few."""
    named = [f"{key}=" for key in keys]
    shown = named if len(named) < 4 else [*named[:2], "..."]
    return f"[:{','.join(shown)}]" if named else ""


def _columns(named: Mapping[str, str]) -> list[str]:
    width = min(34, max(map(len, named)))
    return [f"  {name:{width}}  {text}" for name, text in named.items()]
