"""The campaign of `vtax place measure` on machines that only answer: pairs, order, marks, resume.

`vtax-host` is a script that records its requests and slows nothing.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest

from mock_machines import Mock, World
from process_watch import ended
from vtax.core import binaries
from vtax.core.errors import MisuseError, VtaxError
from vtax.core.formats.folder import RunFolder
from vtax.core.formats.records import read
from vtax.core.runner.repetition import Repetition
from vtax.core.runner.runner import Listener
from vtax.environments import build
from vtax.environments.base import Environment, MachineLike, allowed_cpus
from vtax.environments.capabilities import C, Link
from vtax.environments.machine import Finished
from vtax.place import campaign as place
from vtax.place.campaign import PlaceCampaign, PlaceRequest
from vtax.place.record import PlaceLoad, PlaceRecord
from vtax.place.service_domain import Backend, Thread, backends, moved, slowed
from vtax.workloads.base import Command, Metric
from vtax.workloads.loads.base import Load, LoadResult

VDE, TAP = "uml:mem=256M", "uml:mem=512M"
"""The second environment has no service threads. Its link is the mock's."""
SCRIPT = """#!/bin/sh
story={story}
shift
case $1 in
threads)
    case $* in *--until-eof*) echo '{{"watching":true}}'; cat > /dev/null ;; esac
    cat {threads} ;;
backends)
    echo '{{"backends":[{{"name":"hog","possible":true,"does_not":"a"}},
    {{"name":"cpufreq","possible":false,"reason":"no driver","does_not":"b"}}]}}' ;;
slow)
    echo "$*" >> $story
    [ "$5" = 33 ] && {{ echo "vtax: CPU 0: no real time; run it as root" >&2; exit 1; }}
    [ "$5" = 61 ] && kept=false || kept=true
    echo "{{\\"backend\\":\\"$3\\",\\"asked_percent\\":$5,\\"obtained_percent\\":$5,
        \\"honoured\\":$kept}}" | tr -d '\\n'
    echo
    cat > /dev/null
    echo "end $*" >> $story
    echo '{{"throttled_s":null,"ended":[]}}' ;;
esac
"""
HOG, QUOTA = (Backend(name=name, possible=True, does_not="") for name in ("hog", "quota"))


class Standing(Mock):
    """A machine with a link whose processes are those of the test."""

    def __init__(self, world: World, work: Path, environment: Environment, pid: int) -> None:
        super().__init__(world, work.name, environment)
        self.pid, self.left = pid, list[Sequence[str]]()

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        timeout_s: float | None = None,
        *,
        workdir: Path | None = None,
        leave: bool = False,
    ) -> Finished:
        return super().run(argv, environment, folder, timeout_s, workdir=workdir)

    def offer(self, wanted: type[C]) -> C | None:
        link = Link("vde", 10**9, "10.213.1.2", (self.pid,), list, lambda: None)  # type: ignore[arg-type, return-value]
        return link if isinstance(link, wanted) else None


@dataclasses.dataclass(frozen=True)
class StandIn(Load):
    name: str
    about: str = ""
    needs: ClassVar[tuple[str, ...]] = ()

    @property
    def server(self) -> Command:
        return Command(("serve",))

    def read(self, stdout: str) -> LoadResult:
        raise AssertionError("`Loaded` measures in its place")


class Loaded:
    """Stands in for `Loading`: throughput follows the speed that is in force."""

    name: ClassVar[str] = "load"
    needs = Link
    fails: ClassVar[frozenset[str]] = frozenset()
    saturated: ClassVar[frozenset[str]] = frozenset()
    interrupts: ClassVar[int] = 0
    """Interrupt at the load with this number, counted from 1; 0: at none."""
    story: ClassVar[Path] = Path("story")
    count: ClassVar[int] = 0

    def __init__(self, load: Load, seconds: int, cpus: Sequence[int]) -> None:
        self.load, self.cpus = load, cpus

    @contextmanager
    def around(self, repetition: Repetition) -> Iterator[None]:
        Loaded.count += 1
        with self.story.open("a") as story:
            story.write(f"load {self.load.name}\n")
        yield
        if Loaded.count == self.interrupts:
            raise KeyboardInterrupt
        if self.load.name in self.fails:
            raise VtaxError("its client failed")
        last = [line.split() for line in self.story.read_text().splitlines()][-2:]
        speed = float(last[0][4]) if last[0][0] == "slow" else 100.0
        client = 99.0 if self.load.name in self.saturated else 40.0
        repetition.metrics += [
            Metric("throughput", "requests/s", "higher", 50.0 * speed),
            Metric("link_percent", "%", "higher", 0.3 * speed),
            Metric("client_cpu_percent", "%", "lower", client),
        ]


