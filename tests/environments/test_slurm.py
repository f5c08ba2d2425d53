"""Nodes that Slurm allocates: real daemons on loopback, their faults, and what is left behind."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import command, one_line, run
from process_watch import eventually, processes_naming
from slurm_cluster import SlurmCluster
from ssh_server import SshServer
from vtax.core import slurm
from vtax.core.errors import MisuseError
from vtax.core.formats.folder import load
from vtax.environments import build
from vtax.environments.slurm.environment import Slurm

COMPARE = ("compare", "--baseline", "none", "--no-control", "--json", "--quiet")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    with SlurmCluster(tmp_path_factory.mktemp("slurm") / "cluster") as running:
        yield running


@pytest.fixture
def inside(cluster: SlurmCluster, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The variables of a vtax that reaches the cluster, which has no job before and after."""
    yield {**environment, "SLURM_CONF": str(cluster.configuration)}
    assert eventually(lambda: not cluster.jobs(), within_s=30), cluster.jobs()


def left_on(far: Path) -> bool:
    return any(far.iterdir()) or bool(processes_naming(str(far)))


def spec(tmp_path: Path, more: str = "") -> str:
    far = tmp_path / "far"
    far.mkdir(exist_ok=True)
    return f"slurm:p,cpus=1,dir={far}{more}"


