"""Sweeps: what a design may say, and that a failing point or process costs no other point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars
import pytest

import sweep_standin as standin
from command_line import ROOT
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.page import tables
from vtax.core.page.progress import Lines, Progress
from vtax.core.page.render_terminal import parts
from vtax.paging.sweep import verb as paging_sweep
from vtax.paging.sweep.axes import changed, parse_axis
from vtax.paging.sweep.design import Design, read_design
from vtax.paging.sweep.folder import SweepFolder
from vtax.paging.sweep.page import page
from vtax.paging.sweep.run import Outcome, SweepOptions, as_json, sweep

BASE = """
workloads = ["swim", "gcc"]
machines = ["toy"]
modes = ["native", "shadow", "nested", "dav2m"]
"""
Read = Callable[..., Design]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def one(text: str, base: str = BASE) -> Design:
        path = tmp_path / "sweep.toml"
        path.write_text(base + text)
        return read_design(path, standin.CATALOG)

    return one


def run(design: Design, folder: Path, evaluate: Any = standin.evaluate, **options: Any) -> Outcome:
    return sweep(design, SweepOptions(folder, **{"workers": 2} | options), evaluate, Progress())


def workers_here() -> list[str]:
    """Worker processes of this process that are alive."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    lines = [Path("/proc", child, "cmdline").read_bytes().decode() for child in children]
    return [line for line in lines if "spawn_main" in line]


# --- what a design may say ----------------------------------------------------------------------


def test_a_design_is_the_full_product(read: Read) -> None:
    design = read("""
[axes]
costs.exit = { scale = [0.5, 1, 2] }
"dav2m.p_factor" = [1.05, 1.1]
host_page = ["4K", "2M"]
""")
    points = list(design.points())
    assert design.size == len(points) == 24
    assert len({point.identity for point in points}) == 24
    last = points[-1]
    assert dict(last.coordinates) == {
        "costs.exit.scale": 2.0, "dav2m.p_factor": 1.1, "host_page": "2M"
    }  # fmt: skip
    assert json.loads(last.machine_json)["costs"]["exit"] == 2000
    assert last.policy_parameters() == {"dav2m": {"p_factor": 1.1}}
    assert last.settings() == {"host_page": "2M"}
    assert last.label == "gcc on toy, costs.exit.scale=2.0, dav2m.p_factor=1.1, host_page=2M"


def test_identities_do_not_depend_on_the_process(read: Read) -> None:
    (first, *_) = read("[axes]\nseed = [7]").points()
    (again, *_) = read("[axes]\nseed = [7]").points()
    assert first is not again
    assert first.identity == again.identity


def test_a_design_without_axes_has_a_point_per_workload_and_machine(read: Read) -> None:
    assert read("").size == 2


