"""Fast and slow cores of hosts that are a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from vtax.core.errors import MisuseError, VtaxError
from vtax.place.cores import cores

CPU = "sys/devices/system/cpu"


def host(root: Path, on: str, files: dict[str, str] | None = None) -> Path:
    for name, text in {f"{CPU}/online": on, **(files or {})}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def capacities(*sizes: int) -> dict[str, str]:
    return {f"{CPU}/cpu{cpu}/cpu_capacity": str(size) for cpu, size in enumerate(sizes)}


def test_cores_of_two_capacities(tmp_path: Path) -> None:
    found = cores(None, None, None, host(tmp_path, "0-3", capacities(512, 512, 1024, 1024)))
    assert [(each.name, each.speed_percent, sorted(each.cpus)) for each in found.classes] == [
        ("fast", 100.0, [2, 3]),
        ("slow", 50.0, [0, 1]),
    ]
    assert not found.supposed


def test_cores_of_three_capacities(tmp_path: Path) -> None:
    root = host(tmp_path, "0-3", capacities(256, 256, 768, 1024))
    assert [(each.name, each.speed_percent) for each in cores(None, None, None, root).classes] == [
        ("fast", 100.0),
        ("medium", 75.0),
        ("slow", 25.0),
    ]
    with pytest.raises(MisuseError, match="3 kinds of cores"):
        cores(None, None, 40.0, root)
    assert len(cores("3", "0-1", 40.0, root).classes) == 2


TYPES = {"sys/devices/cpu_core/cpus": "0-1", "sys/devices/cpu_atom/cpus": "2-5"}


def test_hybrid_x86_with_the_firmwares_performance(tmp_path: Path) -> None:
    stated = {f"{CPU}/cpu{cpu}/acpi_cppc/highest_perf": "60" if cpu < 2 else "36"
              for cpu in range(6)}  # fmt: skip
    found = cores(None, None, None, host(tmp_path, "0-5", TYPES | stated))
    assert [each.speed_percent for each in found.classes] == [100.0, 60.0]
    assert sorted(found.classes[1].cpus) == [2, 3, 4, 5]


def test_hybrid_x86_without_it_supposes_a_speed_and_says_so(tmp_path: Path) -> None:
    root = host(tmp_path, "0-4", TYPES)
    found = cores(None, None, None, root)
    assert found.classes[1].speed_percent == 50.0 and "50 % supposed" in found.source
    assert sorted(found.classes[1].cpus) == [2, 3, 4], "CPU 5 is off"
    assert "supposed" not in cores(None, None, 40.0, root).source


def test_cores_that_are_alike_are_supposed(tmp_path: Path) -> None:
    found = cores(None, None, 40.0, host(tmp_path, "0-1", capacities(1024, 1024)))
    assert found.supposed and found.slowest_percent == 40.0


def test_nodes(tmp_path: Path) -> None:
    nodes = {f"sys/devices/system/node/node{n}/cpulist": text for n, text in ((0, "0-1"), (2, "2"))}
    assert cores(None, None, None, host(tmp_path, "0-2", nodes)).node == {0: 0, 1: 0, 2: 2}


@pytest.mark.parametrize(
    ("fast", "slow", "said"),
    [
        ("0-2", "2-3", "CPU 2: it is in --fast and in --slow"),
        ("0-1", "2-4", "--slow: CPU 4 is not online; online are 0-3"),
        ("0-3", None, "--slow: no CPU is left for it"),
        ("0-", "2", "--fast: '0-' is not a CPU number or a range"),
        ("3-1", "2", "'3-1' is not a CPU number or a range"),
        ("$(id)", "2", "'$(id)' is not a CPU number"),
        ("--json", "2", "'--json' is not a CPU number"),
    ],
)
def test_lists_that_cannot_be(tmp_path: Path, fast: str, slow: str, said: str) -> None:
    with pytest.raises(MisuseError) as error:
        cores(fast, slow, None, host(tmp_path, "0-3"))
    assert said in str(error.value)


@pytest.mark.parametrize(("fast", "slow"), [("0-1", None), (None, "2-3"), ("0-1", "2-3")])
def test_one_list_is_enough_and_isolated_cpus_are_in_none(
    tmp_path: Path, fast: str | None, slow: str | None
) -> None:
    alike = {f"{CPU}/isolated": "4", **capacities(1024, 1024, 256, 256, 1024)}
    found = cores(fast, slow, None, host(tmp_path, "0-4", alike))
    assert [sorted(each.cpus) for each in found.classes] == [[0, 1], [2, 3]]
    assert found.classes[1].speed_percent == 25.0 and sorted(found.node) == [0, 1, 2, 3]
    named = cores("0-1,4", slow, None, tmp_path)
    assert sorted(named.classes[0].cpus) == [0, 1, 4]


def test_siblings_are_worth_a_part_of_a_core(tmp_path: Path) -> None:
    pairs = {f"{CPU}/cpu{cpu}/topology/thread_siblings_list": "0,2" for cpu in (0, 2)}
    found = cores(None, None, None, host(tmp_path, "0-2", pairs | capacities(1024, 512, 1024)))
    assert found.worth({0, 1, 2}) == pytest.approx(2.15)
    assert found.worth({1, 2}) == 2.0
    assert [dict(each.cores) for each in found.planned()] == [{0: pytest.approx(1.15)}, {0: 1.0}]


def test_a_host_without_sysfs(tmp_path: Path) -> None:
    with pytest.raises(VtaxError, match="mount /sys"):
        cores(None, None, None, tmp_path)
