"""`vtax fleet`: many hosts with known taxes, and runs that cannot be read."""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars
import pytest

import fleet_data
from command_line import SOURCE, vtax
from report_data import HOSTILE
from vtax.compare.analysis import compare
from vtax.compare.saved import RESULTS, saved
from vtax.core.formats.folder import load
from vtax.fleet.analysis import Fleet, analyse
from vtax.fleet.runs import find

OLD = {"release": "5.10.1", "machine": "x86_64"}


def fleet(folder: Path) -> Fleet:
    return analyse(find([str(folder)], folder, with_samples=False))


def left(found: Fleet) -> Mapping[str, Any]:
    rows = (each for each in found.measured if each.lead and each.environment == "uml")
    return {each.host: each for each in rows}


@pytest.mark.parametrize("hosts", [3, 8, 20])
def test_the_outlier_and_the_one_fact_that_differs(tmp_path: Path, hosts: int) -> None:
    for number in range(hosts - 1):
        fleet_data.host(tmp_path, f"web{number}", 80.0 + 0.2 * (number % 3))
    fleet_data.host(tmp_path, "slow", 60.0, kernel=OLD)
    found = fleet(tmp_path)
    taxes = left(found)
    assert len(taxes) == hosts
    assert taxes["web0"].result.ci_low < 80.2 and taxes["web0"].result.ci_high > 79.8
    assert taxes["slow"].result.percent_of_baseline == pytest.approx(60, abs=0.3)
    (outlier,) = (each for each in found.outliers if each.environment == "uml")
    assert [*outlier.percent] == ["slow"] and outlier.side == "slower"
    usual = statistics.median(each.result.percent_of_baseline for each in taxes.values())
    assert outlier.percent["slow"] == pytest.approx(6000 / usual, rel=0.01)
    assert {(each.fact, each.value) for each in outlier.separations} == {
        ("native kernel.release", "5.10.1"),
        ("uml kernel.release", "5.10.1"),
    }
    assert {each.chance for each in outlier.separations} == {1 / hosts}


def test_hosts_that_are_alike_have_no_outlier(tmp_path: Path) -> None:
    for number in range(6):
        fleet_data.host(tmp_path, f"web{number}", 80.0 + number)
    assert fleet(tmp_path).outliers == ()


def test_what_changed_since_the_last_run(tmp_path: Path) -> None:
    """The ratio of both runs' shares; its interval by both errors, here of equal freedom."""
    for day, share in ((1, 70.0), (2, 80.0), (3, 72.0)):
        fleet_data.host(tmp_path, "web", share, day)
    now = left(fleet(tmp_path))["web"]
    change = now.change
    assert change.since.endswith("web-2026-11-02")
    assert change.verdict == "slower"
    assert change.low < 90.0 < change.high
    halves = []
    for day in (2, 3):
        record, samples = load(tmp_path / f"web-2026-11-{day:02d}")
        (own,) = (r for r in compare(record, samples, "").results if r.environment == "uml")
        assert own.ci_high and own.percent_of_baseline
        halves.append(math.log(own.ci_high / own.percent_of_baseline))
    # Welch's freedom is more than of one run alone: the interval is a little narrower.
    assert math.log(change.high / change.percent) <= math.hypot(*halves) * (1 + 1e-9)
    assert math.log(change.high / change.percent) >= 0.8 * math.hypot(*halves)


def test_saved_results_are_those_of_the_analysis(tmp_path: Path) -> None:
    path = fleet_data.host(tmp_path, "web", 80.0, analysed=True)
    record, samples = load(path)
    assert saved(record, path) == compare(record, samples, str(path))
    kept = json.loads((path / RESULTS).read_text())
    for other in ({"run_id": "another"}, {"vtax_version": "0"}, {"state": "running"}):
        (path / RESULTS).write_text(json.dumps(kept | other))
        assert saved(record, path) is None