@dataclasses.dataclass
class Ran:
    record: PlaceRecord
    story: list[str]
    """The story of the program and of the loads."""
    world: list[str]
    folder: Path
    campaign: PlaceCampaign

    def load(self, spec: str, name: str) -> PlaceLoad:
        (found,) = [x for x in self.record.loads if (x.environment, x.load) == (spec, name)]
        return found


@pytest.fixture
def service() -> Iterator[int]:
    """A process that stands in for a switch."""
    with ended(subprocess.Popen(["sleep", "600"])) as process:
        yield process.pid


@pytest.fixture
def domain(tmp_path: Path, service: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script's folder; the file `threads` has what it prints as threads."""
    monkeypatch.setattr(binaries, "FOLDER", tmp_path)
    paths = {"story": tmp_path / "story", "threads": tmp_path / "threads"}
    script = tmp_path / "vtax-host"
    script.write_text(SCRIPT.format(**paths))
    script.chmod(0o755)
    paths["threads"].write_text(json.dumps(window(service)))
    for name, value in {"story": paths["story"], "count": 0, "interrupts": 0}.items():
        monkeypatch.setattr(Loaded, name, value)
    monkeypatch.setattr(place, "Loading", Loaded)
    return tmp_path


def window(pid: int, **changes: Any) -> dict[str, Any]:
    own = {
        "pid": pid, "tid": pid, "process": "vde_switch", "name": "vde_switch", "role": "switch",
        "service": True, "start_ticks": 1, "guest": None, "cpu_s": 0.2, "run_delay_s": 0.01,
        "switches": 900, "wakeups": 800, "softirq_s": None, "cpus": "0-1", "policy": "other",
        "last_cpu": 0,
    }  # fmt: skip
    idle = {"cpu": 0, "busy_s": 0.3, "softirq_s": 0.1}
    return {"window_s": 1.5, "threads": [own | changes], "cpus": [idle], "notes": []}


@pytest.fixture
def carry_out(domain: Path, service: int, tmp_path: Path) -> Callable[..., Ran]:
    def carried_out(loads: Sequence[str] = ("http",), **changes: Any) -> Ran:
        world = World()

        def start(environment: Environment, work: Path, cpus: Sequence[int]) -> MachineLike:
            world.story.append(f"start {work.name}")
            return Standing(world, work, environment, service)

        request = PlaceRequest(
            environments={VDE: build(VDE)},
            loads={name: StandIn(name) for name in loads},
            speeds=(74.0, 50.0),
            backends=(HOG, QUOTA),
            service=(),
            rounds=3,
            seconds=1,
            seed=1,
            variables={},
            command_line=("vtax", "place", "measure"),
        )
        folder = RunFolder.create(tmp_path / "runs", "place")
        campaign = PlaceCampaign(dataclasses.replace(request, **changes), folder, Listener(), start)
        record = campaign.run()
        assert world.alive == 0
        assert read(folder.path / "run.json") == record
        told = (domain / "story").read_text().splitlines()
        return Ran(record, told, world.story, folder.path, campaign)

    return carried_out


def steps(story: Sequence[str]) -> list[str]:
    """The load of each step and what it is slowed by, in the order of running."""
    found, slow = [], ""
    for line in story:
        words = line.split()
        if words[0] == "slow":
            slow = f"{words[2]} {words[4]}"
        elif words[0] == "end":
            slow = ""
        elif words[0] == "load":
            found.append(f"{words[1]} {slow}".strip())
    return found


def test_each_point_runs_beside_its_own_control(carry_out: Callable[..., Ran]) -> None:
    done = carry_out(("http", "tcp"))
    ran = steps(done.story)
    assert ran[:2] == ["http", "tcp"], "the first look"
    pairs = [ran[at : at + 2] for at in range(2, len(ran), 2)]
    points = [f"{load} {how} {speed}" for load in ("http", "tcp")
              for how in ("hog", "quota") for speed in (74, 50)]  # fmt: skip
    slow = [next(each for each in pair if not each.endswith(" 100")) for pair in pairs]
    controls = [f"{each.rpartition(' ')[0]} 100" for each in slow]
    assert all(set(pair) == {*both} for pair, *both in zip(pairs, slow, controls, strict=True))
    assert Counter(slow) == dict.fromkeys(points, 3)
    rounds = [slow[at : at + 8] for at in (0, 8, 16)]
    assert all(set(each) == set(points) for each in rounds)
    assert rounds[0] != rounds[1], "each round has an order of its own"
    assert len({pair[0].endswith(" 100") for pair in pairs}) == 2, "either comes first"
    for name in ("http", "tcp"):
        found = done.load(VDE, name)
        assert {point.backend for point in found.points} == {"hog", "quota"}
        relative = {(p.backend, p.speed_asked_percent): p.relative_percent for p in found.points}
        assert relative[("hog", 50)] == pytest.approx(50) and relative[("quota", 100)] == 100
        assert found.elasticity == pytest.approx(1.0)
        slow = next(p for p in found.points if p.speed_asked_percent == 50)
        assert slow.service_cpu_percent == pytest.approx(20)
        assert slow.combined_usage_percent == pytest.approx(20 + 15)


def test_the_same_seed_gives_the_same_order(carry_out: Callable[..., Ran], domain: Path) -> None:
    first = steps(carry_out().story)
    (domain / "story").unlink()
    assert steps(carry_out().story) == first
    (domain / "story").unlink()
    assert steps(carry_out(seed=2).story) != first


def test_one_machine_serves_all_points(carry_out: Callable[..., Ran]) -> None:
    done = carry_out()
    assert sum(line.startswith("start ") for line in done.world) == 1
    assert sum("server-http" in line for line in done.world) == 1


def test_the_service_is_kept_off_the_machines_cpu(
    carry_out: Callable[..., Ran], service: int
) -> None:
    done = carry_out(speeds=(50.0,), backends=(HOG,), rounds=1)
    (own,) = done.record.environments
    assert own.machine_cpus == (allowed_cpus()[-1],)
    if len(allowed_cpus()) > 1:
        assert own.service_cpu not in own.machine_cpus
        assert os.sched_getaffinity(service) == {own.service_cpu}
    assert own.service == ("vde_switch (switch)",) and own.absent is None
    slow = next(line for line in done.story if line.startswith("slow"))
    assert slow == f"slow --backend hog --percent 50 --cpu {own.service_cpu} --tid {service}"


def test_without_service_threads_there_is_full_speed_alone(
    carry_out: Callable[..., Ran], domain: Path, service: int
) -> None:
    (domain / "threads").write_text(json.dumps(window(service, role="softirq")))
    done = carry_out()
    assert "no slow points" in (done.record.environments[0].absent or "")
    assert steps(done.story) == ["http"] * 4
    (point,) = done.load(VDE, "http").points
    assert point.speed_asked_percent == 100 and point.n == 3
    assert point.service_cpu_percent == pytest.approx(10), "the softirqs of the host"
    assert point.combined_usage_percent == pytest.approx(10 + 30)


def test_a_back_end_that_slows_elsewhere_alone_is_said(carry_out: Callable[..., Ran]) -> None:
    elsewhere = HOG.model_copy(update={"name": "xen-cap", "possible": False})
    done = carry_out(backends=(elsewhere,), rounds=1)
    assert done.record.environments[0].absent == (
        "no slow points: no back end that was asked for slows its service"
    )
    assert not any(line.startswith("slow") for line in done.story)


def test_service_threads_that_never_work_are_not_slowed(
    carry_out: Callable[..., Ran], domain: Path, service: int
) -> None:
    (domain / "threads").write_text(json.dumps(window(service, cpu_s=0.0001)))
    done = carry_out()
    assert "no load made its service threads work" in (done.record.environments[0].absent or "")
    assert not any(line.startswith("slow") for line in done.story)


def test_what_does_not_hold_its_speed_is_kept_apart(carry_out: Callable[..., Ran]) -> None:
    done = carry_out(speeds=(61.0, 50.0), backends=(HOG,))
    marks = {p.speed_asked_percent: p.marks for p in done.load(VDE, "http").points}
    assert marks[61] and not marks[50] and not marks[100]
    assert any("61 %" in text for text in done.record.findings)


def test_a_saturated_client_is_said(
    carry_out: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loaded, "saturated", frozenset({"udp"}))
    done = carry_out(("udp", "http"), backends=(HOG,))
    assert done.load(VDE, "udp").elasticity is None
    assert done.load(VDE, "http").elasticity == pytest.approx(1.0)
    assert any("udp" in text and "saturated" in text for text in done.record.findings)


def test_a_load_that_fails_at_the_first_look_is_not_tried_again(
    carry_out: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loaded, "fails", frozenset({"tcp"}))
    done = carry_out(("tcp", "http"))
    assert steps(done.story).count("tcp") == 1
    assert [load.load for load in done.record.loads] == ["http"]
    assert any("its client failed" in text for text in done.record.failures)


def test_a_speed_that_is_refused_loses_its_point_alone(carry_out: Callable[..., Ran]) -> None:
    done = carry_out(speeds=(50.0, 33.0), backends=(HOG,), rounds=1)
    speeds = [p.speed_asked_percent for p in done.load(VDE, "http").points]
    assert speeds == [100, 50]
    assert any("no real time" in text for text in done.record.failures)


def test_what_was_finished_is_kept_after_an_interrupt(
    carry_out: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Loaded, "interrupts", 8)
    done = carry_out()
    assert done.record.state == "interrupted" and done.campaign.found
    # The first look is not kept, and the eighth load was cut short.
    samples = pl.read_parquet(done.folder / "samples.parquet")
    throughput = samples.filter(pl.col("metric") == "throughput")
    assert throughput["environment"].to_list() == [VDE] * 6
    assert sum(p.n for p in done.load(VDE, "http").points) == 6


def test_threads_that_the_user_names(carry_out: Callable[..., Ran], service: int) -> None:
    before = os.sched_getaffinity(service)
    done = carry_out(service=(service,), backends=(HOG,), rounds=1)
    assert os.sched_getaffinity(service) == before, "they are not moved"
    slow = next(line for line in done.story if line.startswith("slow"))
    assert f"--tid {service}" in slow and "--cpu" not in slow
    assert done.record.environments[0].service_cpu is None
    with pytest.raises(MisuseError, match="does not serve a guest"):
        carry_out(service=(service, 1))


def test_vcpus_are_slowed_in_place_of_the_service(
    carry_out: Callable[..., Ran], domain: Path, service: int
) -> None:
    both = window(service)
    own = both["threads"][0]
    # This is a thread of its own: the test's process is the service.
    vcpu = os.getpid()
    both["threads"].append(own | {"pid": vcpu, "tid": vcpu, "name": "CPU 0/TCG", "role": "vcpu",
                                  "service": False})  # fmt: skip
    (domain / "threads").write_text(json.dumps(both))
    before = os.sched_getaffinity(0)
    try:
        done = carry_out(vcpus=True, backends=(HOG,), rounds=1)
    finally:
        os.sched_setaffinity(0, before)
    (where,) = done.record.environments
    assert where.service == ("CPU 0/TCG (vcpu)",) and done.record.slowed == "vcpus"
    assert where.service_cpu in where.machine_cpus
    assert "its own vCPUs were slowed, not the threads that serve it" in where.notes
    slow = [line for line in done.story if line.startswith("slow")]
    assert slow and all(line.endswith(f"--tid {vcpu}") for line in slow)


def test_a_machine_without_vcpu_threads_has_no_slow_points(carry_out: Callable[..., Ran]) -> None:
    done = carry_out(vcpus=True)
    assert done.record.environments[0].absent == (
        "no slow points: it has no threads that are its vCPUs"
    )
    assert not any(line.startswith("slow") for line in done.story)


def test_threads_that_have_ended_are_not_slowed(
    carry_out: Callable[..., Ran], domain: Path, service: int
) -> None:
    both = window(service)
    both["threads"].append(both["threads"][0] | {"tid": (1 << 22) - 1, "name": "worker"})
    (domain / "threads").write_text(json.dumps(both))
    done = carry_out(backends=(HOG,), rounds=1)
    slow = [line for line in done.story if line.startswith("slow")]
    assert slow and all(line.endswith(f"--tid {service}") for line in slow)
    assert not done.record.failures


def test_threads_stay_where_their_control_group_lets_them(service: int) -> None:
    allowed = os.sched_getaffinity(service)
    thread = Thread.model_validate(window(service)["threads"][0])
    assert moved([thread], max(allowed)) == max(allowed)
    # A CPU that does not exist is refused like one outside of the cpuset.
    assert moved([thread], 1000) == max(allowed)
    gone = thread.model_copy(update={"tid": (1 << 22) - 1})
    assert moved([gone], max(allowed)) == max(allowed)


def test_the_program_that_slows(domain: Path) -> None:
    assert [(each.name, each.possible) for each in backends()] == [
        ("hog", True), ("cpufreq", False),
    ]  # fmt: skip
    with slowed("hog", 50.0, [1, 2], 0) as held:
        assert (held.obtained_percent, held.honoured) == (50.0, True)
        assert "end slow" not in (domain / "story").read_text()
    assert "end slow --backend hog" in (domain / "story").read_text()
    with pytest.raises(VtaxError, match=r"^CPU 0: no real time; run it as root$"):
        slowed("hog", 33.0, [1], 0).__enter__()


def test_an_answer_of_another_version_is_one_line(domain: Path) -> None:
    (domain / "vtax-host").write_text("#!/bin/sh\necho '[]'\n")
    with pytest.raises(VtaxError, match="not of this version"):
        backends()
