"""Any command line: its wall and CPU time, and numbers found in what it prints."""

from __future__ import annotations

import hashlib
import re
import shlex
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import regex

from vtax.core.checks.model import Check
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.model import Better, BetterFrom
from vtax.core.statistics.results import PROGRAM_TIMES
from vtax.core.units import format_bytes
from vtax.workloads.base import Command, MachineShape, Metric, Outcome, Reading, ResultFolder, tail
from vtax.workloads.metric_names import direction_of, unit_of
from vtax.workloads.metric_units import conversion, known, unwanted
from vtax.workloads.outcomes import (
    PROGRAM_METRICS,
    STDERR,
    STDOUT,
    program_metrics,
    require_success,
)
from vtax.workloads.printed import Place, Printed, read, shown
from vtax.workloads.registry import register

Choice = Literal["first", "last", "all"]

OUTPUT_LIMIT_BYTES = 64 << 20
"""How much --metric searches in each of stdout and stderr."""
SEARCH_TIMEOUT_S = 10.0
"""Time for one expression in one text; an expression that backtracks without end never finishes."""
LINE_REACH = 200
"""How many characters of a match's line to look at on each side of it."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_DIRECTIONS: Mapping[str, Better] = {"higher": "higher", "lower": "lower"}
_CHOICES: Mapping[str, Choice] = {"first": "first", "last": "last", "all": "all"}

_EXAMPLE = "write for example --metric 'rate:MB/s:higher=rate: ([0-9.]+)'"

_HELP = """usage: [command] PROGRAM [ARGUMENT ...]

Run any command line in the current folder (or --workdir). VTAX_RESULTS names the folder for
what it writes. Its metrics are wall_s and cpu_s, and what --metric finds in its output:

  --metric NAME[:UNIT][:higher|lower][:first|last|all]=REGEX

REGEX is a Python regular expression with a group, searched in stdout and then in stderr, of which
64 MiB each are searched (^ and $ match at lines), without colours. The group needs a piece of the
number only: it is read whole (1.234e+04, 1,234.5, 1_000, 12.3k, 1.2 million), with the unit beside
it. What cannot be read exactly is refused, as is a duration in parts (2m 3.5s). Of several matches
the last is taken, unless you choose; all is their median.

UNIT is the unit of the results. A program that prints another of the same dimension (us, ms; kB/s,
MiB/s) has its values converted, any other is refused. Prefixes: kB and KB are 1000, KiB is 1024.
A word behind the number that is no known unit is refused too, unless REGEX matches it.
Without UNIT, the first one printed is taken, else that of a NAME such as run_ms or MB_s.

What is better follows from you, or from the unit: something per second is better higher, a time or
time per something lower. Otherwise words of NAME (rate, throughput, score; latency, misses, ...)
are assumed to say it. Where nothing does, a comparison is refused: write NAME:lower=REGEX.

example:
  vtax compare --in native --in uml:mem=1G --metric 'rate:MB/s=rate: ([0-9.]+)' -- ./benchmark
"""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern for a number in a program's output."""

    name: str
    unit: str
    """As given, else as the name says; "" means the program's own unit."""
    better: Better | None
    """None: not known before a run."""
    regex: str
    better_from: BetterFrom = "assumed"
    unit_given: bool = True
    choice: Choice | None = None
    """None: take the last match, and say so when there are several."""

    def described(self, printed: str | None) -> tuple[str, Better | None, BetterFrom]:
        """Unit and direction, and the source of the direction, if the program prints this unit."""
        if self.unit_given or printed is None:
            return self.unit, self.better, self.better_from
        # The program's printed unit counts more than the metric's name.
        unit = printed if conversion(printed, self.unit) is None else self.unit
        if self.better_from == "given":
            return unit, self.better, "given"
        table = known(unit)
        if table and table.better and not (table.better == "higher" and unwanted(self.name)):
            return unit, table.better, "unit"
        return unit, direction_of(self.name), "assumed"

    def find(self, *texts: str) -> Sequence[Place]:
        """All matches in the first text that has one; matches that are not chosen share one Place.

        Raises VtaxError when the search takes longer than SEARCH_TIMEOUT_S.
        """
        expression = regex.compile(self.regex, regex.MULTILINE)
        end = time.monotonic() + SEARCH_TIMEOUT_S
        for text in texts:
            found = []
            try:
                for match in expression.finditer(text, timeout=SEARCH_TIMEOUT_S):
                    if time.monotonic() > end:
                        raise TimeoutError
                    if match[1] is not None:
                        found.append((*match.span(1), *match.span()))
            except TimeoutError:
                raise VtaxError(
                    f"metric '{self.name}': {self.regex!r} was not done with the output after "
                    f"{SEARCH_TIMEOUT_S:g} s",
                    "simplify it: a repetition inside a repetition tries every way to split a text",
                ) from None
            if found:
                return [_place(text, *each) for each in found]
        return ()

    def read(self, out: str, err: str) -> Metric:
        """The metric of a run that printed this; raises VtaxError when it cannot be read
        exactly."""
        places = self.find(shown(out), shown(err))
        if not places:
            said = tail(out) or tail(err) or "nothing"
            raise VtaxError(
                f"metric '{self.name}': nothing in the output matches {self.regex!r}; "
                f"it ends with: {said[-300:]}"
            )
        chosen = {"first": places[:1], "all": places}.get(self.choice or "last", places[-1:])
        try:
            found = [read(place, self.unit if self.unit_given else "") for place in chosen]
        except VtaxError as error:
            raise VtaxError(f"metric '{self.name}': {error}") from None
        unit, better, better_from = self.described(found[0].unit)
        value = float(statistics.median(self._converted(each, unit) for each in found))
        return Metric(
            self.name,
            unit,
            better or "higher",
            value,
            better_from=better_from if better else None,
            reading=Reading(
                len(places) if self.choice is None else 1,
                next((each.unit for each in found if each.unit), ""),
                found[0].word,
            ),
        )

    def _converted(self, found: Printed, unit: str) -> Fraction:
        if found.unit is None:
            return found.value
        factor = conversion(found.unit, unit)
        if factor is None:
            raise VtaxError(
                f"metric '{self.name}': the output has the unit '{found.unit[:40]}', not '{unit}'",
                f"write --metric '{self.name}:{found.unit[:40]}:higher=...' (or lower) if that "
                "is what you mean",
            )
        return found.value * factor


