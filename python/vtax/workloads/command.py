"""Any command line: its wall and CPU time, and numbers found in what it prints."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import regex

from vtax.analysis.results import PROGRAM_TIMES
from vtax.doctor.model import Check
from vtax.errors import MisuseError, VtaxError
from vtax.formats.model import Better
from vtax.workloads.base import Command, MachineShape, Metric, Outcome, ResultFolder, tail
from vtax.workloads.outcomes import (
    PROGRAM_METRICS,
    STDERR,
    STDOUT,
    program_metrics,
    require_success,
)
from vtax.workloads.registry import register

OUTPUT_LIMIT_BYTES = 4 << 20
"""Of each of stdout and stderr; beyond it a regular expression is too slow to be searched."""
SEARCH_TIMEOUT_S = 10.0
"""For one expression in one text; one that backtracks without end needs more than any time."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_SUFFIX_UNITS = {"_s": "s", "_ms": "ms", "_us": "us", "_ns": "ns"}
_TIME_UNITS = frozenset({"s", "ms", "us", "\N{MICRO SIGN}s", "ns", "sec", "seconds", "min"})
_SMALLER_IS_BETTER = re.compile(r"time|latency|delay|duration|elapsed|misses|faults", re.IGNORECASE)

_EXAMPLE = "write for example --metric 'rate:MB/s:higher=rate: ([0-9.]+)'"

_HELP = """usage: [command] PROGRAM [ARGUMENT ...]

Run any command line in the current folder (or --workdir). VTAX_RESULTS names the folder for
what it writes. Its metrics are wall_s and cpu_s, and what --metric finds in its output:

  --metric NAME[:UNIT[:higher|lower]]=REGEX

REGEX is a Python regular expression with a group, searched in stdout and then in stderr; the
first group of the first match is the number (^ and $ match at lines). Without UNIT, a NAME that
ends in _s, _ms, _us or _ns says it. Without a direction, lower is better for a time unit and for
a NAME with time, latency, delay, duration, elapsed, misses or faults in it; otherwise higher.

example:
  vtax compare --in native --in uml:mem=1G --metric 'rate:MB/s=([0-9.]+) MB/s' -- ./benchmark
"""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A number to be found in a program's output."""

    name: str
    unit: str
    better: Better
    regex: str

    def find(self, *texts: str) -> str | None:
        """The first group of the first match in the first text that has one.

        Raises VtaxError when the search takes longer than SEARCH_TIMEOUT_S.
        """
        expression = regex.compile(self.regex, regex.MULTILINE)
        for text in texts:
            try:
                match = expression.search(text, timeout=SEARCH_TIMEOUT_S)
            except TimeoutError:
                raise VtaxError(
                    f"metric '{self.name}': {self.regex!r} was not done with the output after "
                    f"{SEARCH_TIMEOUT_S:g} s",
                    "simplify it: a repetition inside a repetition tries every way to split a text",
                ) from None
            if match:
                return None if match[1] is None else str(match[1])
        return None


def parse_pattern(text: str) -> Pattern:
    """The pattern of a ``--metric``: ``NAME[:UNIT[:higher|lower]]=REGEX``; see the help text.

    Raises MisuseError when a part is missing or wrong.
    """
    described, equals, expression = text.partition("=")
    name, _, rest = described.partition(":")
    unit, colon, direction = rest.partition(":")
    if not equals or not expression or not _NAME.fullmatch(name):
        raise MisuseError(f"--metric '{text}' is not NAME=REGEX", _EXAMPLE)
    if colon and direction not in ("higher", "lower"):
        raise MisuseError(f"--metric '{text}': '{direction}' is neither higher nor lower", _EXAMPLE)
    if name in PROGRAM_TIMES.values():
        raise MisuseError(f"--metric '{name}' is measured anyway", "choose another name")
    _require_group(text, expression)
    if not unit:
        unit = next((u for ending, u in _SUFFIX_UNITS.items() if name.endswith(ending)), "")
    better: Better = "higher" if direction == "higher" else "lower"
    return Pattern(name, unit, better if direction else _direction(name, unit), expression)


def _direction(name: str, unit: str) -> Better:
    return "lower" if unit in _TIME_UNITS or _SMALLER_IS_BETTER.search(name) else "higher"


def _require_group(text: str, expression: str) -> None:
    try:
        groups = regex.compile(expression, regex.MULTILINE).groups
    except (regex.error, RecursionError, OverflowError) as error:
        raise MisuseError(f"--metric '{text}': not a regular expression: {error}") from None
    if groups < 1:
        raise MisuseError(f"--metric '{text}': the expression has no group ( )", _EXAMPLE)


@register
@dataclass(frozen=True, slots=True)
class CommandLine:
    """Any command line, its times, and numbers found in its output."""

    name: ClassVar[str] = "command"
    checks: ClassVar[Sequence[type[Check]]] = ()

    argv: tuple[str, ...]
    patterns: tuple[Pattern, ...] = ()

    @classmethod
    def from_args(cls, args: Sequence[str], metric_patterns: Sequence[str] = ()) -> Self:
        argv = tuple(args[1:] if args[:1] == ["--"] or args[:1] == ("--",) else args)
        if argv in (("--help",), ("-h",)):
            print(_HELP, end="")
            raise SystemExit(0)
        if not argv or not argv[0]:
            raise MisuseError("command: there is nothing to run", "write for example: -- sleep 1")
        patterns = tuple(parse_pattern(text) for text in metric_patterns)
        names = [pattern.name for pattern in patterns]
        for name in names:
            if names.count(name) > 1:
                raise MisuseError(f"--metric '{name}' is given twice")
        return cls(argv, patterns)

    def parameters(self) -> dict[str, Any]:
        return {
            "argv": list(self.argv),
            "metrics": [
                {"name": p.name, "unit": p.unit, "better": p.better, "regex": p.regex}
                for p in self.patterns
            ],
        }

    def label(self) -> str:
        text = shlex.join(self.argv)
        return text if len(text) <= 60 else f"{text[:57]}..."

    def command(self, shape: MachineShape) -> Command:
        return Command(argv=self.argv, in_user_folder=True)

    def metrics(self, outcome: Outcome, folder: ResultFolder) -> Sequence[Metric]:
        require_success(self.argv[0], outcome, folder)
        return (*self._found(folder), *program_metrics(outcome))

    def needs(self) -> Sequence[str]:
        return (self.argv[0],)

    def libraries(self) -> Sequence[str]:
        return (self.argv[0],)

    def expected_metrics(self, shape: MachineShape) -> Sequence[tuple[str, str, Better]]:
        return (*((p.name, p.unit, p.better) for p in self.patterns), *PROGRAM_METRICS)

    def _found(self, folder: ResultFolder) -> Sequence[Metric]:
        if not self.patterns:
            return ()
        out, err = (folder.read_text(name, OUTPUT_LIMIT_BYTES) for name in (STDOUT, STDERR))
        return [
            Metric(p.name, p.unit, p.better, _number(p, p.find(out, err), out, err))
            for p in self.patterns
        ]


def _number(pattern: Pattern, text: str | None, out: str, err: str) -> float:
    """The number of a match; VtaxError when there is none."""
    if text is None:
        said = tail(out) or tail(err) or "nothing"
        raise VtaxError(
            f"metric '{pattern.name}': nothing in the output matches {pattern.regex!r}; "
            f"it ends with: {said[-300:]}"
        )
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise VtaxError(f"metric '{pattern.name}': {text!r:.60} is not a number")
    return value
