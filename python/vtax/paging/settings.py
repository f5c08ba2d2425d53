"""The settings of a simulation: the one description that everything else follows.

`vtax.paging.simulate` takes them as keyword arguments, `vtax paging simulate` as options, a sweep
in ``[simulation]`` and as axes, and the compiled model as a mapping. Adding a setting touches three
files: the model (``crates/model/src/simulation/setup.rs``), its reader
(``crates/python/src/request.rs``), and a line in `Settings`. Nothing else lists them.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, TypedDict, get_args, get_type_hints

from vtax.core.errors import MisuseError
from vtax.core.specs import unknown
from vtax.core.units import parse_size
from vtax.paging.arguments import count

_RANGE = re.compile(r"([^-=]+)-([^-=]+)=\s*(\w+)")
_LARGEST = (1 << 63) - 1
_WORDS = {str: "text", bool: "a boolean", int: "a number", float: "a number"}


def _as_given(_label: str, value: Any) -> Any:
    return value


def _whole(largest: int = _LARGEST) -> Callable[[str, Any], int]:
    def check(label: str, value: float | str) -> int:
        number = count(label, value) if isinstance(value, str) else value
        if not (0 <= number <= largest and number == int(number)):
            raise MisuseError(f"{label} is {value!r}", f"write a whole number from 0 to {largest}")
        return int(number)

    return check


def _amount(label: str, value: float | str) -> float:
    return count(label, value) if isinstance(value, str) else value


def _bytes(label: str, value: int | str) -> int:
    return parse_size(value) if isinstance(value, str) else _whole()(label, value)


def _ranges(label: str, text: str) -> list[tuple[int, int, str]]:
    """The ranges of ``0-64M=2M,1G-1.5G=2M``: first byte, first byte after it, size of pages."""
    found = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise MisuseError(f"{label}: '{part}' is not a range", "write for example 0-64M=2M")
        start, end = (0 if side.strip() == "0" else parse_size(side) for side in match.groups()[:2])
        found.append((start, end, match[3]))
    return found


@dataclass(frozen=True, slots=True)
class Pair:
    """An option that sets a value of the guest and one of the host: ``guest=...,host=...``."""

    name: str
    help: str
    metavar: str


PAGES = Pair(
    "pages", "Page sizes: 4K, 2M or 1G. Default: the workload's, host=2M.", "guest=SIZE,host=SIZE"
)
TABLES = Pair(
    "tables",
    "Levels of the page tables: 2, 4 or 5. Default: guest=4, host as the machine.",
    "guest=N,host=N",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known about a setting besides its name and the types that it takes."""

    default: Any
    """None: the model's own default, as `help` says."""
    help: str
    metavar: str | None = None
    stored: str | None = None
    """The setting's name in the model and in ``result.json``; None: the same name."""
    check: Callable[[str, Any], Any] = _as_given
    """Converts a value; raises MisuseError with the label where the model could not hold it."""
    pair: Pair | None = None
    """The option that sets both sides; None: the setting has an option of its own."""


class Settings(TypedDict, total=False):
    """How the guest is virtualized, and how the output is cut into windows."""

    guest_page: Annotated[
        str | None, Setting(None, "Size of the guest's pages. Default: the workload's.", pair=PAGES)
    ]
    host_page: Annotated[str, Setting("2M", "Size of the host's pages.", pair=PAGES)]
    host_ranges: Annotated[
        str | None,
        Setting(None, "Ranges of the guest's memory where the host's pages have another size, e.g. "
                "0-64M=2M.", "START-END=SIZE,...", check=_ranges),
    ]  # fmt: skip
    guest_levels: Annotated[
        int, Setting(4, "Levels of the guest's page tables.", check=_whole(255), pair=TABLES)
    ]
    host_levels: Annotated[
        int | None,
        Setting(None, "Levels of the host's. Default: the machine's.",
                check=_whole(255), pair=TABLES),
    ]  # fmt: skip
    memory: Annotated[
        int | str, Setting("4G", "The guest's memory.", "SIZE", "memory_bytes", _bytes)
    ]
    isolation: Annotated[bool, Setting(False, "The guest isolates its kernel's page tables.")]
    shadow_style: Annotated[str, Setting("kvm", "Whose shadow paging: kvm or palacios.", "STYLE")]
    window: Annotated[
        int | float | str,
        Setting("1M", "Instructions per window, e.g. 1e6 or 10M.", "N",
                "window_instructions", _whole()),
    ]  # fmt: skip
    instructions: Annotated[
        float | str | None,
        Setting(None, "Stop after N instructions, e.g. 1e9 or 2G.", "N",
                "instruction_limit", _amount),
    ]  # fmt: skip
    whole: Annotated[bool, Setting(False, "Follow every reference; otherwise phases are sampled.")]
    seed: Annotated[int, Setting(1, "Seed of the random generator.", "N", check=_whole())]


@dataclass(frozen=True, slots=True)
class Described:
    """A setting with its name and types."""

    name: str
    annotation: Any
    """The type as declared, without the `Setting`."""
    setting: Setting

    @property
    def stored(self) -> str:
        """The name in the model and in ``result.json``."""
        return self.setting.stored or self.name

    @property
    def kinds(self) -> tuple[type, ...]:
        """The types that the setting takes, without None."""
        return tuple(
            kind for kind in get_args(self.annotation) or (self.annotation,) if kind is not NoneType
        )

    def read(self, label: str, text: str) -> Any:
        """The value of a text from the command line."""
        return text if str in self.kinds else count(label, text)

    def check(self, label: str, value: object) -> Any:
        """The value as the model takes it; raises MisuseError with the label for an impossible
        value."""
        kinds = self.kinds
        wanted = (*kinds, int) if float in kinds else kinds
        if (isinstance(value, bool) and bool not in kinds) or not isinstance(value, wanted):
            words = " or ".join(dict.fromkeys(_WORDS[kind] for kind in kinds))
            raise MisuseError(f"{label}: {value!r} must be {words}")
        return self.setting.check(label, value)


@functools.cache
def described(settings: type = Settings) -> Mapping[str, Described]:
    """Every setting by its name, in the order in which people see them."""
    found = {}
    for name, hint in get_type_hints(settings, include_extras=True).items():
        annotation, setting = get_args(hint)
        found[name] = Described(name, annotation, setting)
    return found


def checked(
    given: Mapping[str, Any], label: Callable[[str], str] = str, settings: type = Settings
) -> dict[str, Any]:
    """All settings by the model's names; those that are not given have their defaults.

    Raises MisuseError for an unknown name and for a value that the model could not even hold; the
    model itself checks what the values mean. `label` says how a message names a setting.
    """
    known = described(settings)
    for name in given:
        if name not in known:
            raise unknown("setting", name, known)
    found = {}
    for name, each in known.items():
        value = given.get(name, each.setting.default)
        found[each.stored] = None if _left_out(each, value) else each.check(label(name), value)
    return found


def _left_out(each: Described, value: object) -> bool:
    return value is None and NoneType in get_args(each.annotation)


def signature_of(function: Callable[..., Any], settings: type = Settings) -> inspect.Signature:
    """The signature with the settings instead of its ``**settings``, for `help`."""
    own = inspect.signature(function)
    kept = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=each.setting.default,
            annotation=each.annotation,
        )
        for name, each in described(settings).items()
    ]  # fmt: skip
    return own.replace(parameters=[*kept, *added])
