"""The way to the compiled model: loaded at first use, its errors turned into vtax's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from vtax.errors import MisuseError, VtaxError


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
    """Turn the model's errors into vtax's, with `subject` (a file) before the message."""
    native = load()
    before = f"{subject}: " if subject else ""
    try:
        yield
    except native.DescriptionError as error:
        raise MisuseError(f"{before}{error}") from None
    except native.InputError as error:
        raise VtaxError(f"{before}{error}") from None
