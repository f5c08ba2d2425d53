"""Slow runs and coarse values through the whole program: two machines told apart by their CPUs.

The workload prints the time that it is said to have taken, so the right values are known.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from command_line import vtax

ONE, TWO = "native:cpus=1", "native:cpus=2"
PROGRAM = """
import os, pathlib
one = len(os.sched_getaffinity(0)) == 1
count = pathlib.Path("one" if one else "two")
number = int(count.read_text()) if count.exists() else 0
count.write_text(str(number + 1))
print("took", pathlib.Path(f"values-{count}").read_text().split()[number], "s")
"""


def compared(folder: Path, one: list[str], two: list[str]) -> tuple[dict[str, Any], str]:
    """The result of the machine with one CPU against the machine with two, and the printed text."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one CPU only")
    (folder / "p.py").write_text(PROGRAM)
    (folder / "values-one").write_text(" ".join(one))
    (folder / "values-two").write_text(" ".join(two))
    done = vtax(
        "compare", "--in", ONE, "--in", TWO, "--baseline", TWO, "--no-control", "--no-warm-up",
        "--reps", str(len(one)), "--json", "--metric", "took:s:lower=took ([0-9.]+)",
        "--", "python3", "p.py", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    (run,) = (folder / "runs").iterdir()
    printed = vtax("report", str(run), cwd=folder)
    rows = {(each["environment"], each["metric"]): each for each in answer["results"]}
    return rows[ONE, "took"] | {"flags": answer["flags"]}, printed.stdout


def test_a_guest_that_is_slow_in_six_of_forty_runs_is_not_equivalent(tmp_path: Path) -> None:
    one = [1.0 + (7 * number % 11 - 5) / 2000 for number in range(40)]
    two = [1.0 + (5 * number % 11 - 5) / 2000 for number in range(40)]
    for slow in (2, 9, 17, 18, 30, 38):
        one[slow] += 1.0
    found, printed = compared(tmp_path, [f"{x:.4f}" for x in one], [f"{x:.4f}" for x in two])
    assert found["verdict"] == "slower"
    assert found["typical"]["verdict"] == "equivalent"
    assert found["typical"]["percent"] == pytest.approx(100, abs=0.2)
    right = 100 * fmean(two) / fmean(one)
    assert found["mean"]["percent"] == pytest.approx(right)
    assert found["mean"]["low"] < right < found["mean"]["high"] < 98
    assert found["p95_percent_of_baseline"] == pytest.approx(50, abs=0.2)
    assert found["mixture"] == "34 of 40 runs at 1.00x, 6 at 2x"
    answer = " ".join(printed.split())
    assert "slower (typical run equivalent, mean slower); 34 of 40 runs at 1.00x, 6 at 2x" in answer


def test_two_decimals_hide_seven_per_cent(tmp_path: Path) -> None:
    """A true 0.1452 and 0.1549 s are both printed as 0.15."""
    found, printed = compared(tmp_path, ["0.15"] * 12, ["0.15"] * 12)
    assert found["verdict"] == "inconclusive"
    assert found["ci_low"] < 100 * 0.1452 / 0.1549 and found["ci_high"] > 100 * 0.1549 / 0.1452
    assert found["step_percent"] == pytest.approx(6.9, abs=0.1)
    assert "coarse-values" in [each["kind"] for each in found["flags"]]
    assert "coarse-values" in printed
