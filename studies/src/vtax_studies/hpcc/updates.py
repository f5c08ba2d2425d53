"""What an update of RandomAccess pays for (section 6 and the future work of the paper).

The built-in GUPS makes the same updates as HPCC's RandomAccess. It runs with a number of updates
and with twice as many, beside the recorder: what the machine does at the program's start and end,
and touching the table for the first time, is in both and cancels out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from vtax.core.errors import VtaxError
from vtax.core.recorder.intervals import load
from vtax.core.recorder.options import RecordOptions
from vtax.environments import Environment
from vtax.record.campaign import record_in
from vtax_studies.hpcc.setup import UPDATE_PLACES
from vtax_studies.measuring import Counting, usable

MEMORY = "64M"
"""The size of the table: more than a TLB reaches."""
PER_COUNT = 2
"""GUPS makes each update again to check its table."""
TIMEOUT_S = 900.0
PREFIXES = ("kvm.exit", "sched.switches", "irq.", "faults.")
"""Columns that count what costs an update time."""


@dataclass(frozen=True, slots=True)
class PerUpdate:
    """How often an event occurs for an update, in pairs of runs."""

    place: str
    event: str
    pairs: Sequence[float]

    @property
    def middle(self) -> float:
        return median(self.pairs)


def measure(
    names: Sequence[str], pairs: int, folder: Path, shown: Counting, left_out: dict[str, str]
) -> Sequence[PerUpdate]:
    """Events of each update in the places of these names; `left_out` gets the reasons of others."""
    found: list[PerUpdate] = []
    specs = {name: UPDATE_PLACES[name].spec for name in names}
    for name, environment in usable(specs, left_out).items():
        try:
            own = [
                _pair(name, environment, folder / f"updates-{number}", shown)
                for number in range(pairs)
            ]
        except VtaxError as error:
            left_out[f"{name}, updates"] = str(error)
            continue
        events = sorted(set[str]().union(*own))
        found += [PerUpdate(name, each, [one.get(each, 0.0) for one in own]) for each in events]
    return found


def _pair(
    name: str, environment: Environment, folder: Path, shown: Counting
) -> Mapping[str, float]:
    count = UPDATE_PLACES[name].count
    few, many = (_events(name, environment, number, folder, shown) for number in (count, 2 * count))
    return {
        event: (many[event] - few.get(event, 0)) / (PER_COUNT * count)
        for event in many
        if event.startswith(PREFIXES)
    }


def _events(
    name: str, environment: Environment, count: int, folder: Path, shown: Counting
) -> Mapping[str, int]:
    """The events of one run. Raises VtaxError when it failed."""
    shown.running(f"{count} updates, {name}", 0)
    argv = ("gups", "--mem", MEMORY, "--count", str(count))
    out = folder / f"{list(UPDATE_PLACES).index(name)}-{count}"
    out.parent.mkdir(parents=True, exist_ok=True)
    spec = UPDATE_PLACES[name].spec
    done = record_in(environment, spec, argv, RecordOptions.of(every="10ms"), out, TIMEOUT_S)
    if bad := [each.exit_code for each in done.outcomes if each.exit_code != 0]:
        raise VtaxError(f"{name}: gups ended with code {bad[0]}")
    recording = load(done.path)
    totals = {each.name: recording.total(each) for each in recording.events if not each.is_level}
    return {event: total for event, total in totals.items() if total is not None}
