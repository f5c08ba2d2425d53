"""Help and completion made from what each kind of part declares once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from typer.core import TyperCommand

from vtax.core.command import spec_file

OLD_NAMES = {"--rounds": "--reps", "--runs": "--reps"}
"""Options that earlier versions called so; no help shows them."""


class Declared(TyperCommand):
    """A command whose help ends with a list of the environments that it takes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        for place, word in enumerate(args[:end]):
            name, equals, value = word.partition("=")
            args[place] = f"{OLD_NAMES.get(name, name)}{equals}{value}"
        words, file = spec_file.take(args, ctx)
        try:
            left = super().parse_args(ctx, words)
        except spec_file.USAGE_ERROR as error:
            raise (spec_file.in_file(file, error) if file else None) or error from None
        spec_file.parsed(ctx)
        return left

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


def _keys(keys: Iterable[str]) -> str:
    """``[:mem=,cpus=]``, the first few."""
    named = [f"{key}=" for key in keys]
    shown = named if len(named) < 4 else [*named[:2], "..."]
    return f"[:{','.join(shown)}]" if named else ""


def _columns(named: Mapping[str, str]) -> list[str]:
    width = min(34, max(map(len, named)))
    return [f"  {name:{width}}  {text}" for name, text in named.items()]
