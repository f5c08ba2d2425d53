"""The answer of `vtax place advise` for a reader, as JSON, and for libvirt."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from syrupy.assertion import SnapshotAssertion

from place_hosts import ALIKE, HYBRID, PAIR, advice, predictor, threads
from vtax.analysis.host_advice import HostAdvice
from vtax.present.terminal import tables
from vtax.present.terminal.place_advice import Answer, libvirt, parts, to_json

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
    assert tables.plain(*parts(shown, explain=True)) == snapshot


def test_table_of_user_mode_linux(snapshot: SnapshotAssertion) -> None:
    found = advice(threads("uml_vde"), PAIR, predictor())
    assert tables.plain(*parts(answer(found), explain=False)) == snapshot


def test_table_without_a_predictor(snapshot: SnapshotAssertion) -> None:
    found = advice(threads("uml_vde"), ALIKE)
    shown = answer(found, predictor=None, notes=("no run is in runs",))
    assert tables.plain(*parts(shown, explain=True)) == snapshot


def test_table_of_a_host_without_guests(snapshot: SnapshotAssertion) -> None:
    shown = answer(advice(threads("nothing"), PAIR))
    assert tables.plain(*parts(shown, explain=True)) == snapshot


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
    shown = tables.plain(*parts(answer(given), explain=True))
    assert "\x1b" not in text + shown and "[red]" in shown
    assert json.loads(json.dumps(to_json(answer(given))))["threads"][0]["guest"] == HOSTILE
