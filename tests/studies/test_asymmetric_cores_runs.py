"""The study of asymmetric cores on real machines."""

from __future__ import annotations

import json
import os
from pathlib import Path

import polars as pl
import pytest

from command_line import vtax
from tested_machines import checked
from vtax.core.formats.records import read
from vtax.environments import build
from vtax.place import service_domain
from vtax.place.record import PlaceRecord
from vtax.workloads.loads.registry import LOADS
from vtax_studies.asymmetric_cores import measure
from vtax_studies.asymmetric_cores.claims import RULES
from vtax_studies.asymmetric_cores.setup import (
    LOWEST,
    QEMU,
    QUICK,
    SPECS,
    VDE,
    XEN,
    CoresPlan,
)
from vtax_studies.measuring import Counting

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="links and slow threads need root"),
]


@pytest.mark.usefixtures("slow_core_alone")
def test_the_whole_study_quickly(tmp_path: Path) -> None:
    checked(SPECS[VDE])
    out = tmp_path / "out"
    done = vtax("study", "asymmetric-cores", "--quick", "--json", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    content = json.loads(done.stdout)
    assert {claim["name"] for claim in content["claims"]} == {rule.name for rule in RULES}
    # http stands in for ab; there is no UDP. Points that are kept apart are not in figures 1 to 3.
    numbers = {figure["number"] for figure in content["figures"]}
    assert {"5", "6"} <= numbers <= {"1", "2", "3", "5", "6"}
    points = pl.read_parquet(out / "points.parquet")
    assert points["environment"].unique().to_list() == [SPECS[VDE]]
    assert set(points["load"]) == set(QUICK.loads)
    assert set(points["speed_asked_percent"]) == {100.0, *QUICK.speeds}
    (run,) = (out / "runs").iterdir()
    record = read(run / "run.json")
    assert isinstance(record, PlaceRecord) and record.state == "complete"
    assert record.rounds == QUICK.rounds
    assert (run / "report.html").stat().st_size > 10_000


@pytest.mark.long
def test_dom0_is_measured_quickly(tmp_path: Path) -> None:
    checked(SPECS[XEN])
    out = tmp_path / "out"
    line = ("study", "asymmetric-cores", "--only", "xen", "--quick", "--json", "--out", str(out))
    done = vtax(*line)
    assert done.returncode == 0, done.stderr
    points = pl.read_parquet(out / "points.parquet")
    assert points["environment"].unique().to_list() == [SPECS[XEN]]
    assert set(points["backend"]) == {"xen-cap", "emulator", "hog"}
    assert set(points["speed_asked_percent"]) == {100.0, LOWEST}
    # A whole CPU is dom0's, and it is no more.
    used = points["service_cpu_percent"].drop_nulls()
    assert used.len() and used.is_between(0, 110).all()


@pytest.mark.usefixtures("slow_core_alone")
def test_a_cpu_bound_guest_slows_with_its_vcpu(tmp_path: Path) -> None:
    """This is the one part of the full study that `place measure` lacks: vCPUs are slowed.

    A hog takes three quarters of the CPU time that the vCPU gets. A quota takes them of the CPU,
    but a busy machine leaves the vCPU no more than a part of it anyway.
    """
    checked(SPECS[QEMU])
    backends = [each for each in service_domain.backends() if each.name == "hog"]
    quarter = 25.0
    plan = CoresPlan((QEMU,), ("dgemm",), (quarter,), 1, 2)
    part = measure._Part(QEMU, build(SPECS[QEMU]), (LOADS["dgemm"],), plan, slow_guest=True)
    shown = Counting(part.steps(backends), lambda *_: None)
    record = measure._campaign(part, backends, 1, tmp_path, shown)
    (where,) = record.environments
    assert len(where.service) == 1 and "(vcpu)" in where.service[0]
    (load,) = record.loads
    (slow,) = [point for point in load.points if point.speed_asked_percent == quarter]
    assert slow.relative_percent is not None and slow.relative_percent < 75
