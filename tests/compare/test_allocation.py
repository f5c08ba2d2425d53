"""Runs go where they narrow an interval most for their time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from vtax.compare.allocation import LEAST_ROUNDS, MOST_RUNS, PILOT_ROUNDS, Variant, next_round
from vtax.core.statistics.rounds import Run, log_ratio

NOISY = (1.0, 1.04, 0.98, 1.02, 0.97)
STEADY = (50.0, 50.2, 49.9, 50.1, 50.0)


def variant(
    label: str, values: Sequence[float] = NOISY, cost_s: float = 1.0, width: float | None = 0.05
) -> Variant:
    return Variant(label, "native", label == "native#aa", values, cost_s, width)


NATIVE = dataclasses.replace(variant("native"), compared_with=None, width=None)
CONTROL = variant("native#aa")
SLOW = variant("qemu", STEADY, 50.0)


def test_what_is_cheap_and_noisy_runs_more_often_in_a_round() -> None:
    runs = next_round([NATIVE, CONTROL, SLOW], 0.02)
    assert runs["qemu"] == 1
    assert runs["native"] == runs["native#aa"] == MOST_RUNS


def test_what_is_narrow_enough_has_no_more_runs() -> None:
    done = variant("uml", width=0.019)
    assert set(next_round([NATIVE, CONTROL, SLOW, done], 0.02)) == {"native", "native#aa", "qemu"}


def test_a_baseline_without_open_variants_stops_too() -> None:
    other = dataclasses.replace(NATIVE, label="native:cpus=1")
    own = dataclasses.replace(variant("uml", width=0.01), compared_with="native:cpus=1")
    assert set(next_round([NATIVE, SLOW, other, own], 0.02)) == {"native", "qemu"}
    assert next_round([NATIVE, CONTROL, dataclasses.replace(SLOW, width=0.02)], 0.02) == {}


def test_a_control_does_not_keep_a_run_going() -> None:
    assert next_round([NATIVE, dataclasses.replace(CONTROL, width=0.5)], 0.02) == {}


def test_equal_values_are_no_division_by_zero() -> None:
    still = dataclasses.replace(SLOW, values=(2.0, 2.0, 2.0))
    assert next_round([NATIVE, still], 0.02)["qemu"] == 1


def test_the_rule_keeps_the_coverage_and_saves_time() -> None:
    """Whole campaigns with drift: a cheap noisy baseline and an expensive steady guest."""
    random = np.random.default_rng(21)
    hits, rounds = 0, []
    for _ in range(150):
        own: list[Run] = []
        base: list[Run] = []
        counts = {"native": 1, "native#aa": 1, "qemu": 1}
        for number in range(40):
            level = 0.02 * number / 10
            for label, count in counts.items():
                deviation, true = (0.005, math.log(50)) if label == "qemu" else (0.04, 0.0)
                drawn = np.exp(true + level + deviation * random.standard_normal(count))
                (own if label == "qemu" else base).extend(Run(number, 0, v) for v in drawn)
            found = log_ratio(own, base)
            width = found.half_width() if found and number + 1 >= LEAST_ROUNDS else None
            if number + 1 >= PILOT_ROUNDS:
                seen = [run.value for run in base]
                counts = dict(
                    next_round(
                        [
                            dataclasses.replace(NATIVE, values=seen),
                            dataclasses.replace(CONTROL, values=seen),
                            dataclasses.replace(
                                SLOW, values=[run.value for run in own], width=width
                            ),
                        ],
                        0.02,
                    )
                )
            if not counts:
                break
        assert found is not None
        hits += abs(found.value - math.log(50)) <= found.half_width()
        rounds.append(number + 1)
    assert hits / 150 >= 0.89
    # With one run each it would take about 17 rounds of the expensive guest.
    assert np.median(rounds) <= 9
