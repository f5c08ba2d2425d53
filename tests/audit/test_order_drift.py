"""Order drift on passes whose drift is known."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest

from order_data import SIZES, observations
from vtax.audit.order_drift import Contrast, Order, Verdict, order_drift


def test_the_guests_drift_is_gone_after_a_reboot() -> None:
    found = order_drift(observations(guest=0.2), "wall_s", reboots=True)
    assert found.verdict is Verdict.GUEST
    assert found.drift_percent == pytest.approx(20, abs=4)
    assert found.within_pass.percent == pytest.approx(20, abs=4)
    assert found.overall[Contrast.CONTROL].percent == pytest.approx(0, abs=2)
    # Equation 2: the size that ran last in ascending order runs first in descending order, and vice
    # versa.
    down = found.sizes[Contrast.DESCENDING]
    assert down[SIZES[0]].percent == pytest.approx(20, abs=4)
    assert down[SIZES[-1]].percent == pytest.approx(-100 / 6, abs=4)


def test_where_nothing_reboots_the_same_is_the_machines() -> None:
    found = order_drift(observations(guest=0.2), "wall_s", reboots=False)
    assert found.verdict is Verdict.MACHINE


def test_the_machines_drift_survives_a_reboot() -> None:
    found = order_drift(observations(machine=0.2), "wall_s", reboots=True)
    assert found.verdict is Verdict.MACHINE
    # The control is three of five passes later.
    assert found.overall[Contrast.CONTROL].percent == pytest.approx(100 * (1.2**0.6 - 1), abs=1.5)
    # The drift is not taken for an effect of the order.
    assert abs(found.sizes[Contrast.DESCENDING][SIZES[1]].percent or math.inf) < 4


def test_no_drift_is_found_below_the_limit() -> None:
    found = order_drift(observations(noise=0.005), "wall_s", reboots=True)
    assert found.verdict is Verdict.NONE
    assert found.below_percent < 5
    assert found.drift_percent is None
    assert found.text == f"no drift above {found.below_percent:.2g} %"


def test_a_pass_that_is_left_out_leaves_nothing_open() -> None:
    data = [each for each in observations(noise=0.005) if each.order is not Order.RANDOM]
    found = order_drift(data, "wall_s", reboots=True)
    assert found.verdict is Verdict.NONE
    assert found.below_percent < 5


def test_noise_says_below_which_drift_it_cannot_tell() -> None:
    found = order_drift(observations(noise=0.3), "wall_s", reboots=True)
    assert found.verdict is Verdict.NOISY
    assert found.below_percent > 20
    assert found.text.startswith("too noisy to tell below ")


def test_a_control_that_cannot_tell_leaves_open_whose_drift_it_is() -> None:
    data = [
        replace(each, values={"wall_s": each.values["wall_s"] * (1.5 if each.round % 2 else 0.7)})
        if each.order is Order.ASCENDING
        else each
        for each in observations(guest=0.4, rounds=6)
        if each.order is not Order.RANDOM
    ]
    found = order_drift(data, "wall_s", reboots=True)
    assert found.verdict is Verdict.UNCLEAR


@pytest.mark.parametrize("rounds", [0, 1])
def test_without_two_rounds_nothing_is_known(rounds: int) -> None:
    found = order_drift(observations(rounds=rounds), "wall_s", reboots=True)
    assert found.verdict is Verdict.NOISY
    assert found.text == "too noisy to tell"
    assert all(change.interval is None for each in found.sizes.values() for change in each.values())


@pytest.mark.parametrize("rounds", [3, 5])
def test_a_quiet_guest_is_rarely_called_drifting(rounds: int) -> None:
    """One wrong verdict in twenty is what the tests allow; 120 simulations, so at most 14."""
    counts = Counter(
        order_drift(
            observations(rounds=rounds, noise=0.1, seed=seed), "wall_s", reboots=True
        ).verdict
        for seed in range(120)
    )
    assert counts[Verdict.NOISY] >= 120 - 14, counts
