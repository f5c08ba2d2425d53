"""The output of `vtax-host place threads --json`, as advice takes it."""

from __future__ import annotations

import json

import pytest

from place_hosts import DATA
from vtax.place.service_domain import Window
from vtax.place.threads import of_window


@pytest.mark.parametrize(
    ("cpuset", "expected"), [("0-3,8", (0, 1, 2, 3, 8)), (None, ()), ("?", ())]
)
def test_the_cpuset_of_a_thread(cpuset: str | None, expected: tuple[int, ...]) -> None:
    said = json.loads((DATA / "kvm_vhost.json").read_bytes())
    (first, *_) = of_window(Window.model_validate(said))
    assert first.cpuset == (), "an answer without the field"
    for each in said["threads"]:
        each["cpuset"] = cpuset
    found = of_window(Window.model_validate(said))
    assert {each.cpuset for each in found} == {expected}
