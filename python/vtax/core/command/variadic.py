"""An option that takes every word up to the next option: `--against RUN RUN`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

VARIADIC = "--against"


class VariadicAgainst(TyperCommand):
    """A command whose `--against` may be followed by several words, as the shell's globs make them.

    Without it, the second word would silently count as a run of the other side.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The context is Any: its class differs between versions of typer."""
        return super().parse_args(ctx, _repeated(args))


def _repeated(args: list[str]) -> list[str]:
    """The words with the option written before each word that belongs to it."""
    made: list[str] = []
    inside = False
    for at, word in enumerate(args):
        if word == "--":
            return [*made, *args[at:]]
        if word == VARIADIC:
            inside = True
            # An option without a word is left for the parser to complain about.
            if at + 1 == len(args) or args[at + 1].startswith("-"):
                made.append(word)
            continue
        inside = inside and not word.startswith("-")
        made += [VARIADIC, word] if inside else [word]
    return made
