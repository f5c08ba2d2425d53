"""Memory of a comparison grows with its repetitions, not with their square."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from command_line import SOURCE

SUPPORT = Path(__file__).parents[1] / "support"
MOST_KIB = 250_000

ANALYSED = r"""
import random, re, sys
from pathlib import Path
from comparison_data import CONTROL, NATIVE, UML, record, values
from vtax.compare.analysis import compare
from vtax.compare.html import write_report
from vtax.compare.page import page

drawn, samples = random.Random(1), []
labels = [each.label for each in (NATIVE, CONTROL, UML)[: int(sys.argv[2])]]
for label in labels:
    for metric in ("wall_s", "cpu_s"):
        times = [0.0006 * drawn.lognormvariate(0, 0.2) for _ in range(10_000 // len(labels))]
        samples += values(label, times, metric=metric)
shown = compare(record(NATIVE, CONTROL, UML), samples, "runs/x")
write_report(page(shown, samples), shown, Path(sys.argv[1]))
# Not ru_maxrss, which begins with that of the process that started this one.
print(re.search(r'VmHWM:\s+([0-9]+)', Path('/proc/self/status').read_text())[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("environments", [1, 3])
def test_ten_thousand_repetitions_stay_in_250_mb(tmp_path: Path, environments: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ANALYSED, str(tmp_path / "report.html"), str(environments)],
        env={"PYTHONPATH": f"{SOURCE}:{SUPPORT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < MOST_KIB