def test_remote_machines_are_hosts(tmp_path: Path) -> None:
    own = fleet_data.record("controller")
    remote = [fleet_data.environment(f"ssh:web{n},cpus=2") for n in range(2)]
    own = own.model_copy(update={"environments": (own.environments[0], *remote), "order": tuple(
        (each.label, n) for n in range(4) for each in (own.environments[0], *remote))})  # fmt: skip
    fleet_data.write(tmp_path, own, fleet_data.samples(own, 80.0))
    found = {(each.host, each.environment) for each in fleet(tmp_path).measured}
    assert found == {("controller", "native"), ("web0", "ssh:cpus=2"), ("web1", "ssh:cpus=2")}


def test_unreadable_runs_cost_a_line_each(tmp_path: Path) -> None:
    for name in ("good", "cut", "torn", "binary", "bare"):
        fleet_data.host(tmp_path / name, name, 80.0)
    (run,) = (tmp_path / "cut").iterdir()
    (run / "run.json").write_bytes((run / "run.json").read_bytes()[:500])
    (run,) = (tmp_path / "torn").iterdir()
    (run / "samples.parquet").write_bytes((run / "samples.parquet").read_bytes()[:300])
    (run,) = (tmp_path / "binary").iterdir()
    (run / "run.json").write_bytes(bytes(range(256)))
    (run,) = (tmp_path / "bare").iterdir()
    (run / "samples.parquet").unlink()
    for more in ((), ("--query", "SELECT DISTINCT host FROM samples ORDER BY host")):
        done = vtax("fleet", str(tmp_path), *more)
        assert done.returncode == 1
        assert "Traceback" not in done.stderr
        assert "good" in done.stdout
        said = re.findall(r"^! (.*)", done.stdout, re.MULTILINE)
        named = [name for name in ("bare", "binary", "cut", "torn") if name in str(said)]
        assert named == ["binary", "cut", "torn"] if more else named == [
            "bare", "binary", "cut", "torn"]  # fmt: skip


