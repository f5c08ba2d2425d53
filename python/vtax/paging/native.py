"""The way to the compiled model: loaded at first use, its errors turned into vtax's own."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from vtax.core.errors import MisuseError, VtaxError

_UNKNOWN = re.compile(r"unknown (?:field|variant) `(.*?)`, expected (?:one of )?(`.*`)$")
"""How the model's reader of descriptions says that it does not know a name."""


def load() -> ModuleType:
    """The extension module.

    Raises VtaxError when the package was installed without it.
    """
    try:
        from vtax import _native
    except ImportError as error:
        raise VtaxError(
            f"the extension vtax._native cannot be loaded: {error}",
            "run 'make setup' or 'pip install .'",
        ) from error
    return _native


@contextmanager
def translated(subject: str | None = None) -> Iterator[None]:
    """Turn the model's errors into vtax's, with `subject` (a file) before the message.

    Raises MisuseError for an invalid description, VtaxError for an unreadable input.
    """
    native = load()
    before = f"{subject}: " if subject else ""
    try:
        yield
    except native.DescriptionError as error:
        raise MisuseError(f"{before}{_nearest(str(error))}") from None
    except native.InputError as error:
        raise VtaxError(f"{before}{error}") from None


def _nearest(message: str) -> str:
    """The message with the nearest of the known names, where it lists them."""
    match = _UNKNOWN.search(message)
    if match is None:
        return message
    known = re.findall(r"`(.*?)`", match[2])
    nearest = difflib.get_close_matches(match[1], known, n=1, cutoff=0.5)
    hint = f"did you mean '{nearest[0]}'?" if nearest else f"known: {', '.join(known)}"
    return f"{message[: match.start()]}unknown name '{match[1]}'; {hint}"
