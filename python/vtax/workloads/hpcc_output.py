"""HPCC's result file hpccoutf.txt: its values, and whether it passed its own checks.

mpirun ends with code 0 and HPCC prints numbers although a residual is too large or HPL refused
its input, so nothing is taken from a file that does not pass every check here. The limits are
those of HPCC's source (version 1.5.0).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vtax.core.errors import VtaxError
from vtax.workloads.base import tail
from vtax.workloads.hpcc_input import THRESHOLD

Value = int | float | str

BEGIN = "Begin of Summary section."
END = "End of Summary section."

_BOUNDARY = re.compile(r"(Begin|End) of (\w+) section\.")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Numbers with more digits than a 64-bit integer has are left to the floating-point form.
_INT = re.compile(r"[-+]?[0-9]{1,18}")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?:nan|inf|infinity)",
    re.IGNORECASE,
)
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]+,[0-9]+(?:[eE][-+]?[0-9]+)?")

_MESSAGE = re.compile(r"HPL (?:ERROR|WARNING)\b.*")
_FAILURE = re.compile(
    r"\bFAILED\b"  # residuals of HPL and PTRANS
    r"|\(failed\)"  # RandomAccess
    r"|Failed Validation"  # STREAM
    r"|Failed to allocate"
    r"|Node\(s\) with error +[1-9]"  # all Star and Single kernels
    r"|\bILLEGAL\b"
    r"|[1-9][0-9]* tests skipped"
)
_HPL_RUN = re.compile(
    r"^W[RC]\w+ +([0-9]{1,9}) +[0-9]+ +[0-9]+ +[0-9]+ +\S+ +([0-9][0-9.]*(?:[eE][-+]?[0-9]+)?)$"
)

_RANDOM_ACCESS = "MPIRandomAccess"
_TABLE = re.compile(r"^Total Main table size = .*?([0-9]{1,18}) words$", re.MULTILINE)
_TIME = re.compile(r"^(CPU|Real) time used = ([0-9]{1,9}\.[0-9]{1,9}) seconds$", re.MULTILINE)

_MOST_ERRORS = 0.01
"""Share of wrong words that HPCC allows in RandomAccess."""


@dataclass(frozen=True, slots=True)
class Output:
    """The content of a result file that passed all checks."""

    summary: Mapping[str, Value]
    """Every value of the summary section, in its order. -1 is HPCC's value for "not measured"."""
    hpl_gflops: Mapping[int, float]
    """Gflop/s by N from HPL's own table; the summary has only the best of all N."""


@dataclass(frozen=True, slots=True)
class RandomAccessTimes:
    """Both clocks of MPIRandomAccess, for the updates without their verification."""

    table_words: int
    cpu_s: float
    """0 means a time below a tick of a coarse clock."""
    wall_s: float


def random_access_times(text: str) -> RandomAccessTimes:
    """What MPIRandomAccess printed about its run. Raises VtaxError when it printed nothing."""
    _, _, rest = text.partition(f"Begin of {_RANDOM_ACCESS} section.")
    section, _, _ = rest.partition(f"End of {_RANDOM_ACCESS} section.")
    table, times = _TABLE.search(section), dict(_TIME.findall(section))
    if table is None or times.keys() != {"CPU", "Real"}:
        raise VtaxError(f"hpcc: {_RANDOM_ACCESS} does not say how long it took")
    return RandomAccessTimes(int(table[1]), float(times["CPU"]), float(times["Real"]))


def read_output(text: str, messages: str, sizes: Sequence[int]) -> Output:
    """The values of a result file.

    `messages` is what the program printed, `sizes` are the N that were asked for. Raises VtaxError,
    naming the test and its residual, when HPCC complained, failed a check of its own, was cut
    short, or solved another problem.
    """
    _refuse_messages(f"{messages}\n{text}")
    _refuse_failures(text)
    summary = parse_summary(text)
    _refuse_summary(summary, sizes)
    runs = dict(_hpl_runs(text))
    missing = sorted(set(sizes) - set(runs))
    if missing:
        raise VtaxError(f"hpcc: HPL has no result for N={', '.join(map(str, missing))}")
    return Output(summary, runs)


def parse_summary(text: str) -> dict[str, Value]:
    """Every ``name=value`` of the summary section.

    Raises VtaxError when the section is missing, cut short or duplicated, or has any other kind of
    line.
    """
    lines = [line.strip() for line in text.split("\n")]
    starts = [index for index, line in enumerate(lines) if line == BEGIN]
    if not starts:
        raise VtaxError(f"hpcc: hpccoutf.txt has no summary section; it ends with: {_end(text)}")
    if len(starts) > 1:
        raise VtaxError(
            "hpcc: hpccoutf.txt has several summary sections",
            "mpirun and hpcc are of different MPI installations, so each process ran alone",
        )
    body = lines[starts[0] + 1 :]
    if END not in body:
        raise VtaxError(
            f"hpcc: result file cut short: no end of summary section; it ends with: {_end(text)}"
        )
    summary: dict[str, Value] = {}
    for line in body[: body.index(END)]:
        name, value = _pair(line)
        if name in summary:
            raise VtaxError(f"hpcc: the summary has '{name}' twice")
        summary[name] = value
    return summary


