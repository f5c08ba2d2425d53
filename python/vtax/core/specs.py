"""Environment specs on the command line, such as ``uml:mem=1G`` or ``ssh:me@host:22,cpus=2``."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from vtax.core.errors import MisuseError


@dataclass(frozen=True, slots=True)
class Spec:
    """A parsed spec; the options are still text."""

    name: str
    options: Mapping[str, str]
    target: str | None = None
    """The first part where that is no ``key=value``: it says which machine is meant."""

    def __str__(self) -> str:
        parts = [self.target] if self.target else []
        parts += [f"{key}={value}" for key, value in self.options.items()]
        return f"{self.name}:{','.join(parts)}" if parts else self.name


def parse_spec(text: str) -> Spec:
    """Split ``name:key=value,...`` or ``name:target,key=value,...``.

    Raises MisuseError when a part is empty, has no ``=``, or a key comes twice.
    """
    name, _, rest = text.strip().partition(":")
    options: dict[str, str] = {}
    parts = rest.split(",") if rest else []
    target = parts.pop(0) if parts and parts[0] and "=" not in parts[0] else None
    for part in parts:
        key, equals, value = part.partition("=")
        if not (key and equals and value):
            raise MisuseError(f"environment '{text}': '{part}' is not key=value")
        if key in options:
            raise MisuseError(f"environment '{text}': '{key}' is given twice")
        options[key] = value
    if not name:
        raise MisuseError(f"environment '{text}' has no name", "write for example --in native")
    return Spec(name, options, target)


def unknown(kind: str, word: str, known: Collection[str]) -> MisuseError:
    """The error for a word that is not among `known`, with the nearest one."""
    nearest = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known: {', '.join(sorted(known))}"
    return MisuseError(f"unknown {kind} '{word}'", hint)
