"""The power model gives the values that it was made from; an energy counter may begin again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtax.analysis.power import (
    MODELS,
    RK3399_BIG,
    EnergyReading,
    PowerModel,
    at_speed,
    measured_watts,
    operating_points,
    performance_per_model_watt,
)

CORE = PowerModel("a core", busy_model_watts=10.0, idle_model_watts=2.0)


def test_power_is_coefficient_times_frequency_times_voltage_squared() -> None:
    """436 uW/MHz/V2 at 1800 MHz and 1.2 V; 100 at 1416 MHz and 1.125 V."""
    assert MODELS["cortex-a72"].busy_model_watts == pytest.approx(1.130112)
    assert MODELS["cortex-a53"].busy_model_watts == pytest.approx(0.17921250)
    assert MODELS["golden-cove"].busy_model_watts == 21


def test_slowing_a_core_by_its_points_gives_its_points() -> None:
    big = MODELS["cortex-a72"]
    for mhz, watts in operating_points(436, RK3399_BIG):
        assert at_speed(big, mhz / 1800).busy_model_watts == pytest.approx(watts)
    assert at_speed(big, 0.1).busy_model_watts == pytest.approx(
        at_speed(big, 408 / 1800).busy_model_watts * 0.1 / (408 / 1800)
    )


@given(st.floats(0, 1), st.floats(0, 1))
def test_slower_never_takes_more_and_energy_per_work_falls(a: float, b: float) -> None:
    slow, fast = sorted((a, b))
    assert at_speed(CORE, slow).busy_model_watts <= at_speed(CORE, fast).busy_model_watts + 1e-9
    assert at_speed(CORE, slow).idle_model_watts == 2
    assert at_speed(CORE, 1.0).busy_model_watts == 10


@pytest.mark.parametrize(("utilisation", "watts"), [(-1, 2), (0, 2), (0.5, 6), (1, 10), (3, 10)])
def test_power_is_linear_in_utilisation(utilisation: float, watts: float) -> None:
    assert CORE.model_watts(utilisation) == watts


def test_performance_per_watt_needs_power() -> None:
    assert performance_per_model_watt(86, 43) == 2
    assert performance_per_model_watt(86, 0) is None


def reading(at_s: float, energy_uj: int, domain: str = "package-0") -> EnergyReading:
    return EnergyReading(domain, at_s, energy_uj, 262_143_328_850)


def test_a_counter_that_began_again_is_followed() -> None:
    assert measured_watts(reading(1, 0), reading(3, 30_000_000)) == 15
    again = measured_watts(reading(1, 262_143_328_850 - 10_000_000), reading(3, 20_000_000))
    assert again == pytest.approx(15)


def test_readings_that_are_no_pair_give_nothing() -> None:
    assert measured_watts(reading(3, 0), reading(3, 1)) is None
    assert measured_watts(reading(1, 0), reading(3, 1, "dram")) is None
