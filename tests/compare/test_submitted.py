"""Comparisons in batch jobs: how parts become one run, and real jobs on a real Slurm."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import command, one_line, run
from history_data import measured
from process_watch import eventually, processes_naming
from slurm_cluster import SlurmCluster
from vtax.compare.submitted import jobs
from vtax.compare.submitted.folder import Part
from vtax.compare.submitted.merge import merged
from vtax.core.errors import VtaxError
from vtax.core.formats.folder import load
from vtax.core.formats.samples import fault_of


@st.composite
def _parts(draw: st.DrawFn) -> list[Part]:
    """Parts of a comparison of two environments, some of which lack the last round of one."""
    found = []
    for number in range(draw(st.integers(1, 5))):
        native = draw(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=5))
        other = native[: draw(st.integers(1, len(native)))]
        made = measured({("native", "wall_s"): native, ("uml", "wall_s"): other}, f"run {number}")
        found.append(Part(str(number // 2), f"n{number % 2}", made.record, tuple(made.samples)))
    return found


@given(_parts())
def test_parts_become_one_run_in_which_nothing_is_lost_or_twice(parts: list[Part]) -> None:
    whole = merged(parts, 100, ended=True)
    before = Counter((s.environment, s.value, p.node) for p in parts for s in p.samples)
    assert Counter((s.environment, s.value, s.node) for s in whole.samples) == before
    # What a reader of run folders checks of each sample.
    fault = fault_of(whole.record)
    assert [fault(each) for each in whole.samples] == [None] * len(whole.samples)
    keys = [(s.environment, s.metric, s.repetition) for s in whole.samples]
    assert len(set(keys)) == len(keys)
    # A round is of one part: so it has one node, and environments only once.
    nodes: dict[int | None, set[str | None]] = {}
    for each in whole.samples:
        nodes.setdefault(each.round, set()).add(each.node)
    assert {len(found) for found in nodes.values()} == {1}
    assert whole.rounds == sum(each.rounds for each in parts)


@given(_parts(), st.booleans())
def test_it_is_complete_when_all_asked_rounds_are_whole(parts: list[Part], ended: bool) -> None:
    rounds = sum(min(Counter(s.environment for s in p.samples).values()) for p in parts)
    assert merged(parts, rounds, ended=ended).record.state == "complete"
    more = merged(parts, rounds + 1, ended=ended).record.state
    assert more == ("interrupted" if ended else "running")


def test_a_part_of_another_comparison_is_refused() -> None:
    first = measured({("native", "wall_s"): [1.0]})
    other = measured({("uml", "wall_s"): [1.0]})
    both = [Part("1", "n1", each.record, tuple(each.samples)) for each in (first, other)]
    with pytest.raises(VtaxError, match=r"n1 of .* is of another comparison"):
        merged(both, 2, ended=True)


@given(st.integers(0, 1000), st.integers(1, 64))
def test_nodes_share_what_is_left(left: int, tasks: int) -> None:
    shares = [jobs.share(left, rank, tasks) for rank in range(tasks)]
    assert sum(shares) == left and max(shares) - min(shares) <= 1


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("in: [native, slurm]", ":3: in a job the node is native"),
        ("until: 2%", ":3: a job cannot know"),
        ("param: {n: [1, 2]}", ":3: vtax submit takes one comparison"),
        ("reps: none", ":3: reps: none is not a number"),
        ("audit: true", ":3: vtax submit does not audit"),
        ("verb: memory", ":3: vtax submit takes a spec of vtax compare"),
        ("vtax: 99", ":1: it is of form 99"),
    ],
)
def test_what_no_job_can_do_is_refused_with_its_line(
    environment: dict[str, str], tmp_path: Path, line: str, says: str
) -> None:
    spec = tmp_path / "x.yaml"
    text = f"vtax: 1\ncommand: ['true']\n{line}\n"
    spec.write_text(f"{line}\n" if line.startswith("vtax") else text)
    runs = tmp_path / "runs"
    assert says in one_line(run(environment, "submit", "--out", str(runs), str(spec)), 2)
    assert not runs.exists()


def test_a_folder_that_nobody_submitted_is_named(
    environment: dict[str, str], tmp_path: Path
) -> None:
    line = one_line(run(environment, "collect", str(tmp_path)), 2)
    assert "is no folder of vtax submit" in line
    (tmp_path / "submitted.json").write_text("{}")
    assert "submitted.json is damaged" in one_line(run(environment, "collect", str(tmp_path)), 1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(tmp_path_factory.mktemp("slurm") / "cluster") as running:
        yield running


@pytest.fixture
def inside(cluster: SlurmCluster, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    yield {**environment, "SLURM_CONF": str(cluster.configuration)}
    assert eventually(lambda: not cluster.jobs(), within_s=30), cluster.jobs()
    cluster.await_idle()


def submitted(inside: dict[str, str], tmp_path: Path, text: str, *options: str) -> Path:
    """The folder of a comparison that Slurm has."""
    spec = tmp_path / "x.yaml"
    spec.write_text(f"vtax: 1\nin: [native]\ncontrol: false\n{text}\n")
    argv = ["submit", *options, "--out", str(tmp_path / "runs"), str(spec)]
    done = subprocess.run(
        command(*argv), env=inside, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert done.stdout.endswith(f"vtax collect {folder}\n")
    return folder


def saved(folder: Path) -> int:
    """The bytes of samples in all parts."""
    return sum(each.stat().st_size for each in folder.glob("parts/*/*/*/samples.*"))


def test_nodes_measure_their_shares_and_are_collected_as_one_run(
    inside: dict[str, str], tmp_path: Path
) -> None:
    folder = submitted(inside, tmp_path, "reps: 7\ncommand: ['true']", "--nodes", "2")
    done = run(inside, "collect", "--wait", "--json", str(folder))
    assert done.returncode == 0, done.stderr
    assert ": completed" in done.stderr
    record, samples = load(folder)
    assert record.state == "complete" and not record.failures
    walls = [each for each in samples if each.metric == "wall_s"]
    assert Counter(each.node for each in walls) == {"n1": 4, "n2": 3}
    assert sorted(each.round or 0 for each in walls) == list(range(7))
    (job,) = json.loads((folder / "submitted.json").read_text())["jobs"]
    facts = json.loads((folder / "parts" / job / "job.json").read_text())
    assert facts["JobId"] == job and facts["NumNodes"] == "2"
    assert json.loads(done.stdout)["run"] == str(folder)
    again = run(inside, "report", "--json", str(folder))
    assert json.loads(again.stdout)["results"] == json.loads(done.stdout)["results"]


def test_a_job_that_ends_early_is_gone_on_with_by_the_next(
    cluster: SlurmCluster, inside: dict[str, str], tmp_path: Path
) -> None:
    """As at the time limit: Slurm ends the steps by SIGTERM."""
    text = "reps: 60\ncommand: [sleep, '0.0766']"
    folder = submitted(inside, tmp_path, text, "--chain", "2")
    first, second = json.loads((folder / "submitted.json").read_text())["jobs"]
    assert eventually(lambda: saved(folder) > 2000, within_s=60)
    early = run(inside, "collect", str(folder))
    assert early.returncode == 0 and f"job {second}: pending" in early.stderr
    seen = len(load(folder)[1])
    cluster.ask("scancel", first)
    done = run(inside, "collect", "--wait", str(folder))
    assert done.returncode == 0, done.stderr
    assert f"job {first}: cancelled" in done.stderr and f"job {second}: completed" in done.stderr
    record, samples = load(folder)
    parts = [load(each.parent) for each in folder.glob("parts/*/*/*/run.json")]
    assert len(parts) == 2 and record.state == "complete"
    assert len(samples) == sum(len(own) for _, own in parts) >= seen
    assert len({each.round for each in samples}) >= 60


def test_a_vtax_that_is_killed_on_its_node_loses_one_repetition(
    cluster: SlurmCluster, inside: dict[str, str], tmp_path: Path
) -> None:
    folder = submitted(inside, tmp_path, "reps: 1000\ncommand: [sleep, '0.0777']")
    assert eventually(lambda: saved(folder) > 2000, within_s=60)
    (vtax,) = pids_naming(f"--out {folder}/parts")
    os.kill(vtax, signal.SIGKILL)
    done = run(inside, "collect", "--wait", str(folder))
    assert done.returncode == 0, done.stderr
    record, samples = load(folder)
    assert record.state == "interrupted" and len(samples) >= 4
    assert {each.node for each in samples} == {"n1"}
    assert eventually(lambda: not processes_naming("sleep 0.0777"), within_s=30)


def pids_naming(words: str) -> list[int]:
    """Processes of Python with these words on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if words in line and "python" in (path.parent / "exe").readlink().name:
                found.append(int(path.parent.name))
    return found


