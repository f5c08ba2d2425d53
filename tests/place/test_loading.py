"""Loads of machines: the client runs beside the command, is timed, and never stays."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest

from command_line import ROOT
from mock_machines import Mock, World
from process_watch import eventually, processes_naming
from tested_machines import checked
from vtax.core.errors import VtaxError
from vtax.core.runner.repetition import Repetition, run
from vtax.environments.base import MachineLike
from vtax.environments.capabilities import C, Direction, Link, LinkCounters
from vtax.place.instruments.load import Loading, is_saturated, serve
from vtax.workloads.base import Command, Metric
from vtax.workloads.loads.base import Load, LoadResult, serving
from vtax.workloads.loads.registry import check as check_load
from vtax.workloads.loads.registry import named
from vtax.workloads.variables import DEFAULT_PATH

BUSY = "import time\nwhile time.process_time() < {seconds}: pass\nprint('{printed}')"
Start = Callable[[str], MachineLike]
CPUS = [max(os.sched_getaffinity(0))]


@dataclass(frozen=True)
class Printed(Load):
    """A load whose client is a Python program here."""

    name: str = "printed"
    about: str = "for tests"
    needs: ClassVar[tuple[str, ...]] = ()
    code: str = "print('42')"
    server: Command | None = field(default=Command(("true",)))  # type: ignore[assignment]

    def client(self, address: str, rate_bits: int, seconds: int) -> Sequence[str]:
        return [sys.executable, "-c", self.code]

    def read(self, stdout: str) -> LoadResult:
        return LoadResult(float(stdout), "1/s", percentiles={50: 0.25}, requests=7)


class Linked(Mock):
    """A mock with a link whose client runs here, and whose counters step at each reading."""

    counted = 0

    def offer(self, wanted: type[C]) -> C | None:
        link = Link("tap", 8000, "10.213.1.2", (1,), list, self._count)
        return link if isinstance(link, wanted) else None

    def _count(self) -> LinkCounters:
        self.counted += 1
        step = self.counted
        return LinkCounters(Direction(1000 * step, step, 0), Direction(10 * step, step, step))


class Guests(Linked):
    """A mock of three guests behind one link."""

    def offer(self, wanted: type[C]) -> C | None:
        found = super().offer(wanted)
        if isinstance(found, Link):
            return replace(found, others=("10.213.1.3", "10.213.1.4"))  # type: ignore[return-value]
        return found


@dataclass(frozen=True)
class ByAddress(Printed):
    """Each guest has its own result: the last number of its address."""

    failing: str = ""

    def client(self, address: str, rate_bits: int, seconds: int) -> Sequence[str]:
        code = "raise SystemExit(3)" if address == self.failing else "print({})"
        return [sys.executable, "-c", code.format(address.rpartition(".")[2])]

    def read(self, stdout: str) -> LoadResult:
        return replace(super().read(stdout), percentiles={50: float(stdout) / 100})


def repetition(tmp_path: Path, machine: MachineLike, load: Load, seconds: int) -> Repetition:
    argv = load.command(seconds).argv
    return Repetition(load.name, machine, tmp_path, "r0", tmp_path / "out", argv)


def measured(
    tmp_path: Path, load: Load, seconds: int = 1, kind: type[Linked] = Linked
) -> dict[str, Metric]:
    machine = kind(World(), "mock", checked("native"))
    found = repetition(tmp_path, machine, load, seconds)
    run(found, load.command(seconds), {}, [Loading(load, seconds, CPUS)])
    return {each.name: each for each in found.metrics}


def test_metrics_of_client_and_link(tmp_path: Path) -> None:
    found = measured(tmp_path, Printed())
    assert (found["throughput"].value, found["throughput"].unit) == (42.0, "1/s")
    assert found["latency_p50_s"].value == 0.25 and found["requests"].value == 7
    assert found["link_bytes_sent"].value == 1000 and found["link_bytes_received"].value == 10
    assert found["link_packets_sent"].value == found["link_drops_received"].value == 1
    assert found["link_percent"].value > 0


def test_a_client_without_time_left_is_seen(tmp_path: Path) -> None:
    found = measured(tmp_path, Printed(code=BUSY.format(seconds=1.5, printed=1)), seconds=1)
    assert found["client_cpu_s"].value > 1.4
    assert is_saturated(list(found.values()))
    assert not is_saturated([Metric("client_cpu_percent", "%", "lower", 20.0)])


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; sys.exit('no route')", "ended with exit code 1: no route"),
        ("import os; os.kill(os.getpid(), 9)", "ended with exit code 137"),
    ],
)
def test_a_client_that_fails_is_one_error(tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(VtaxError, match=said):
        measured(tmp_path, Printed(code=code))


def test_a_client_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtax.place.instruments.load.CLIENT_GRACE_S", 0.5)
    with pytest.raises(VtaxError, match="did not end within"):
        measured(tmp_path, Printed(code=f"import time; time.sleep(1000) # {tmp_path}"), seconds=1)
    assert eventually(lambda: processes_naming(str(tmp_path)) == [])


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make network namespaces")
@pytest.mark.parametrize("spec", ["uml:mem=256M,net=vde", "container:net=veth", "gvisor:net=veth"])
def test_every_load_runs_in_real_machines(spec: str, tmp_path: Path) -> None:
    machine = checked(spec).start(tmp_path, CPUS)
    here = ROOT / "python/vtax/_bin"
    variables = {"PATH": f"{here}:{DEFAULT_PATH}"}
    served: set[int] = set()
    try:
        for load in named(["http", "ab", "tcp", "tcp-in", "udp", "disk", "gzip"]):
            check_load(load)
            if load.ready and load.ready not in served:
                serve(load, machine, tmp_path, f"server-{load.ready}", variables)
                served.add(load.ready)
            command = load.command(1)
            one = Repetition(load.name, machine, tmp_path, load.name, tmp_path, command.argv)
            run(one, command, variables | dict(command.environment), [Loading(load, 1, CPUS)])
            found = {each.name: each.value for each in one.metrics}
            assert found["throughput"] > 0
            assert ("link_percent" in found) == bool(load.server)
            if load.server:
                assert 0 < found["link_percent"] < 110
    finally:
        machine.close()


def test_a_server_that_does_not_start_is_one_error(start: Start, tmp_path: Path) -> None:
    """No program listens on port 1."""
    machine = start("native")
    load = Printed(server=serving(1, ("sh", "-c", "echo 'no such module' >&2; exit 3")))
    with pytest.raises(VtaxError, match="its server ended with exit code 1: no such module"):
        serve(load, machine, tmp_path / "work0", "server", {"PATH": DEFAULT_PATH})


def test_several_guests_have_a_client_each(tmp_path: Path) -> None:
    found = measured(tmp_path, ByAddress(), kind=Guests)
    assert found["throughput"].value == 2 + 3 + 4
    assert found["requests"].value == 3 * 7
    assert found["latency_p50_s"].value == 0.04, "the slowest guest's"
    (tmp_path / "again").mkdir()
    with pytest.raises(VtaxError, match="its client ended with exit code 3"):
        measured(tmp_path / "again", ByAddress(failing="10.213.1.3"), kind=Guests)