def started(
    inside: dict[str, str], tmp_path: Path, *argv: str, samples: int = 3000
) -> subprocess.Popen[str]:
    """A comparison in the middle of its repetitions."""
    process = subprocess.Popen(
        command(*COMPARE, "--reps", "1000", "--out", str(tmp_path / "runs"), *argv),
        env=inside,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    enough = lambda: any(  # noqa: E731
        path.stat().st_size > samples for path in tmp_path.glob("runs/*/samples.jsonl")
    )
    if not eventually(enough, within_s=120):
        process.kill()
        raise AssertionError(f"no samples came: {process.communicate()}")
    return process


def test_a_spec_on_this_machine_over_ssh_and_on_nodes_is_one_report(
    inside: dict[str, str], tmp_path: Path
) -> None:
    slurm = spec(tmp_path, ",nodes=2")
    with SshServer(tmp_path / "server") as server:
        ssh = f"{server.spec},cpus=1"
        asked = tmp_path / "asked.yaml"
        asked.write_text(
            "vtax: 1\nverb: compare\nreps: 6\nmetric: ['rounds:/s:higher=rounds ([0-9]+)']\n"
            f"in: [native, '{ssh}', '{slurm}']\n"
            "command: [sh, -c, 'sleep 0.02; echo rounds 50']\n"
        )
        argv = ("compare", "--spec", str(asked), "--json", "--quiet", "--out", "runs")
        done = subprocess.run(
            command(*argv), env=inside, cwd=tmp_path, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    columns = [each["label"] for each in found["environments"] if each["role"] != "control"]
    assert columns == ["native", ssh, slurm]
    (effect,) = found["nodes"]
    assert [each["node"] for each in effect["nodes"]] == ["n1", "n2"]
    assert [each["rounds"] for each in effect["nodes"]] == [3, 3]
    (folder,) = (tmp_path / "runs").iterdir()
    record, samples = load(folder)
    assert {each.node for each in samples if each.environment != slurm} == {None}
    # Rounds visit the nodes in turn.
    own = {each.round: each.node for each in samples if each.environment == slurm}
    assert own == {number: f"n{1 + number % 2}" for number in range(6)}
    facts = next(each.facts for each in record.environments if each.label == slurm)
    assert facts["slurm"]["NodeList"] == "n[1-2]" and facts["slurm"]["nodes"] == ["n1", "n2"]
    assert (folder / "report.html").read_text().count(">nodes like these<") == 1
    assert not left_on(tmp_path / "far")


def test_two_environments_of_one_allocation_run_a_round_on_the_same_node(
    inside: dict[str, str], tmp_path: Path
) -> None:
    both = [spec(tmp_path, f",nodes=2,pids={number}") for number in (100, 200)]
    argv = [*COMPARE, "--in", both[0], "--in", both[1], "--reps", "4", "--out"]
    done = run(inside, *argv, str(tmp_path / "runs"), "--", "true")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    record, samples = load(folder)
    jobs = {each.facts["slurm"]["JobId"] for each in record.environments}
    assert len(jobs) == 1
    rounds: dict[int | None, set[str | None]] = {}
    for each in samples:
        rounds.setdefault(each.round, set()).add(each.node)
    assert [rounds[number] for number in range(4)] == [{"n1"}, {"n2"}, {"n1"}, {"n2"}]


@pytest.mark.skipif(not shutil.which("mpirun"), reason="no Open MPI: apt-get install openmpi-bin")
def test_ranks_run_on_all_nodes_at_once(inside: dict[str, str], tmp_path: Path) -> None:
    """Both nodes are this machine; the agent that starts a rank gives it its home."""
    nodes = spec(tmp_path, ",nodes=2,mpi=on")
    argv = [*COMPARE, "--in", nodes, "--reps", "2", "--no-warm-up", "--out", str(tmp_path / "runs")]
    mpirun = ["mpirun", "--allow-run-as-root", "-np", "2", "sh", "-c", 'echo "$HOME"']
    done = run(inside, *argv, "--", *mpirun)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    record, samples = load(folder)
    assert record.environments[0].cpus == 2 and {each.node for each in samples} == {None}
    for number in range(2):
        (out,) = (path for path in folder.rglob(f"r00{number}/stdout") if path.stat().st_size)
        homes = {Path(line).relative_to(tmp_path / "far").parts[0] for line in out.open()}
        assert len(homes) == 2
        assert out.with_name("stderr").read_text().count("MCW rank") == 2
    assert not left_on(tmp_path / "far")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_vtax_is_ended(
    inside: dict[str, str], tmp_path: Path, number: int
) -> None:
    process = started(inside, tmp_path, "--in", spec(tmp_path, ",nodes=2"), "--", "sleep", "0.0711")
    process.send_signal(number)
    process.communicate(timeout=60)
    assert eventually(lambda: not left_on(tmp_path / "far"), within_s=30)
    (folder,) = (tmp_path / "runs").iterdir()
    assert load(folder)[1]


def test_a_job_that_another_cancels_ends_the_run_and_loses_nothing(
    cluster: SlurmCluster, inside: dict[str, str], tmp_path: Path
) -> None:
    process = started(inside, tmp_path, "--in", spec(tmp_path), "--", "sleep", "0.0722")
    (job,) = cluster.jobs()
    cluster.ask("scancel", job)
    printed = process.communicate(timeout=120)
    assert process.returncode == 1, printed
    (folder,) = (tmp_path / "runs").iterdir()
    record, samples = load(folder)
    said = [each.message for each in record.failures]
    assert "its Slurm job was cancelled" in said[0]
    assert record.state == "failed" and len(said) <= 2
    assert len({each.position for each in samples}) >= 3
    assert eventually(lambda: not left_on(tmp_path / "far"), within_s=30)
    shown = run(inside, "report", str(folder))
    assert "its Slurm job was cancelled" in shown.stdout and "Traceback" not in shown.stderr


@pytest.mark.long
def test_a_time_limit_ends_the_run_and_loses_nothing(
    inside: dict[str, str], tmp_path: Path
) -> None:
    """Slurm's shortest limit is a minute."""
    argv = ("--in", spec(tmp_path, ",time=1m"), "--", "sleep", "0.0725")
    process = started(inside, tmp_path, *argv)
    printed = process.communicate(timeout=300)
    assert process.returncode == 1, printed
    (folder,) = (tmp_path / "runs").iterdir()
    record, samples = load(folder)
    first = record.failures[0].message
    assert "Slurm ended its job: time limit; give it more time=" in first
    assert record.state == "failed" and len({each.position for each in samples}) > 100
    assert eventually(lambda: not left_on(tmp_path / "far"), within_s=60)


def test_a_controller_that_starts_again_disturbs_nothing(
    cluster: SlurmCluster, inside: dict[str, str], tmp_path: Path
) -> None:
    process = started(inside, tmp_path, "--in", spec(tmp_path), "--", "sleep", "0.0733")
    cluster.end("slurmctld", signal.SIGTERM)
    (samples,) = tmp_path.glob("runs/*/samples.jsonl")
    size = samples.stat().st_size
    assert eventually(lambda: samples.stat().st_size > 2 * size, within_s=60)
    cluster.start_controller()
    assert eventually(lambda: len(cluster.jobs()) == 1, within_s=60)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    (folder,) = (tmp_path / "runs").iterdir()
    assert not load(folder)[0].failures


def test_a_drained_node_ends_its_job_as_it_would_have(
    cluster: SlurmCluster, inside: dict[str, str], tmp_path: Path
) -> None:
    process = started(inside, tmp_path, "--in", spec(tmp_path), "--", "sleep", "0.0744")
    cluster.ask("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=test")
    try:
        (samples,) = tmp_path.glob("runs/*/samples.jsonl")
        size = samples.stat().st_size
        assert eventually(lambda: samples.stat().st_size > 2 * size, within_s=60)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        cluster.ask("scontrol", "update", "NodeName=n1", "State=RESUME")
    (folder,) = (tmp_path / "runs").iterdir()
    assert not load(folder)[0].failures
    cluster.await_idle()


def test_a_campaign_waits_for_another_and_a_wait_can_be_ended(
    cluster: SlurmCluster, inside: dict[str, str], tmp_path: Path
) -> None:
    nodes = spec(tmp_path, ",nodes=2")
    first = started(inside, tmp_path, "--in", nodes, "--", "sleep", "0.0755")
    second = subprocess.Popen(
        command(*COMPARE, "--in", nodes, "--out", str(tmp_path / "second"), "--", "true"),
        env=inside,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert eventually(lambda: len(cluster.jobs()) == 2, within_s=60)
    assert "PENDING" in cluster.ask("squeue", "--noheader", "--format=%T")
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=60)
    assert second.returncode == 130
    assert eventually(lambda: len(cluster.jobs()) == 1, within_s=30)
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=60)
    assert eventually(lambda: not cluster.jobs(), within_s=30)
    cluster.await_idle()


def test_inside_an_allocation_it_is_used_and_not_asked_for_again(
    cluster: SlurmCluster, inside: dict[str, str], tmp_path: Path
) -> None:
    argv = [*COMPARE, "--in", spec(tmp_path, ",nodes=2"), "--reps", "2", "--out"]
    line = command(*argv, str(tmp_path / "runs"), "--", "true")
    held = subprocess.run(
        ["salloc", "--nodes=2", "--exclusive", "--mem=0", *line],
        env=inside,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert held.returncode == 0, held.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    (record, samples) = load(folder)
    around = next(word for word in held.stderr.split() if word.isdecimal())
    assert record.environments[0].facts["slurm"]["JobId"] == around
    assert {each.node for each in samples} == {"n1", "n2"}
    assert cluster.jobs() == []


def test_a_partition_that_is_not_there_is_one_line(inside: dict[str, str], tmp_path: Path) -> None:
    line = one_line(run(inside, *COMPARE, "--in", "slurm:none", "--", "true"), 1)
    assert "partition none has no nodes; look at: sinfo" in line


def test_more_nodes_than_there_are_is_one_line(inside: dict[str, str], tmp_path: Path) -> None:
    argv = ("--in", spec(tmp_path, ",nodes=3"), "--out", str(tmp_path / "runs"), "--", "true")
    line = one_line(run(inside, *COMPARE, *argv), 1)
    assert "never gives this many nodes" in line


def test_a_wait_ends_with_a_vtax_that_is_killed(
    cluster: SlurmCluster, inside: dict[str, str], tmp_path: Path
) -> None:
    cluster.ask("scontrol", "update", "NodeName=n1,n2", "State=DRAIN", "Reason=test")
    try:
        waiting = subprocess.Popen(
            command(*COMPARE, "--in", spec(tmp_path), "--out", str(tmp_path / "r"), "--", "true"),
            env=inside,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        assert eventually(lambda: len(cluster.jobs()) == 1, within_s=60)
        waiting.kill()
        waiting.wait()
        assert eventually(lambda: not cluster.jobs(), within_s=30)
    finally:
        cluster.ask("scontrol", "update", "NodeName=n1,n2", "State=RESUME")
    cluster.await_idle()


def test_a_slurm_that_does_not_answer_is_one_line(
    environment: dict[str, str], tmp_path: Path
) -> None:
    lost = tmp_path / "slurm.conf"
    lost.write_text("")
    own = {**environment, "SLURM_CONF": str(lost)}
    line = one_line(run(own, *COMPARE, "--in", "slurm", "--", "true"), 1)
    assert "Slurm: " in line


def test_doctor_says_what_slurm_has(inside: dict[str, str]) -> None:
    said = json.loads(run(inside, "doctor", "--json").stdout)
    (check,) = (each for each in said["findings"] if each["name"] == "slurm")
    assert check["state"] == "ok" and check["detail"] == "partitions and nodes: p* 2 idle"


def test_times_are_not_longer_than_those_of_the_machine_itself(
    inside: dict[str, str], tmp_path: Path
) -> None:
    """A message that waited for the one before would add up to 40 ms to what the host sees."""
    argv = [*COMPARE, "--in", spec(tmp_path), "--reps", "9", "--out", str(tmp_path / "runs")]
    done = run(inside, *argv, "--", "sleep", "0.005")
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    rows = [each for each in load(folder)[1] if each.metric == "wall_s"]
    beyond = sorted(each.host_wall_s - (each.told_wall_s or each.wall_s) for each in rows)
    assert len(beyond) == 9 and beyond[4] < 0.02


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("slurm:a;b", "partition=a;b is not a name"),
        ("slurm:--wrap", "partition=--wrap is not"),
        ("slurm:p,nodes=0", "whole number from 1"),
        ("slurm:p,cpus=none", "whole number"),
        ("slurm:p,mem=1K", "too small"),
        ("slurm:p,dir=relative", "absolute path"),
        ("slurm:p,exclusive=maybe", "use on or off"),
        ("slurm:p,time=soon", "soon"),
    ],
)
def test_what_cannot_be_is_refused(text: str, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        build(text)


def test_variables_of_an_allocation_are_not_options_of_a_step() -> None:
    around = {"SLURM_NTASKS": "4", "SLURM_CONF": "/c", "SALLOC_X": "1", "SRUN_Y": "1", "HOME": "/r"}
    assert slurm.variables(around) == {"SLURM_CONF": "/c", "HOME": "/r"}


def test_how_slurm_says_that_it_ended_a_step() -> None:
    step = "slurmstepd: error: *** STEP 12.2 ON n1 CANCELLED AT 2026-11-29T21:54:25"
    assert slurm.explain([f"{step} DUE TO TIME LIMIT ***"]) == (
        "Slurm ended its job: time limit", "give it more time=",
    )  # fmt: skip
    assert slurm.explain([f"{step} ***"]) == ("its Slurm job was cancelled", None)
    assert slurm.explain(["anything else"]) is None


def test_environments_that_ask_for_the_same_share_an_allocation() -> None:
    one, other = build("slurm:p,nodes=2,time=90s,cpus=1"), build("slurm:p,nodes=2,time=90s,mem=64M")
    assert isinstance(one, Slurm) and isinstance(other, Slurm)
    assert one.asked == other.asked
    assert "--time=2" in one.asked.line() and "--exclusive" in one.asked.line()
    assert build("slurm:p,nodes=1").asked != one.asked  # type: ignore[attr-defined]
