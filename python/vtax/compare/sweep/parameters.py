"""`--param NAME=VALUE,...`: values that take turns in a command or an environment, as `{NAME}`."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vtax.core.errors import MisuseError

MOST_POINTS = 1000
"""As many as a report can show; each is a comparison of its own."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
Values = Mapping[str, str]
"""A value for each parameter."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A name, and the values that it takes."""

    name: str
    values: tuple[str, ...]

    @property
    def numbers(self) -> tuple[float, ...] | None:
        """The values as numbers, if all of them are finite ones."""
        try:
            found = tuple(map(float, self.values))
        except ValueError:
            return None
        return found if all(map(math.isfinite, found)) else None


def parse(texts: Sequence[str]) -> tuple[Parameter, ...]:
    """The parameters of all `--param`. Raises MisuseError for what is none."""
    found: dict[str, Parameter] = {}
    for text in texts:
        name, listed = named(text)
        values = tuple(listed.split(","))
        if not all(values):
            raise _no_parameter(text)
        require_different(text, values)
        found[name] = Parameter(name, values)
    require_once(texts)
    count = math.prod(len(each.values) for each in found.values())
    if count > MOST_POINTS:
        raise MisuseError(f"--param: {count} combinations are more than {MOST_POINTS}")
    return tuple(found.values())


def named(text: str) -> tuple[str, str]:
    """The name in the text of a `--param`, and what is behind `=`. Raises MisuseError."""
    name, equals, listed = text.partition("=")
    if not _NAME.fullmatch(name) or not equals:
        raise _no_parameter(text)
    return name, listed


def require_once(texts: Sequence[str]) -> None:
    """Raise MisuseError for a name that several `--param` have."""
    for name, count in Counter(text.partition("=")[0] for text in texts).items():
        if count > 1:
            raise MisuseError(f"--param {name} is given twice", "give all its values at once")


def require_different(text: str, values: Sequence[str]) -> None:
    """Raise MisuseError for a value that is there twice."""
    if len(set(values)) < len(values):
        raise MisuseError(f"--param {text}: a value is given twice")


def _no_parameter(text: str) -> MisuseError:
    return MisuseError(f"--param {text}: it is not NAME=VALUE,VALUE", "e.g. threads=1,2,4")


def combinations(parameters: Sequence[Parameter]) -> Sequence[Values]:
    """Every combination, the last parameter changing fastest."""
    names = [each.name for each in parameters]
    return [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*(each.values for each in parameters))
    ]


def require_used(names: Iterable[str], words: Sequence[str]) -> None:
    """Raise MisuseError for a parameter that no word has."""
    for name in names:
        if not any(f"{{{name}}}" in word for word in words):
            raise MisuseError(
                f"--param {name}: no word of the command has {{{name}}}, nor an environment",
                f"write for example -- PROGRAM {{{name}}}",
            )


def filled(words: Sequence[str], values: Values) -> tuple[str, ...]:
    """The words with each `{NAME}` replaced, in one pass: a value is text and no placeholder."""
    if not values:
        return tuple(words)
    pattern = re.compile("|".join(re.escape(f"{{{name}}}") for name in values))
    return tuple(pattern.sub(lambda found: values[found[0][1:-1]], word) for word in words)


def said(values: Values) -> str:
    """`threads=2, size=100`."""
    return ", ".join(f"{name}={value}" for name, value in values.items())