def test_cancelling_keeps_what_there_is(
    cluster: SlurmCluster, inside: dict[str, str], tmp_path: Path
) -> None:
    text = "reps: 1000\ncommand: [sleep, '0.0788']"
    folder = submitted(inside, tmp_path, text, "--chain", "3")
    assert eventually(lambda: saved(folder) > 2000, within_s=60)
    done = run(inside, "collect", "--cancel", str(folder))
    assert done.returncode == 0, done.stderr
    assert cluster.jobs() == []
    assert len(load(folder)[1]) >= 4
    assert eventually(lambda: not processes_naming("sleep 0.0788"), within_s=30)


def test_nothing_is_left_when_slurm_refuses(inside: dict[str, str], tmp_path: Path) -> None:
    spec = tmp_path / "x.yaml"
    spec.write_text("vtax: 1\ncommand: ['true']\n")
    runs = tmp_path / "runs"
    argv = ("submit", "--partition", "none", "--out", str(runs), str(spec))
    assert "Slurm: " in one_line(run(inside, *argv), 1)
    assert list(runs.iterdir()) == []


def test_a_job_that_measures_nothing_says_why(inside: dict[str, str], tmp_path: Path) -> None:
    folder = submitted(inside, tmp_path, "reps: 2\ncommand: [/no/such/program]")
    line = one_line(run(inside, "collect", "--wait", str(folder)), 1)
    assert "nothing was measured: vtax: " in line and "/no/such/program" in line