def test_a_killed_run_is_shown_as_far_as_it_came(tmp_path: Path) -> None:
    path = fleet_data.host(tmp_path, "web", 80.0)
    record, samples = load(path)
    (path / "samples.parquet").unlink()
    (path / "run.json").write_text(record.model_copy(update={"state": "running"}).model_dump_json())
    rows = [json.dumps(each.row()) for each in samples[:8]]
    (path / "samples.jsonl").write_text("\n".join([*rows, '{"environment": "na']))
    done = vtax("fleet", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert {each["n"] for each in shown["measured"]} == {4}
    assert "cut-short" in {each["kind"] for each in shown["flags"]["web"]}
    asked = vtax("fleet", str(tmp_path), "--json", "--query", "SELECT count(*) AS n FROM samples")
    assert json.loads(asked.stdout) == [{"n": 8}]


def test_names_are_escaped(tmp_path: Path) -> None:
    for number in range(3):
        fleet_data.host(tmp_path, f"web{number}", 80.0)
    own = fleet_data.record(None, changes={HOSTILE: HOSTILE, "kernel": {"release": HOSTILE}},
                            name=HOSTILE, run_id="hostile")  # fmt: skip
    fleet_data.write(tmp_path, own.model_copy(update={"host": "x"}), fleet_data.samples(own, 50))
    (run,) = tmp_path.glob("x-*")
    (run / "run.json").write_text(own.model_copy(update={"host": HOSTILE}).model_dump_json())
    done = vtax("fleet", str(tmp_path), "--report", str(tmp_path / "page.html"))
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout and "\u2028" not in done.stdout
    assert "<img" not in (tmp_path / "page.html").read_text()
    asked = vtax("fleet", str(tmp_path), "--query", "SELECT * FROM runs")
    assert asked.returncode == 0 and "\x1b" not in asked.stdout


def test_queries_answer_as_an_independent_computation(tmp_path: Path) -> None:
    paths = [fleet_data.host(tmp_path, f"web{number}", 70.0 + number) for number in range(4)]
    sql = ("SELECT s.host, s.environment, median(s.value) AS middle, count(*) AS n FROM samples s "
           'JOIN runs r ON s.run = r.run AND s.environment = r.environment WHERE '
           "r.\"kernel.release\" = '6.12.5' GROUP BY s.host, s.environment")  # fmt: skip
    done = vtax("fleet", str(tmp_path), "--json", "--query", sql)
    assert done.returncode == 0, done.stderr
    found = {(row["host"], row["environment"]): row for row in json.loads(done.stdout)}
    expected: dict[tuple[str, str], list[float]] = {}
    for path in paths:
        for row in polars.read_parquet(path / "samples.parquet").iter_rows(named=True):
            expected.setdefault((path.name[:4], row["environment"]), []).append(row["value"])
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        assert found[key]["middle"] == pytest.approx(statistics.median(values), rel=1e-12)
        assert found[key]["n"] == len(values) == fleet_data.ROUNDS


def test_older_and_foreign_tables(tmp_path: Path) -> None:
    old, foreign, bomb = (fleet_data.host(tmp_path, n, 80.0) for n in ("old", "foreign", "bomb"))
    table = polars.read_parquet(old / "samples.parquet")
    table.drop("user_s", "told_wall_s").write_parquet(old / "samples.parquet")
    table.with_columns(value=polars.lit("text")).write_parquet(foreign / "samples.parquet")
    many = polars.concat([table.head(1)] * 1).select(polars.all().repeat_by(3_000_000).explode())
    many.write_parquet(bomb / "samples.parquet")
    done = vtax("fleet", str(tmp_path), "--query", "SELECT host, count(user_s) FROM samples "
                "GROUP BY host")  # fmt: skip
    assert done.returncode == 1
    rows, lines = done.stdout.partition("!")[::2]
    assert "old" in rows and "foreign" not in rows and "bomb" not in rows
    assert "value" in lines and "claims 3000000 rows" in re.sub(r"\s+", " ", lines)


@pytest.mark.parametrize("sql", ["SELEKT", "SELECT x FROM samples", "SELECT * FROM nothing", ""])
def test_wrong_sql_is_one_line(tmp_path: Path, sql: str) -> None:
    fleet_data.host(tmp_path, "web", 80.0)
    done = vtax("fleet", str(tmp_path), "--query", sql)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "--query" in done.stderr


def test_no_run_at_all_is_misuse(tmp_path: Path) -> None:
    done = vtax("fleet", str(tmp_path))
    assert done.returncode == 2 and "there is no run folder" in done.stderr


def test_the_page(tmp_path: Path, snapshot: Any) -> None:
    for number in range(5):
        fleet_data.host(tmp_path, f"web{number}", 80.0 + 0.2 * number)
    fleet_data.host(tmp_path, "slow", 60.0, kernel=OLD)
    fleet_data.host(tmp_path, "slow", 75.0, day=2, kernel=OLD)
    assert vtax("fleet", ".", cwd=tmp_path).stdout == snapshot


LIMITED = """
import re, sys
from pathlib import Path
from vtax.main import main
sys.argv = ["vtax", "fleet", sys.argv[1], "--json", "--query",
            "SELECT host, value, wall_s, environment, metric FROM samples"]
try:
    main()
finally:
    status = Path("/proc/self/status").read_text()
    print(re.search(r"VmHWM:\\s+([0-9]+)", status)[1], file=sys.stderr)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """Four million rows as JSON are 400 MB; the process has less than that with all libraries."""
    for number in range(8):
        path = fleet_data.host(tmp_path, f"web{number}", 80.0)
        table = polars.read_parquet(path / "samples.parquet")
        polars.concat([table] * (500_000 // table.height)).write_parquet(path / "samples.parquet")
    done = subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)],
                          env={"PYTHONPATH": str(SOURCE)}, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=True)  # fmt: skip
    assert int(done.stderr.split()[-1]) < 400_000