def number(summary: Mapping[str, Value], name: str) -> float | None:
    """A value as a number; None when it is absent or text."""
    value = summary.get(name)
    return None if value is None or isinstance(value, str) else float(value)


def _pair(line: str) -> tuple[str, Value]:
    name, equals, text = line.partition("=")
    if not equals or not _KEY.fullmatch(name):
        raise VtaxError(f"hpcc: the summary has a line that is not name=value: {line!r:.60}")
    if _INT.fullmatch(text):
        return name, int(text)
    if _FLOAT.fullmatch(text):
        return name, float(text)
    if _DECIMAL_COMMA.fullmatch(text):
        raise VtaxError(
            f"hpcc: {name}={text} has a decimal comma", "run it in the locale C.UTF-8 (LC_ALL)"
        )
    return name, text


def _refuse_messages(text: str) -> None:
    match = _MESSAGE.search(text)
    if match:
        # The reason is in the next line, between >>> and <<<.
        reason = re.search(r">>> (.+?) <<<", text[match.end() : match.end() + 500])
        raise VtaxError(f"hpcc: {reason[1] if reason else tail(match[0])} (HPL refused its input)")


def _refuse_failures(text: str) -> None:
    section, before = "?", ""
    for line in text.split("\n"):
        boundary = _BOUNDARY.match(line)
        if boundary:
            section = boundary[2]
        elif _FAILURE.search(line):
            # "Node(s) with error" has its residual in the line before.
            detail = tail(f"{before}\n{line}" if "Node(s)" in line else line)
            raise VtaxError(f"hpcc: {section} failed its check: {detail:.300}")
        if line.strip():
            before = line


def _refuse_summary(summary: Mapping[str, Value], sizes: Sequence[int]) -> None:
    for name, share in _error_shares(summary):
        if not share <= _MOST_ERRORS:
            raise VtaxError(
                f"hpcc: {name} failed its check: {100 * share:.3g} % of its words are wrong"
            )
    for name, residual in _residuals(summary):
        if not residual < THRESHOLD:
            raise VtaxError(
                f"hpcc: {name} failed its check: scaled residual {residual:.4g}, "
                f"not below {THRESHOLD:g}"
            )
    if summary.get("Success") != 1:
        raise VtaxError(f"hpcc: it reports Success={summary.get('Success', 'nothing')}")
    solved = summary.get("HPL_N")
    if solved not in sizes:
        raise VtaxError(f"hpcc: HPL solved N={solved}, not N={', '.join(map(str, sizes))}")


def _error_shares(summary: Mapping[str, Value]) -> Iterator[tuple[str, float]]:
    for test in ("MPIRandomAccess", "MPIRandomAccess_LCG"):
        share = number(summary, f"{test}_ErrorsFraction")
        if share is not None and share != -1:
            yield test, share


def _residuals(summary: Mapping[str, Value]) -> Iterator[tuple[str, float]]:
    """Scaled residuals as HPCC computes them (HPL_pdtest.c, pdtransdriver.c, mpifft.c).

    A residual that cannot be computed from the summary is NaN, which is below no threshold.
    """
    eps = number(summary, "HPL_eps") or math.nan
    yield "HPL", _hpl_residual(summary, eps)
    transposed = number(summary, "PTRANS_residual")
    if transposed is not None and transposed != -1:
        yield "PTRANS", _ratio(transposed, eps * (number(summary, "PTRANS_n") or math.nan))
    error = number(summary, "MPIFFT_maxErr")
    if error is not None and error != -1:
        size = number(summary, "MPIFFT_N") or math.nan
        yield "MPIFFT", _ratio(error, eps * math.log(size) if size > 1 else math.nan)


def _hpl_residual(summary: Mapping[str, Value], eps: float) -> float:
    """||Ax-b|| / (eps * (||A|| ||x|| + ||b||) * N), all in the infinity norm."""
    a, x, b, n, error = (
        math.nan if value is None else value
        for value in (
            number(summary, f"HPL_{name}") for name in ("AnormI", "XnormI", "BnormI", "N", "RnormI")
        )
    )
    return _ratio(error, eps * (a * x + b) * n)


def _ratio(error: float, scale: float) -> float:
    return error / scale if error >= 0 and scale > 0 else math.nan


def _hpl_runs(text: str) -> Iterator[tuple[int, float]]:
    for line in text.split("\n"):
        match = _HPL_RUN.match(line.rstrip())
        if match:
            try:
                yield int(match[1]), float(match[2])
            except ValueError:
                raise VtaxError(f"hpcc: HPL's table has no number in: {line!r:.90}") from None


def _end(text: str) -> str:
    return f"{tail(text, lines=1):.100}" or "(it is empty)"
