"""Sweeps of the model itself, from the command line to the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars
import pytest
import tomli_w

pytest.importorskip("vtax._native", reason="the extension is not built: make setup")

from vtax.paging import simulate
from vtax.paging.sweep.design import read_design
from vtax.paging.sweep.simulate import catalog, evaluate

DESIGN = """
workloads = ["random"]
machines = ["opteron2350"]
modes = ["native", "shadow", "nested", "mine.py:Mine"]
[simulation]
instructions = 2e5
whole = true
memory = "2G"
window = 1e5
[axes]
costs.exit = { scale = [1, 2] }
"tlb.l2[0].ways" = [4, 3]
Mine.limit = [0.001, 1.0]
"""
POLICY = """
import vtax.paging


class Mine(vtax.paging.Policy):
    window_instructions = 50_000
    limit = 0.001

    def decide(self, now, last_window):
        if self.limit > 0.5:
            raise RuntimeError("too much")
        return "shadow"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sweep.toml").write_text(DESIGN)
    (tmp_path / "mine.py").write_text(POLICY)
    return tmp_path


def vtax(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vtax.main", "paging", "sweep", *argv]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_every_machine_survives_the_way_to_a_worker() -> None:
    names = catalog()
    for name in names.machines:
        description = names.machine(name)
        assert names.parse_machine(tomli_w.dumps(description)) == description


def test_a_point_is_what_simulate_gives(folder: Path) -> None:
    (folder / "plain.toml").write_text(
        'workloads = ["random"]\nmachines = ["opteron2350"]\nmodes = ["shadow", "dav2m"]\n'
        "[simulation]\ninstructions = 2e5\nwhole = true\nseed = 3\n"
        "[axes]\ndav2m.p_factor = [1.5]\n"
    )
    (point,) = read_design(folder / "plain.toml", catalog()).points()
    result = simulate(
        "random", modes=("shadow", "dav2m"), instructions=2e5, whole=True, seed=3,
        parameters={"dav2m": {"p_factor": 1.5}},
    )  # fmt: skip
    assert polars.DataFrame(evaluate(point)).equals(result.modes)
    assert polars.DataFrame(evaluate(point)).equals(result.modes)


def test_the_command_saves_what_can_be_and_names_what_cannot(folder: Path) -> None:
    ran = vtax(folder, "sweep.toml", "--out", "out", "--json", "--workers", "2")
    assert ran.returncode == 1, ran.stderr
    result = json.loads(ran.stdout)
    assert (result["state"], result["points"], len(result["failed"])) == ("complete", 8, 6)
    assert "Traceback" not in ran.stderr
    assert "tlb.l2[0].entries: must be" in ran.stderr
    assert "policy Mine raised RuntimeError: too much (mine.py line 11)" in ran.stderr
    table = polars.read_parquet(folder / "out" / "sweep.parquet")
    good = table.filter(polars.col("error").is_null())
    assert good.height == 2 * 4
    cycles = {
        (row["costs.exit.scale"], row["mode"]): row["cycles"] for row in good.iter_rows(named=True)
    }
    assert cycles[2.0, "native"] == cycles[1.0, "native"]
    assert cycles[2.0, "shadow"] > cycles[1.0, "shadow"]


def test_a_resumed_command_tries_only_what_failed(folder: Path) -> None:
    vtax(folder, "sweep.toml", "--out", "out")
    ran = vtax(folder, "sweep.toml", "--out", "out", "--resume")
    workers = min(2, len(os.sched_getaffinity(0)))
    assert f"8 points, 2 of them from before; {workers} local workers" in ran.stderr
    refused = vtax(folder, "sweep.toml", "--out", "out")
    assert refused.returncode == 2
    assert refused.stderr.startswith("vtax: out holds a sweep already; continue it with --resume")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("random", "randon", "unknown workload 'randon'; did you mean 'random'?"),
        ("opteron2350", "opteron", "unknown machine 'opteron'; did you mean 'opteron2350'?"),
        ("nested", "nasted", "unknown mode 'nasted'; did you mean 'nested'?"),
        ("py:Mine", "py:Mien", "did you mean 'Mine'?"),
        ("Mine.limit", "Mine.limits", "unknown attribute of Mine 'limits'; did you mean 'limit'?"),
        ("costs.exit", "costs.exist", "unknown axis 'costs.exist'; did you mean 'costs.exit'"),
        ("Mine.limit =", "dav2m.x =", "axes.dav2m.x: 'dav2m' is not among the modes"),
    ],
)
def test_a_wrong_design_is_one_line_and_exit_code_2(
    folder: Path, old: str, new: str, message: str
) -> None:
    (folder / "sweep.toml").write_text(DESIGN.replace(old, new))
    ran = vtax(folder, "sweep.toml")
    assert ran.returncode == 2
    assert message in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not (folder / "runs").exists()


def test_an_unknown_parameter_is_refused_with_those_there_are(folder: Path) -> None:
    text = DESIGN.replace('"nested"', '"dav2m"').replace(
        "Mine.limit = [0.001, 1.0]", "dav2m.pf=[1]"
    )
    (folder / "sweep.toml").write_text(text)
    ran = vtax(folder, "sweep.toml")
    assert ran.returncode == 2
    assert "dav2m: pf: unknown" in ran.stderr
    assert "p_factor" in ran.stderr


def test_workers_and_a_scheduler_exclude_each_other(folder: Path) -> None:
    ran = vtax(folder, "sweep.toml", "--workers", "2", "--scheduler", "tcp://127.0.0.1:1")
    assert ran.returncode == 2
    assert "--workers is for processes here" in ran.stderr
