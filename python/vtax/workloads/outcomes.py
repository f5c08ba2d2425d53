"""What every workload reads from an outcome: was it a success, and how long did it take."""

from __future__ import annotations

import signal
from typing import Any

from vtax.core import foreign_json
from vtax.core.errors import VtaxError
from vtax.core.formats.model import Better
from vtax.core.units import is_quantity
from vtax.workloads.base import Metric, Outcome, ResultFolder, tail

STDOUT = "stdout"
STDERR = "stderr"
"""The files in the working folder that the agent writes a command's output to."""

PROGRAM_METRICS: tuple[tuple[str, str, Better], ...] = (
    ("wall_s", "s", "lower"),
    ("cpu_s", "s", "lower"),
)
"""(name, unit, better) of the metrics that every program has."""


def program_metrics(outcome: Outcome) -> tuple[Metric, ...]:
    """Wall and CPU time of the whole program, start and exit included."""
    values = (outcome.wall_s, outcome.cpu_s)
    return tuple(
        Metric(*described, value) for described, value in zip(PROGRAM_METRICS, values, strict=True)
    )


def require_success(program: str, outcome: Outcome, folder: ResultFolder) -> None:
    """Raise VtaxError, with the tail of the program's output, unless it ended with code 0."""
    if outcome.timed_out:
        problem = f"was stopped at its time limit after {outcome.wall_s:.1f} s"
    elif outcome.signal is not None:
        by_limit = " (as by a memory limit)" if outcome.signal == signal.SIGKILL else ""
        problem = f"was killed by {_signal_name(outcome.signal)}{by_limit}"
    elif outcome.exit_code != 0:
        problem = f"ended with exit code {outcome.exit_code}"
    else:
        return
    said = last_words(folder)
    raise VtaxError(f"{program} {problem}" + (f": {said}" if said else ""))


def last_words(folder: ResultFolder) -> str:
    """The tail of the program's stderr, or of its stdout when that is empty."""
    return _tail_of(folder, STDERR) or _tail_of(folder, STDOUT)


def json_result(program: str, folder: ResultFolder) -> dict[str, Any]:
    """The JSON object that one of vtax's own programs printed.

    Raises VtaxError when the output is not JSON, or says that the program's own check failed.
    """
    text = folder.read_text(STDOUT)
    try:
        result = foreign_json.parse_object(text)
    except ValueError:
        raise VtaxError(
            f"{program} printed no JSON object: {tail(text) or 'nothing at all'}"
        ) from None
    if result.get("verified") is not True:
        raise VtaxError(f"{program} computed a wrong result: its own check failed")
    return result


def positive(program: str, result: dict[str, Any], key: str) -> float:
    """A number above zero from a JSON result; raises VtaxError when it is anything else."""
    value = result.get(key)
    # bool is an int in Python, and no measurement.
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not (value > 0 and is_quantity(value))
    ):
        raise VtaxError(f"{program} reported no valid {key}: {value!r:.40}")
    return float(value)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _tail_of(folder: ResultFolder, name: str) -> str:
    # The error that is being reported matters more than an error in reading its explanation.
    try:
        text = tail(folder.read_text(name))
    except VtaxError as error:
        return f"({error.message})"
    return text if len(text) <= 500 else f"...{text[-500:]}"
