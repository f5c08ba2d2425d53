"""Power of hosts that are a folder."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from vtax.core.runner.repetition import Repetition
from vtax.place.energy import ABSENT, REFUSED, EnergyReading, measured_watts, metered
from vtax.place.instruments.power import WATTS, Power

ZONES = "sys/class/powercap"


def zone(root: Path, number: str, name: str, energy_uj: int) -> Path:
    folder = root / ZONES / f"intel-rapl:{number}"
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text("262143328850\n")
    return folder


def test_packages_are_measured_and_their_parts_are_not(tmp_path: Path) -> None:
    package = zone(tmp_path, "0", "package-0", 262143000000)
    zone(tmp_path, "0:0", "core", 5)
    begin = time.monotonic()
    with metered(tmp_path) as drawn:
        (package / "energy_uj").write_text("1671150")  # begun anew: 2 J
    longest = time.monotonic() - begin
    assert list(drawn.watts) == ["package-0"] and drawn.absent is None
    assert drawn.watts["package-0"] > 2.0 / longest * 0.99


def test_the_power_of_all_packages_is_a_metric_of_the_run(tmp_path: Path) -> None:
    for number, energy_uj in enumerate((1_000_000, 5_000_000)):
        zone(tmp_path, str(number), f"package-{number}", energy_uj)
    this = Repetition("load", None, tmp_path, "run", tmp_path, ())  # type: ignore[arg-type]
    begin = time.monotonic()
    with Power(tmp_path).around(this):
        for each in (tmp_path / ZONES).iterdir():
            (each / "energy_uj").write_text(f"{int((each / 'energy_uj').read_text()) + 3_000_000}")
    longest = time.monotonic() - begin
    (metric,) = this.metrics
    assert (metric.name, metric.unit, metric.better) == (WATTS, "W", "lower")
    assert metric.value > 6.0 / longest * 0.99
    this = Repetition("load", None, tmp_path, "run", tmp_path, ())  # type: ignore[arg-type]
    with Power(tmp_path / "none").around(this):
        pass
    assert this.metrics == []


def test_counters_for_root_alone(tmp_path: Path) -> None:
    folder = zone(tmp_path, "0", "package-0", 1)
    (folder / "energy_uj").unlink()
    with metered(tmp_path) as drawn:
        pass
    assert drawn.watts == {} and drawn.absent == REFUSED


def battery(root: Path, **files: str) -> None:
    folder = root / "sys/class/power_supply/BAT0"
    folder.mkdir(parents=True)
    for name, text in {"type": "Battery", "status": "Discharging", **files}.items():
        (folder / name).write_text(f"{text}\n")


@pytest.mark.parametrize(
    "files",
    [{"power_now": "12500000"}, {"current_now": "-1250000", "voltage_now": "10000000"}],
)
def test_a_battery_in_use(tmp_path: Path, files: dict[str, str]) -> None:
    battery(tmp_path, **files)
    with metered(tmp_path) as drawn:
        pass
    assert drawn.watts == {"battery BAT0": 12.5}


@pytest.mark.parametrize("files", [{"status": "Charging", "power_now": "1"}, {"power_now": "?"}])
def test_a_battery_that_says_nothing(tmp_path: Path, files: dict[str, str]) -> None:
    battery(tmp_path, **files)
    with metered(tmp_path) as drawn:
        pass
    assert drawn.watts == {} and drawn.absent == ABSENT


def reading(at_s: float, energy_uj: int, domain: str = "package-0") -> EnergyReading:
    return EnergyReading(domain, at_s, energy_uj, 262_143_328_850)


def test_a_counter_that_began_again_is_followed() -> None:
    assert measured_watts(reading(1, 0), reading(3, 30_000_000)) == 15
    again = measured_watts(reading(1, 262_143_328_850 - 10_000_000), reading(3, 20_000_000))
    assert again == pytest.approx(15)


def test_readings_that_are_no_pair_give_nothing() -> None:
    assert measured_watts(reading(3, 0), reading(3, 1)) is None
    assert measured_watts(reading(1, 0), reading(3, 1, "dram")) is None