def test_elements_of_lists_and_whole_tables_can_be_axes() -> None:
    def at(path: str, values: Any) -> dict[str, Any]:
        axis = parse_axis(path, "machine", values)
        return changed(standin.MACHINE, axis, axis.values[0])

    assert at("caches[1].latency", [20])["caches"] == [{"latency": 4}, {"latency": 20}]
    assert at("caches[*].latency", {"scale": [2]})["caches"] == [{"latency": 8}, {"latency": 28}]
    assert at("costs.*", {"scale": [0.5]})["costs"] == {"exit": 500, "zap": 150, "other": 4}
    assert at("clock_hz", {"scale": [0.5]})["clock_hz"] == 0.5e9
    assert standin.MACHINE["costs"]["exit"] == 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("axis = 1", "unknown field of the design 'axis'; did you mean 'axes'?"),
        ('[axes]\n"costs.exits" = [1]', "unknown axis 'costs.exits'; did you mean 'costs.exit'"),
        ("[axes]\nhost_pages = ['4K']", "unknown axis 'host_pages'; did you mean 'host_page'"),
        ("[axes]\ncosts.exit = []", "axes.costs.exit: is empty"),
        ("[axes]\ncosts.exit = {scale = []}", "axes.costs.exit: is empty"),
        ("[axes]\ncosts.exit = 5", "axes.costs.exit: must be a list of values"),
        (
            "[axes]\ncosts.exit = {scale = [0]}",
            "axes.costs.exit: the factor 0 is not a number above",
        ),
        ("[axes]\ncosts.exit = {scale = [1], by = 2}", "axes.costs.exit: unknown key 'by'"),
        ("[axes]\ncosts.exit = [1, 1]", "axes.costs.exit: 1 is there twice"),
        ("[axes]\ncosts.exit = [1, 'a']", "values of one type only, not int and str"),
        ("[axes]\ncosts.exit = [nan]", "axes.costs.exit: nan is not a finite number"),
        ("[axes]\ncosts.exit = [[1]]", "must be text, a number or a boolean, not list"),
        ("[axes]\nhost_page = {scale = [2]}", "axes.host_page: only a field of a machine can be"),
        ("[axes]\nhost_page = [2]", "axes.host_page: 2 must be text"),
        ("[axes]\n'caches[7].latency' = [2]", "machine toy: axes.caches[7].latency: the machine"),
        ("[axes]\n'tlb..l1' = [2]", "axes.tlb..l1: '' is not a field"),
        ("[axes]\nxyz.q = [2]", "unknown axis 'xyz.q'; name a field of the machines, an"),
        ("[axes]\ntlb.tagged = {scale = [2]}", "the machine has no number there to scale"),
        ("[simulation]\nwindows = 1", "did you mean 'window'?"),
        ("[simulation]\nseed = 'x'", "simulation.seed: 'x' must be a number"),
        ("[simulation]\nisolation = 1", "simulation.isolation: 1 must be a boolean"),
        ("[simulation]\nseed = 1\n[axes]\nseed = [1, 2]", "axes.seed: has a fixed value too"),
        (
            "[parameters.dav2n]\np_factor = 1",
            "unknown policy among the modes 'dav2n'; did you mean",
        ),
        ("[parameters.dav2m]\np_factor = [1]", "parameters.dav2m.p_factor: must be"),
        ("simulation = 3", "simulation: must be a table"),
        ("name = 3", "name: must be text"),
        ("x = ", "is not TOML"),
    ],
)
def test_a_wrong_design_is_refused_with_the_field(read: Read, text: str, message: str) -> None:
    with pytest.raises(MisuseError) as error:
        read(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("workloads", '["swin"]', "unknown workload 'swin'; did you mean 'swim'?"),
        ("workloads", '["missing.xz"]', "workload missing.xz: there is no such file"),
        ("workloads", "[]", "workloads: is empty"),
        ("workloads", '["swim", "swim"]', "workloads: 'swim' is there twice"),
        ("machines", '["toys"]', "unknown machine 'toys'; did you mean 'toy'?"),
        ("machines", "[1]", "machines: must be a list of names or files"),
        ("modes", '["nasted"]', "unknown mode 'nasted'; did you mean 'nested'?"),
        ("modes", '["missing.py:Mine"]', "policy missing.py: there is no such file"),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest(
    read: Read, field: str, value: str, message: str
) -> None:
    lines = [line for line in BASE.splitlines() if not line.startswith(field)]
    with pytest.raises(MisuseError) as error:
        read("", "\n".join([*lines, f"{field} = {value}"]))
    assert message in str(error.value)


def test_too_many_points_are_refused_with_their_number(read: Read) -> None:
    many = list(range(1, 1001))
    with pytest.raises(MisuseError, match="the sweep has 200,000 points, more than 100,000"):
        read(f"[axes]\nseed = {many}\ncosts.exit = {many[:100]}")


def test_an_axis_of_a_policy_that_does_not_run_is_refused(read: Read) -> None:
    base = BASE.replace(', "dav2m"', "")
    with pytest.raises(MisuseError, match=r"axes.dav2m.p_factor: 'dav2m' is not among the modes"):
        read("[axes]\ndav2m.p_factor = [1.1]", base)


def test_files_are_found_beside_the_design(read: Read, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(json.dumps(standin.MACHINE | {"clock_hz": 3e9}))
    (tmp_path / "load.toml").write_text("a description")
    (tmp_path / "trace.champsim.xz").write_bytes(b"a trace")
    (tmp_path / "policy.py").write_text("a policy")
    design = read(
        "[axes]\nMine.threshold = [1, 2]",
        'workloads = ["load.toml", "trace.champsim.xz"]\nmachines = ["toy", "mine.toml"]\n'
        'modes = ["native", "policy.py:Mine"]\n',
    )
    points = list(design.points())
    assert len(points) == 8
    last = points[-1]
    assert (last.workload.label, last.workload.kind) == ("trace", "trace")
    assert Path(last.workload.content).is_absolute() and last.workload.digest
    assert json.loads(last.machine_json)["clock_hz"] == 3e9
    assert last.modes == ("native", "Mine")
    assert last.policies[0].source == "a policy"
    assert last.policy_parameters() == {"Mine": {"threshold": 2}}


def test_an_impossible_machine_is_refused_with_its_file(read: Read, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text('{"clock_hz": 0}')
    base = BASE.replace('"toy"', '"bad.toml"')
    with pytest.raises(MisuseError, match=r"machine bad.toml: clock_hz: must be a positive"):
        read("", base)


def test_a_design_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match=r"cannot read the design .*: No such file"):
        read_design(tmp_path / "none.toml", standin.CATALOG)


# --- running ------------------------------------------------------------------------------------


def test_a_sweep_gives_a_tidy_table(read: Read, tmp_path: Path) -> None:
    design = read('name = "toy-sweep"\n[axes]\ncosts.exit = {scale = [0.5, 2]}\nseed = [1, 2]')
    folder = tmp_path / "new" / "out"
    outcome = run(design, folder)
    assert (outcome.state, outcome.failures) == ("complete", [])
    assert {path.name for path in folder.iterdir()} == {"sweep.json", "sweep.parquet"}
    table = polars.read_parquet(folder / "sweep.parquet")
    assert table.columns == ["point", "costs.exit.scale", "seed", "workload", "machine", "mode",
                             "cycles", "overhead_percent", "error", "wall_s"]  # fmt: skip
    assert table.height == 8 * 4
    assert table["error"].null_count() == table.height
    record = json.loads((folder / "sweep.json").read_text())
    assert record["state"] == "complete"
    assert record["axes"] == {"costs.exit.scale": [0.5, 2.0], "seed": [1, 2]}
    assert record["study"] == design.text
    assert record["versions"]["distributed"]
    assert workers_here() == []
    best = as_json(outcome)["best"]
    assert [row["best"] for row in best] == ["shadow"] * 4 + ["dav2m"] * 4
    printed = tables.plain(*parts(page(outcome)), width=tables.UNFOLDED)
    assert len([line for line in printed.splitlines() if " dav2m " in line]) == 1 + 4
    assert "5 more rows are in sweep.parquet" in tables.plain(*parts(page(outcome, 3)))


def test_the_same_design_gives_the_same_figures(read: Read, tmp_path: Path) -> None:
    design = read("[axes]\nseed = [1, 2, 3, 4]")
    tables = [run(design, tmp_path / str(n), workers=n).table().drop("wall_s") for n in (1, 2)]
    assert tables[0].equals(tables[1])


def test_a_failing_point_is_marked_and_the_others_go_on(
    read: Read, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    design = read("[axes]\ncosts.exit = [1000, 2000, 3000, 4000]")
    outcome = run(design, tmp_path / "out", standin.failing)
    table = polars.read_parquet(tmp_path / "out" / "sweep.parquet")
    errors = dict(table.select("costs.exit", "error").unique().iter_rows())
    assert errors == {
        1000: None,
        2000: "costs.exit: must be something else",
        3000: "ValueError: first line second line",
        4000: "BaseException: panicked",
    }
    assert table.filter(polars.col("error").is_not_null())["cycles"].null_count() == 6 * 4
    assert len(outcome.failures) == 6
    paging_sweep.show(outcome, as_json=True)
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["failed"]) == 6
    assert printed.err.count("costs.exit: must be something else") == 2
    assert paging_sweep._exit_code(outcome) == 1


@pytest.mark.slow
def test_a_worker_that_dies_costs_only_its_point(read: Read, tmp_path: Path) -> None:
    marker = tmp_path / "deaths"
    (tmp_path / "m.toml").write_text(json.dumps(standin.MACHINE | {"name": str(marker)}))
    base = BASE.replace('"toy"', '"m.toml"').replace(', "gcc"', "")
    design = read("[axes]\ncosts.exit = [1000, 2000, 3000]\nseed = [1]", base)
    outcome = run(design, tmp_path / "out", standin.dying)
    errors = {point.coordinates[0][1]: error for point, error in outcome.failures}
    assert errors == {2000: "the worker died while it computed this point, each time"}
    # The point runs by itself, and before that maybe in the pool that its death or another's took
    # down.
    assert marker.read_text() in ("died\n" * 2, "died\n" * 3)
    assert outcome.table().filter(polars.col("costs.exit") == 3000)["cycles"].null_count() == 0
    assert workers_here() == []


def test_a_folder_with_a_sweep_is_not_overwritten(read: Read, tmp_path: Path) -> None:
    run(read(""), tmp_path / "out")
    with pytest.raises(MisuseError, match="holds a sweep already; continue it with --resume"):
        run(read(""), tmp_path / "out")


def test_two_writers_of_one_folder_are_refused(read: Read, tmp_path: Path) -> None:
    holder = SweepFolder.open(tmp_path / "out", resume=False)
    with pytest.raises(MisuseError, match="another vtax is running the sweep"):
        run(read(""), tmp_path / "out", resume=True)
    holder.release()


# --- resuming -----------------------------------------------------------------------------------


def forbidden(_point: Any) -> Any:
    raise AssertionError("this point was finished before")


def test_a_finished_sweep_resumes_without_computing(read: Read, tmp_path: Path) -> None:
    design = read("[axes]\nseed = [1, 2]\ncosts.exit = {scale = [1, 2]}")
    first = run(design, tmp_path / "out")
    again = run(design, tmp_path / "out", forbidden, resume=True)
    assert again.failures == []
    assert again.table().equals(first.table())


def test_failed_points_are_tried_again(read: Read, tmp_path: Path) -> None:
    design = read("[axes]\ncosts.exit = [1000, 2000]")
    assert len(run(design, tmp_path / "out", standin.failing).failures) == 2
    with pytest.raises(MisuseError, match="is not an address"):
        run(design, tmp_path / "out", scheduler="nonsense", resume=True)
    kept = polars.read_parquet(tmp_path / "out" / "sweep.parquet")
    assert kept["error"].drop_nulls().len() == 2 * 4
    again = run(design, tmp_path / "out", resume=True)
    assert again.failures == []
    assert again.table()["error"].null_count() == again.table().height


def test_an_axis_may_grow(read: Read, tmp_path: Path) -> None:
    run(read("[axes]\nseed = [1, 2]"), tmp_path / "out")
    grown = run(read("[axes]\nseed = [1, 2, 3]"), tmp_path / "out", resume=True)
    assert sorted(set(grown.table()["seed"])) == [1, 2, 3]


def test_points_of_another_design_are_not_lost(read: Read, tmp_path: Path) -> None:
    run(read("[axes]\nseed = [1, 2]"), tmp_path / "out")
    with pytest.raises(MisuseError, match=r"4 finished points in .* are not in this design"):
        run(read("[axes]\nseed = [5]"), tmp_path / "out", resume=True)
    assert polars.read_parquet(tmp_path / "out" / "sweep.parquet").height == 4 * 4


def test_points_of_another_version_are_not_mixed_in(read: Read, tmp_path: Path) -> None:
    run(read(""), tmp_path / "out")
    path = tmp_path / "out" / "sweep.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"vtax": "0.0.1"}))
    with pytest.raises(MisuseError, match=r"made by vtax 0.0.1"):
        run(read(""), tmp_path / "out", resume=True)


def test_a_line_that_was_cut_short_costs_only_itself(read: Read, tmp_path: Path) -> None:
    design = read("[axes]\nseed = [1, 2]")
    folder = SweepFolder.open(tmp_path / "out", resume=False)
    points = list(design.points())
    outcome = run(design, tmp_path / "other")
    results = {point.identity: finished for point, finished in outcome.points}
    for point in points[:2]:
        folder.append(point.identity, results[point.identity])
    journal = tmp_path / "out" / "points.jsonl"
    journal.write_bytes(journal.read_bytes()[:-40])
    folder.append(points[2].identity, results[points[2].identity])
    kept = folder.finished()
    assert list(kept) == [points[0].identity, points[2].identity]
    assert kept[points[0].identity] == results[points[0].identity]


# --- killing it ---------------------------------------------------------------------------------


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts a sweep as a process group of its own, as a terminal would."""
    started: list[subprocess.Popen[str]] = []
    tests = ROOT / "tests/support"
    path = os.pathsep.join([str(tests.parent / "python"), os.environ.get("PYTHONPATH", "")])

    def one(text: str, evaluate: str, *more: str) -> subprocess.Popen[str]:
        (tmp_path / "sweep.toml").write_text(BASE + text)
        argv = [sys.executable, str(tests / "sweep_process.py"), str(tmp_path / "sweep.toml"),
                str(tmp_path / "out"), evaluate, *more]  # fmt: skip
        process = subprocess.Popen(
            argv, env=os.environ | {"PYTHONPATH": path}, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            # A shell's background job, as CI may be, ignores SIGINT and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
        started.append(process)
        return process

    yield one
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def group_members(group: int) -> list[str]:
    """Live processes of a process group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state != "Z":
            command = (path.parent / "cmdline").read_bytes().replace(b"\0", b" ")
            found.append(f"{path.parent.name} {state} {command.decode()}")
    return found


def wait_until(condition: Callable[[], bool], limit_s: float = 30.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def journal_lines(folder: Path) -> int:
    path = folder / "points.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


SEEDS = f"[axes]\nseed = {list(range(10))}"


@pytest.mark.slow
def test_kill_9_loses_nothing_and_leaves_nothing(
    start: Callable[..., subprocess.Popen[str]], read: Read, tmp_path: Path
) -> None:
    process = start(SEEDS, "slow")
    wait_until(lambda: journal_lines(tmp_path / "out") >= 3)
    process.kill()
    process.communicate()
    wait_until(lambda: group_members(process.pid) == [])
    saved = SweepFolder(tmp_path / "out").finished()
    assert len(saved) >= 3
    second = start(SEEDS, "evaluate", "resume")
    out, err = second.communicate(timeout=300)
    assert out == "complete 20\n"
    assert f"20 points, {len(saved)} of them from before" in err
    table = polars.read_parquet(tmp_path / "out" / "sweep.parquet")
    assert table.height == 20 * 4
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"sweep.json", "sweep.parquet"}


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_is_finished_and_leaves_no_process(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path, number: signal.Signals
) -> None:
    process = start(SEEDS, "slow")
    wait_until(lambda: journal_lines(tmp_path / "out") >= 3)
    # Ctrl-C on a terminal reaches the workers too; a polite kill only the sweep itself.
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=300)
    assert out.startswith("interrupted ")
    assert "Traceback" not in err
    wait_until(lambda: group_members(process.pid) == [], 5.0)
    assert polars.read_parquet(tmp_path / "out" / "sweep.parquet").height >= 3 * 4
    assert json.loads((tmp_path / "out" / "sweep.json").read_text())["state"] == "interrupted"


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_long_point(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = start("", "endless")
    wait_until(lambda: (tmp_path / "out" / "sweep.json").exists())
    time.sleep(0.5)
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    assert time.monotonic() - begin < 20
    assert out == "interrupted 0\n"
    wait_until(lambda: group_members(process.pid) == [], 5.0)


# --- a cluster that exists ----------------------------------------------------------------------


@pytest.mark.slow
def test_an_existing_cluster_is_used_and_left_running(read: Read, tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        design = read("[axes]\nseed = [1, 2, 3]")
        outcome = run(design, tmp_path / "out", scheduler=cluster.scheduler_address)
        assert outcome.state == "complete"
        assert len(outcome.points) == 6
        with Client(cluster.scheduler_address) as client:
            assert len(client.nthreads()) == 2


@pytest.mark.slow
def test_a_lost_worker_costs_a_retry_and_no_result(read: Read, tmp_path: Path) -> None:
    """Two workers, processes of their own; one is killed while it computes."""
    from distributed import Client, LocalCluster

    design = read("[axes]\nseed = [1, 2, 3, 4, 5, 6, 7, 8, 9]")
    alone = run(design, tmp_path / "alone", standin.slow)
    killed: list[int] = []
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        Client(cluster.scheduler_address, set_as_default=False) as client,
    ):

        def kill_one_when_some_are_there() -> None:
            wait_until(lambda: journal_lines(tmp_path / "out") >= 2)
            first = min(client.run(os.getpid).values())
            os.kill(first, signal.SIGKILL)
            killed.append(first)

        killer = threading.Thread(target=kill_one_when_some_are_there)
        killer.start()
        outcome = run(design, tmp_path / "out", standin.slow, scheduler=cluster.scheduler_address)
        killer.join()
        assert killed and killed[0] not in client.run(os.getpid).values()
    assert (outcome.state, outcome.failures) == ("complete", [])
    timed = "wall_s"
    assert outcome.table().drop(timed).equals(alone.table().drop(timed))


@pytest.mark.slow
def test_a_scheduler_that_goes_away_ends_the_sweep(read: Read, tmp_path: Path) -> None:
    from distributed import LocalCluster

    design = read("[axes]\nseed = [1, 2, 3, 4, 5, 6, 7, 8, 9]")
    with LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address

        def kill_when_some_are_there() -> None:
            wait_until(lambda: journal_lines(tmp_path / "out") >= 2)
            cluster.close()

        killer = threading.Thread(target=kill_when_some_are_there)
        killer.start()
        with pytest.raises(VtaxError, match="what was finished is kept: continue with --resume"):
            run(design, tmp_path / "out", standin.slow, scheduler=address)
        killer.join()
    assert polars.read_parquet(tmp_path / "out" / "sweep.parquet").height >= 2 * 4
    assert json.loads((tmp_path / "out" / "sweep.json").read_text())["state"] == "failed"
    again = run(design, tmp_path / "out", resume=True)
    assert (again.state, len(again.points)) == ("complete", 18)


@pytest.mark.slow
def test_a_scheduler_without_workers_is_one_line(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed import LocalCluster

    monkeypatch.setattr("vtax.paging.sweep.workers.CONNECT_S", 1.0)
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address=None) as cluster,
        pytest.raises(VtaxError, match="has no workers after 1 s"),
    ):
        run(read(""), tmp_path / "out", scheduler=cluster.scheduler_address)
    assert not (tmp_path / "out").exists()


def test_an_unreachable_scheduler_is_one_line_in_time(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtax.paging.sweep.workers.CONNECT_S", 1.0)
    begin = time.monotonic()
    with pytest.raises(VtaxError, match=r"cannot reach the Dask scheduler tcp://127.0.0.1:9") as e:
        run(read(""), tmp_path / "out", scheduler="tcp://127.0.0.1:9")
    assert time.monotonic() - begin < 15
    assert "\n" not in str(e.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("address", ["nonsense", "tcp://host", "http://host:1"])
def test_a_wrong_address_is_misuse(read: Read, tmp_path: Path, address: str) -> None:
    with pytest.raises(MisuseError, match="is not an address; write for example tcp://host:8786"):
        run(read(""), tmp_path / "out", scheduler=address)


# --- progress -----------------------------------------------------------------------------------


def test_lines_name_failures_and_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(every_s=60)
    lines.begin(4, 1, "4 points, 1 of them from before; 2 local workers")
    lines.step("a: 0.5 s")
    lines.failed("b failed: impossible")
    lines.step("c: 0.25 s")
    assert capsys.readouterr().err.splitlines() == [
        "4 points, 1 of them from before; 2 local workers",
        "[2/4] a: 0.5 s",
        "[3/4] b failed: impossible",
        "[4/4] c: 0.25 s",
    ]
