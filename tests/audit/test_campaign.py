"""Audits of real machines with a manipulated clock or a shared CPU."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from fast_clock import fast_clock
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.audit.competitor import Competitor
from vtax.audit.measuring import QUICK, Depth, audit
from vtax.core.formats.exchange import Exchange
from vtax.core.formats.model import AuditCard, AuditCheck, AuditVerdict
from vtax.core.runner.runner import Listener, boot, kept_cpus
from vtax.environments.base import Environment, MachineLike
from vtax.environments.capabilities import Pause

UML = "uml:mem=128M"


def check(card: AuditCard, name: str) -> AuditCheck:
    (found,) = [each for each in card.checks if each.name == name]
    return found


def spinning(environment: Environment, seconds: float) -> Sequence[str]:
    agent = environment.agent_inside()
    return (agent, "workload", "gzip-like", "--seconds", str(seconds), "--mem", "1M")


@pytest.mark.slow
@pytest.mark.parametrize(("tick_us", "ppm"), [(10_100, 10_000), (9_000, -100_000)])
def test_a_guest_whose_clock_runs_fast_or_is_broken(tick_us: int, ppm: int, tmp_path: Path) -> None:
    """A clock that is 1 % fast, and one that is 10 % slow, which is no clock."""
    environment = checked(UML)
    script = fast_clock(tick_us)

    def fast(own: Environment, work: Path, cpus: Sequence[int]) -> MachineLike:
        machine = boot(own, work, cpus)
        Exchange(work, "faster").create({})
        done = machine.run(["python3", "-c", script], GUEST_ENVIRONMENT, "faster")
        assert done.outcome.exit_code == 0, (work / "faster/stderr").read_text()
        return machine

    found = []
    # A guest that does not run for long keeps time a little otherwise: one of three is close.
    for attempt in range(3):
        own = tmp_path / str(attempt)
        own.mkdir()
        (card,) = audit({"uml": environment}, GUEST_ENVIRONMENT, QUICK, Listener(), own, start=fast)
        rate = check(card, "host-rate")
        assert rate.verdict is card.verdict is AuditVerdict.FAIL
        found.append(rate.value)
        if rate.value == pytest.approx(ppm, rel=0.05):
            break
    assert found[-1] == pytest.approx(ppm, rel=0.05), found
    assert "wall_s" in rate.metrics


@pytest.mark.slow
def test_two_guests_on_one_cpu(tmp_path: Path) -> None:
    """One guest is audited, the other computes: the first one loses half of its time."""
    environment = checked(UML)
    other = Competitor(
        environment, tmp_path / "other", kept_cpus(environment, matched=True),
        spinning(environment, 120), GUEST_ENVIRONMENT, boot,
    )  # fmt: skip
    tested = tmp_path / "tested"
    tested.mkdir()

    def beside(own: Environment, work: Path, cpus: Sequence[int]) -> MachineLike:
        machine = boot(own, work, cpus)
        assert other.enter(machine) and not other.enter(machine)
        return machine

    try:
        (card,) = audit(
            {"uml": environment}, GUEST_ENVIRONMENT, QUICK, Listener(), tested, start=beside
        )
    finally:
        other.close()
    noise = check(card, "noise")
    assert noise.verdict is card.verdict is AuditVerdict.FAIL
    assert noise.value is not None and noise.value > 30


@pytest.mark.slow
def test_beside_a_competitor_over_a_pause_and_in_several_orders(tmp_path: Path) -> None:
    """User-mode Linux accounts the time that others took as the program's own."""
    depth = Depth(noise_s=0.2, spins={0.1: 2}, beside_s=1.0, order_s=8.0)
    (card,) = audit({"uml": checked(UML)}, GUEST_ENVIRONMENT, depth, Listener(), tmp_path)
    taken = check(card, "noise-beside-guest").value
    assert taken is not None and taken > 30
    unseen = check(card, "stolen-unseen")
    assert unseen.verdict is AuditVerdict.FAIL and unseen.metrics == ("cpu_s",)
    pause = check(card, "time-over-pause")
    assert pause.verdict is AuditVerdict.PASS and pause.unit == "ms"
    drift = check(card, "order-drift")
    # As many rounds as end in time are not always enough for a verdict.
    assert (drift.verdict is AuditVerdict.UNKNOWN) == (drift.value is None)


@pytest.mark.slow
@pytest.mark.parametrize("spec", [UML, "qemu:accel=tcg,mem=512M"])
def test_a_paused_machine_stands_still_and_goes_on(spec: str, tmp_path: Path) -> None:
    environment = checked(spec)
    machine = environment.start(tmp_path, kept_cpus(environment, matched=True))
    try:
        pause = machine.offer(Pause)
        assert pause
        pause.pause()
        asking = threading.Thread(target=machine.clock_skew, daemon=True)
        asking.start()
        asking.join(0.5)
        assert asking.is_alive()
        pause.resume()
        asking.join(30)
        assert not asking.is_alive()
    finally:
        machine.close()
