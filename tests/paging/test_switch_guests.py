"""`vtax paging switch` with guests as people have them, on stock KVM in the lab: disks with writes
going on, vhost-net, descriptors that QEMU was given, another user, control groups."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import switch_trial_files
from tested_machines import checked

pytestmark = [pytest.mark.slow, pytest.mark.long]

GUESTS = ("named", "given")
CROSSINGS = 200


def require_whole(guest: dict[str, Any]) -> None:
    """No acknowledged write, byte of memory or message is missing, and no clock went back."""
    trip, disk, echo = guest["trip"], guest["disk"], guest["echo"]
    details = trip["details"]
    assert trip["verified"] is True and echo["verified"] is True, guest
    assert details["clock_backsteps"] == 0
    assert details["messages"] == echo["operations"] > 0
    # The disk's content is read by the host, outside the guest.
    assert disk["errors"] == 0
    assert guest["written"] == disk["acknowledged"] > 0, guest


def test_guests_as_people_have_them_lose_nothing(tmp_path: Path) -> None:
    """The trial itself fails where a new QEMU has another user, group, limit, control group or
    environment than the old one, or where vhost-net does not work for it."""
    checked("lab")
    for program in ("gcc", "qemu-img", "ip"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    switch_trial_files.make(tmp_path)
    report = switch_trial_files.crossed(tmp_path, CROSSINGS, *GUESTS)
    assert [switch["to"] for switch in report["switches"]] == ["shadow", "nested"] * (
        CROSSINGS // 2
    )
    assert report["guests"].keys() == set(GUESTS)
    for guest in report["guests"].values():
        require_whole(guest)
    written = sum(guest["written"] for guest in report["guests"].values())
    print(f"{CROSSINGS} crossings of {len(GUESTS)} guests, {written} blocks written, nothing lost")
