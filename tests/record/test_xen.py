"""`vtax record` of a domU from dom0: what Xen's own records say while a command runs."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import run

import polars as pl
import pytest

from command_line import one_line, vtax
from tested_machines import checked
from vtax.core import binaries

CALLS = 40_000
"""System calls of `dd`: one read and one write for each byte."""
DD = ("dd", "if=/dev/zero", "of=/dev/null", "bs=1", f"count={CALLS // 2}")
DOMU_CPU = 1
"""The physical CPU that the domU has to itself."""


@pytest.mark.slow
def test_hypercalls_of_a_known_program_are_counted(tmp_path: Path) -> None:
    checked("xen")
    line = ("record", "--in", "xen", "--every", "100ms", "--out", "run", "--json", "--", *DD)
    done = vtax(*line, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["record"]
    assert (found["source"], found["interval"], found["cpus"]) == ("xentrace", 100_000_000, [0, 1])
    assert {0, 1} <= set(found["vms"])
    rows = pl.read_parquet(tmp_path / "run/intervals.parquet")
    assert found["rows"] == len(rows)
    own = rows.filter(cpu=DOMU_CPU)
    # A paravirtualized kernel of 64 bits leaves each system call by a hypercall, iret.
    hypercalls = own["xen.hypercall"].sum()
    assert CALLS - found["lost_records"] <= hypercalls < 1.5 * CALLS
    # It ran for most of the rows in which it made them.
    busy = own.filter(pl.col("xen.hypercall") > 0.02 * CALLS)
    assert busy["xen.run_time"].sum() > 0.5 * busy["length_ns"].sum()
    assert (rows["xen.run_time"] <= rows["length_ns"]).all()


def test_other_events_are_refused_with_the_way_to_them(tmp_path: Path) -> None:
    line = [str(binaries.find("vtax-host")), "record-xen", "--out", "run", "--events", "sched"]
    done = run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "only xen is recorded in dom0; --from guest records other events" in done.stderr


def test_without_xen_there_is_no_recording(tmp_path: Path) -> None:
    line = [str(binaries.find("vtax-host")), "record-xen", "--out", "run"]
    done = run(
        [*line, "--xentrace", "/no/such"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert one_line(done, 1).startswith("vtax: /no/such: No such file or directory")
    done = run([*line, "--xentrace", "true"], cwd=tmp_path, capture_output=True, text=True)
    assert "xentrace ended without a record; record in dom0" in one_line(done, 1)
    assert list(tmp_path.iterdir()) == []