def _place(text: str, begin: int, end: int, match_begin: int, match_end: int) -> Place:
    low = max(text.rfind("\n", 0, begin) + 1, begin - LINE_REACH, 0)
    high = text.find("\n", end)
    high = min(len(text) if high < 0 else high, end + LINE_REACH)
    line = text[low:high].rstrip("\r")
    return Place(line, begin - low, end - low, match_begin - low, match_end - low)


def parse_pattern(text: str) -> Pattern:
    """The pattern of a ``--metric``; see the help text.

    Raises MisuseError when a part is missing or wrong.
    """
    described, equals, expression = text.partition("=")
    name, *parts = described.split(":")
    if not equals or not expression or not _NAME.fullmatch(name):
        raise MisuseError(f"--metric '{text}' is not NAME=REGEX", _EXAMPLE)
    if name in PROGRAM_TIMES.values():
        raise MisuseError(f"--metric '{name}' is measured anyway", "choose another name")
    _require_group(text, expression)
    unit = parts.pop(0) if parts and parts[0] not in (*_DIRECTIONS, *_CHOICES) else ""
    better: Better | None = None
    choice: Choice | None = None
    for part in parts:
        if part in _DIRECTIONS and better is None:
            better = _DIRECTIONS[part]
        elif part in _CHOICES and choice is None:
            choice = _CHOICES[part]
        else:
            raise MisuseError(
                f"--metric '{text}': '{part}' is neither higher nor lower, first, last nor all",
                _EXAMPLE,
            )
    better_from: BetterFrom = "given" if better else "assumed"
    given = bool(unit)
    unit = unit or unit_of(name)
    if better is None:
        table = known(unit) if unit else None
        better = table.better if table else None
        said = direction_of(name)
        contradicted = not given and better and said not in (None, better)
        if contradicted or (better == "higher" and unwanted(name)):
            better = None
        better_from = "unit" if better and given else "assumed"
        better = better or (None if contradicted else said)
    return Pattern(name, unit, better, expression, better_from, given, choice)


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
    compared: bool = True
    """False: there is only one environment, and no direction is needed."""
    stdin: bytes | None = field(default=None, repr=False)
    """The user's standard input; each repetition reads it from its beginning."""

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
        digest = None if self.stdin is None else hashlib.sha256(self.stdin).hexdigest()
        given = {"stdin_bytes": len(self.stdin), "stdin_sha256": digest} if self.stdin else {}
        return {
            "argv": list(self.argv),
            **given,
            "metrics": [
                {
                    "name": p.name,
                    "unit": p.unit,
                    "better": p.better,
                    "regex": p.regex,
                    "choice": p.choice,
                }
                for p in self.patterns
            ],
        }

    def label(self) -> str:
        text = shlex.join(self.argv)
        return text if len(text) <= 60 else f"{text[:57]}..."

    def command(self, shape: MachineShape) -> Command:
        return Command(argv=self.argv, in_user_folder=True, stdin=self.stdin)

    def metrics(self, outcome: Outcome, folder: ResultFolder) -> Sequence[Metric]:
        require_success(self.argv[0], outcome, folder)
        return (*self._found(folder), *program_metrics(outcome))

    def needs(self) -> Sequence[str]:
        return (self.argv[0],)

    def libraries(self) -> Sequence[str]:
        return (self.argv[0],)

    def expected_metrics(self, shape: MachineShape) -> Sequence[tuple[str, str, Better]]:
        return (*map(_expected, self.patterns), *PROGRAM_METRICS)

    def _found(self, folder: ResultFolder) -> Sequence[Metric]:
        if not self.patterns:
            return ()
        try:
            out, err = (folder.read_text(name, OUTPUT_LIMIT_BYTES) for name in (STDOUT, STDERR))
        except VtaxError as error:
            raise VtaxError(
                f"--metric searches {format_bytes(OUTPUT_LIMIT_BYTES)} of output: {error}",
                "let the program print less, e.g. by sh -c './program | tail'",
            ) from None
        return [self._decided(pattern, pattern.read(out, err)) for pattern in self.patterns]

    def _decided(self, pattern: Pattern, found: Metric) -> Metric:
        if found.better_from is None and self.compared:
            raise VtaxError(
                f"metric '{pattern.name}': what is better, higher or lower, is not known",
                f"write --metric '{pattern.name}:lower={pattern.regex}', or higher",
            )
        return replace(found, better_from=found.better_from or "assumed")


def _expected(pattern: Pattern) -> tuple[str, str, Better]:
    """Name, unit and direction, as far as they are known before a run."""
    return pattern.name, pattern.unit, pattern.better or "higher"
