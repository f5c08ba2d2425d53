"""The answer of `vtax place advise` for a reader, as JSON, and for libvirt."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from syrupy.assertion import SnapshotAssertion

from place_hosts import ALIKE, HYBRID, PAIR, advice, predictor, threads
from vtax.core.page import tables
from vtax.core.page.render_terminal import parts
from vtax.place.advice_page import Answer, libvirt, page, to_json
from vtax.place.host_advice import HostAdvice
from vtax.place.interrupt_advice import HostInterrupt, interrupt_advice

HOSTILE = 'a&b<c>"--\x1b[31m]$(id)\n[red]'


def answer(found: HostAdvice, **changes: Any) -> Answer:
    known: dict[str, Any] = {
        "predictor": predictor(),
        "predictor_from": "runs/20260101T000000Z-place",
        "measured_watts": {},
        "no_watts": "no energy counters and no battery in use",
        "notes": (),
    }
    return Answer(found, **(known | changes))


def test_table_of_a_kvm_host(snapshot: SnapshotAssertion) -> None:
    found = advice(threads("kvm_vhost"), HYBRID, predictor(), loss_percent=3.0)
    shown = answer(found, measured_watts={"package-0": 41.25}, no_watts=None, plan_file="plan.toml")
    assert tables.plain(*parts(page(shown, explain=True))) == snapshot


def test_table_of_user_mode_linux(snapshot: SnapshotAssertion) -> None:
    found = advice(threads("uml_vde"), PAIR, predictor())
    assert tables.plain(*parts(page(answer(found), explain=False))) == snapshot


def test_table_without_a_predictor(snapshot: SnapshotAssertion) -> None:
    found = advice(threads("uml_vde"), ALIKE)
    shown = answer(found, predictor=None, notes=("no run is in runs",))
    assert tables.plain(*parts(page(shown, explain=True))) == snapshot


def test_table_of_a_host_without_guests(snapshot: SnapshotAssertion) -> None:
    shown = answer(advice(threads("nothing"), PAIR))
    assert tables.plain(*parts(page(shown, explain=True))) == snapshot


def test_json(snapshot: SnapshotAssertion) -> None:
    found = advice(threads("kvm_vhost"), HYBRID, predictor(), loss_percent=3.0)
    assert json.dumps(to_json(answer(found, plan_file="plan.toml")), indent=1) == snapshot


def test_json_has_the_contracts_fields() -> None:
    contract = {"pid", "tid", "name", "role", "guest", "advice", "expected_loss_percent", "low",
                "high", "reason"}  # fmt: skip
    for name in ("kvm_vhost", "uml_vde", "nothing"):
        found = to_json(answer(advice(threads(name), ALIKE)))
        assert found["plan"] is None
        for each in found["threads"]:
            assert contract <= each.keys()
            assert each["advice"] in ("fast", "slow", "unknown")


INTERRUPTS = interrupt_advice(
    (
        HostInterrupt(24, "vfio-msix[3](0000:01:00.0)", "db", (0, 1, 5), 0),
        HostInterrupt(40, "eth0-rx-0", None, (6, 7), None),
        HostInterrupt(41, HOSTILE, HOSTILE, (0, 1, 2, 3), None),
        HostInterrupt(42, "eth0-rx-2", None, (4,), None, movable=False),
    ),
    HYBRID,
)


def test_table_of_interrupts(snapshot: SnapshotAssertion) -> None:
    found = advice(threads("kvm_vhost")[:1])
    shown = answer(found, interrupts=INTERRUPTS)
    assert tables.plain(*parts(page(shown, explain=True))) == snapshot
    assert "interrupt" not in tables.plain(*parts(page(answer(found), explain=True)))


def test_json_of_interrupts() -> None:
    found = to_json(answer(advice(threads("kvm_vhost")), interrupts=INTERRUPTS))
    first, second, hostile, managed = found["interrupts"]
    assert first == {
        "number": 24, "name": "vfio-msix[3](0000:01:00.0)", "guest": "db", "advice": "fast",
        "cpus": "0-1,5", "planned_cpus": "0-1",
        "reason": "what it costs on slow cores was not measured",
    }  # fmt: skip
    assert (second["guest"], second["planned_cpus"]) == (None, "0-3")
    assert json.loads(json.dumps(hostile))["name"] == hostile["guest"] == HOSTILE
    assert managed["planned_cpus"] == managed["cpus"] == "4"
    assert found["plan"]["interrupts"] == 2


def test_libvirt_leaves_interrupts_out() -> None:
    found = advice(threads("kvm_vhost"), HYBRID, predictor(), loss_percent=20.0)
    alone, left_out = libvirt(found)
    text, more = libvirt(found, INTERRUPTS)
    assert text == alone
    assert more == [
        *left_out, "2 interrupts: libvirt does not place interrupts, a plan does (--plan)",
    ]  # fmt: skip
    assert libvirt(found, INTERRUPTS[2:]) == (alone, left_out), "none of them is to move"


def test_libvirt(snapshot: SnapshotAssertion) -> None:
    text, left_out = libvirt(advice(threads("kvm_vhost"), HYBRID, predictor(), loss_percent=20.0))
    assert text == snapshot
    assert left_out == ["db: qemu-system-x86 (unknown): libvirt cannot pin it"]


def test_libvirt_has_nothing_to_pin_without_qemu() -> None:
    assert libvirt(advice(threads("uml_vde"), PAIR, predictor())) == ("", [])


def test_a_guests_name_stays_text() -> None:
    found = tuple(
        replace(each, guest=HOSTILE, name=HOSTILE if each.role == "unknown" else each.name)
        for each in threads("kvm_vhost")
        if each.guest == "db"
    )
    given = advice(found, HYBRID, predictor(), loss_percent=20.0)
    text, _ = libvirt(given)
    (name,) = ElementTree.fromstring(text).findall("name")
    assert name.text is not None and name.text.startswith('a&b<c>"--') and "$(id)" in name.text
    shown = tables.plain(*parts(page(answer(given), explain=True)))
    assert "\x1b" not in text + shown and "[red]" in shown
    assert json.loads(json.dumps(to_json(answer(given))))["threads"][0]["guest"] == HOSTILE
