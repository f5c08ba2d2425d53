"""Real guests publish their counters, and the recorder on the host has them in its rows."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from command_line import vtax
from tested_machines import GUEST_ENVIRONMENT, checked
from vtax.core import binaries
from vtax.core.errors import MisuseError
from vtax.core.formats.exchange import Exchange
from vtax.environments import build
from vtax.environments.base import Environment
from vtax.environments.guest_page import has_begun, published
from vtax.environments.machine import Machine
from vtax.environments.qemu import Qemu

Start = Callable[[str | Environment], Machine]

NOT_HERE = ("lacks CAP_", "no type information", "locked down")
"""Words of a recorder that may not load its programs."""
WORK = "i=0; while [ $i -lt 60 ]; do /bin/true; sleep 0.01; i=$((i+1)); done"


def test_the_page_is_an_option_of_qemu() -> None:
    assert Qemu.from_options({"page": "on"}).page
    assert not Qemu.from_options({}).page
    with pytest.raises(MisuseError, match="page=perhaps"):
        build("qemu:page=perhaps")


def test_only_a_page_with_a_time_has_begun(tmp_path: Path) -> None:
    page = tmp_path / "page"
    assert not has_begun(page)
    page.write_bytes(b"VTAXPAGE" + bytes(4088))
    assert not has_begun(page)
    page.write_bytes(b"VTAXPAGE" + bytes(16) + b"\1" + bytes(4071))
    assert has_begun(page)
    link = tmp_path / "link"
    link.symlink_to(page)
    assert not has_begun(link)


def recorder(page: Path, out: Path) -> subprocess.Popen[str]:
    program = [str(binaries.find("vtax-host")), "record", "--every", "1ms"]
    program += ["--events", "sched", "--flush", "100ms", "--guest", str(page), "--out", str(out)]
    return subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def recorded(process: subprocess.Popen[str], out: Path) -> dict[str, Any]:
    process.terminate()
    _, said = process.communicate(timeout=300)
    if any(reason in said for reason in NOT_HERE):
        pytest.skip(said.strip())
    assert process.returncode == 0, said
    found: dict[str, Any] = json.loads((out / "record.json").read_text())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "device"),
    [
        ("uml:mem=256M", False),
        ("qemu:accel=tcg,mem=512M,page=on", True),
        pytest.param("qemu:accel=tcg", False, marks=pytest.mark.long),
    ],
)
def test_what_a_guest_counts_is_in_the_hosts_rows(
    start: Start, tmp_path: Path, spec: str, device: bool
) -> None:
    machine = start(spec)
    work, out = tmp_path / "work0", tmp_path / "record"
    Exchange(work, "r0").create({})
    with published(machine, work, device=device) as page:
        process = recorder(page.path, out)
        machine.run(["/bin/sh", "-c", WORK], GUEST_ENVIRONMENT, "r0", timeout_s=60)
    # The recorder goes on for a moment after the publisher has ended, so it has the last values.
    time.sleep(0.3)
    goes_on = process.poll() is None
    record = recorded(process, out)
    assert goes_on
    assert page.final is not None
    final = page.final["counters"]
    assert record["published"] == final
    assert page.final["publications"] > 20
    rows = pl.read_parquet(out / "intervals.parquet")
    columns = {
        column["name"]: column
        for column in json.loads((out / "events.json").read_text())["columns"]
    }
    for name, least in (("guest.processes", 60), ("guest.pgfault", 500), ("guest.interrupts", 20)):
        assert name in rows.columns
        counted = rows[name].sum() + columns[name]["after_last_row"]
        assert least <= counted <= final[name], name
        assert rows[name].drop_nulls().len() > 10
    assert columns["guest.publisher_ns"]["unit"] == "ns"
    # A busy machine's perf may throttle the reference event; vtax says so, and no row is lost.
    assert [each for each in record["warnings"] if "throttling" not in each] == []
    clock = record["guest_clock"]["page"]
    assert 0 < clock["within_ns"] < 20_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "guests"),
    [
        ("uml:guests=2,mem=192M", 2),
        pytest.param("qemu:accel=tcg,mem=512M,page=on", 1, marks=pytest.mark.long),
        pytest.param("qemu:accel=tcg,mem=512M,guests=2", 2, marks=pytest.mark.long),
    ],
)
def test_each_guest_publishes_by_itself(spec: str, guests: int, tmp_path: Path) -> None:
    """A guest's columns have the 60 pairs of processes that it starts, whichever guest it is."""
    checked(spec)
    out = tmp_path / "run"
    line = ("--in", spec, "--guest", "page", "--every", "10ms", "--events", "sched")
    done = vtax("record", *line, "--out", str(out), "--", "sh", "-c", WORK)
    if any(reason in done.stderr for reason in NOT_HERE):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    rows = pl.read_parquet(out / "intervals.parquet")
    listed = json.loads((out / "events.json").read_text())["columns"]
    rest = {column["name"]: column["after_last_row"] for column in listed}
    prefixes = ["guest"] if guests == 1 else [f"guest.{number}" for number in range(guests)]
    for prefix in prefixes:
        counted = rows[f"{prefix}.processes"].sum() + rest[f"{prefix}.processes"]
        assert 120 <= counted < 140
        assert rows[f"{prefix}.processes"].drop_nulls().len() > 10
    assert not any(name.startswith(f"guest.{guests}.") for name in rows.columns)
