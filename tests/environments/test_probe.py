"""`vtax-agent probe` in real machines: it ends in time and names what it could not measure."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tested_machines import GUEST_ENVIRONMENT
from vtax.core.formats.exchange import Exchange
from vtax.environments import Environment
from vtax.environments.machine import Machine

CONTRACT = {"name", "value", "unit", "low", "high", "claimed"}
SECONDS = 6
PATIENCE_S = 60
"""A stage may be in the middle of a working set when its time is up; guests are slow."""


def judge(found: dict[str, Any]) -> None:
    """Check what cannot depend on what else the machine does."""
    names = [one["name"] for one in found["probes"]]
    assert len(names) == len(set(names))
    for one in found["probes"]:
        assert one.keys() >= CONTRACT
        if one["value"] is None:
            assert one["reason"] and one["low"] is None and one["high"] is None
        else:
            assert one["low"] <= one["value"] <= one["high"] and "reason" not in one
            assert one["runs"] >= 6
    for curve in found["curves"]:
        sizes = [point["bytes"] for point in curve["points"]]
        assert sizes == sorted(set(sizes))
        assert sizes or curve["ended"]


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["uml:mem=256M", "qemu:accel=tcg,mem=512M"])
def test_of_a_guest(
    start: Callable[[str | Environment], Machine], tmp_path: Path, spec: str
) -> None:
    machine = start(spec)
    exchange = Exchange(tmp_path / "work0", "r0")
    exchange.create({})
    argv = ["/run/vtax/vtax-agent", "probe", "--json", "--seconds", str(SECONDS)]
    begin = time.monotonic()
    finished = machine.run(argv, GUEST_ENVIRONMENT, "r0", timeout_s=PATIENCE_S)
    assert finished.outcome.exit_code == 0, exchange.read_text("stderr")
    assert time.monotonic() - begin < PATIENCE_S
    found = json.loads(exchange.read_text("stdout"))
    judge(found)
    measured = {one["name"] for one in found["probes"] if one["value"] is not None}
    # The time is enough for these in every machine, however slow its instructions are.
    assert measured >= {"core_clock", "add_latency", "multiply_latency", "peak_scalar"}
