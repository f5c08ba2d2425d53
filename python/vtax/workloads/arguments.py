"""Options of workloads: argparse, with mistakes as vtax's one-line errors."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import NoReturn

from vtax.core.errors import MisuseError


class Parser(argparse.ArgumentParser):
    """The options after a workload's name; a mistake raises MisuseError."""

    def __init__(self, workload: str, description: str, example: str) -> None:
        super().__init__(
            prog=workload,
            description=description,
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            # Abbreviations could change their meaning when an option is added.
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        raise MisuseError(f"{self.prog}: {message}", f"see 'vtax compare -- {self.prog} --help'")


def whole_number(low: int, high: int) -> Callable[[str], int]:
    """A converter for argparse: a whole number from `low` to `high`.

    The converter raises ArgumentTypeError for any other text.
    """

    def convert(text: str) -> int:
        # isascii: isdecimal alone accepts the digits of every script.
        if not (text.isascii() and text.isdecimal() and low <= int(text[:20]) <= high):
            raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from {low} to {high}")
        return int(text)

    return convert


def refuse_patterns(workload: str, metric_patterns: Sequence[str]) -> None:
    """Raise MisuseError when ``--metric`` is given to a workload that has metrics of its own."""
    if metric_patterns:
        raise MisuseError(
            f"--metric does not apply to the workload '{workload}', which has its own metrics",
            "use it with a command line, e.g. -- command ./my-program",
        )
