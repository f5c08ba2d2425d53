"""Kinds of cores on generated hosts, whose generator knows which core is of which kind."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from place_hosts import advice, threads
from vtax.core.errors import MisuseError
from vtax.place.cores import cores
from vtax.place.plan import cpu_list
from vtax.place.service_domain import kinds

CPU = "sys/devices/system/cpu"
SOURCES = {
    "cpu_capacity": 1024,
    "acpi_cppc/highest_perf": 255,
    "acpi_cppc/nominal_perf": 150,
    "cpufreq/cpuinfo_max_freq": 5_700_000,
    "cpufreq/base_frequency": 3_000_000,
}
PARTS = ("0x00000000412fd440", "0x00000000411fd410", "0x00000000411fd050", "0x00000000410fd034")
Files = dict[str, str]


@dataclass(frozen=True)
class Made:
    """A host: the CPUs of each kind, fastest first, and what it shows."""

    files: Files
    truth: list[list[int]]
    speeds: list[tuple[float, float]]
    """The least and the greatest number of each kind, in percent of the first kind's."""

    def at(self, root: Path) -> Path:
        for name, text in self.files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(f"{text}\n")
        return root


@st.composite
def hosts(draw: st.DrawFn) -> Made:
    """Kinds with a gap between them; each has a ladder of rankings; noise of 2 % on every
    number."""
    source = draw(st.sampled_from(sorted(SOURCES)))
    by_type = draw(st.sampled_from(["", "", "pmu", "midr"]))
    count = draw(st.integers(1, 3 if by_type != "pmu" else 2))
    sizes = draw(st.lists(st.integers(1, 6), min_size=count, max_size=count))
    threads = [draw(st.sampled_from([1, 1, 2])) for _ in sizes]
    wanted = [size * each for size, each in zip(sizes, threads, strict=True)]
    numbers = draw(st.permutations(range(sum(wanted))))
    files: Files = {f"{CPU}/online": cpu_list(numbers)}
    truth, values, first, top = list[list[int]](), list[list[float]](), 0, float(SOURCES[source])
    for kind, (size, each) in enumerate(zip(sizes, threads, strict=True)):
        own = list(numbers[first : first + size * each])
        first += size * each
        steps = [draw(st.floats(0.94, 1.0)) for _ in range(size - 1)]
        ladder = list(itertools.accumulate(steps, lambda a, b: a * b, initial=1.0))
        values.append([])
        for core in range(size):
            cpus = sorted(own[core * each : (core + 1) * each])
            for cpu in cpus:
                seen = top * ladder[core] * draw(st.floats(0.98, 1.02))
                values[-1].append(seen)
                files[f"{CPU}/cpu{cpu}/{source}"] = f"{seen:.0f}"
                files[f"{CPU}/cpu{cpu}/topology/core_cpus_list"] = cpu_list(cpus)
                if by_type == "midr":
                    files[f"{CPU}/cpu{cpu}/regs/identification/midr_el1"] = PARTS[kind]
            # One of two siblings may show nothing, as a CPU does that was off.
            if each == 2 and draw(st.booleans()):
                files[f"{CPU}/cpu{cpus[1]}/{source}"] = draw(st.sampled_from(["0", ""]))
        if by_type == "pmu":
            files[f"sys/devices/{('cpu_core', 'cpu_atom')[kind]}/cpus"] = cpu_list(own)
        truth.append(sorted(own))
        top *= ladder[-1] * draw(st.floats(0.3, 0.72 if by_type == "" else 0.74))
    # CPUs that are off still have folders, and a source that is the same for all says nothing.
    off = len(numbers)
    files[f"{CPU}/cpu{off}/{source}"] = f"{SOURCES[source] * 3}"
    alike = draw(st.sampled_from([each for each in SOURCES if each != source]))
    files |= {f"{CPU}/cpu{cpu}/{alike}": "255" for cpu in numbers}
    isolated = draw(st.sets(st.sampled_from(numbers)))
    if any(set(own) <= isolated for own in truth):
        isolated = set()
    files[f"{CPU}/isolated"] = cpu_list([*isolated, off]) if isolated else ""
    planned = [[cpu for cpu in own if cpu not in isolated] for own in truth]
    speeds = [
        (100 * min(own) / max(values[0]) - 1, 100 * max(own) / min(values[0]) + 1) for own in values
    ]
    return Made(files, planned, speeds)


@given(hosts())
@settings(max_examples=150, deadline=None)
def test_kinds_of_generated_hosts_are_found(made: Made) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = cores(None, None, None, made.at(Path(folder)))
    assert [sorted(each.cpus) for each in found.classes if each.cpus] == made.truth
    assert found.supposed is (len(made.truth) == 1)
    if not found.supposed:
        for own, (low, high) in zip(found.classes, made.speeds, strict=True):
            assert low <= own.speed_percent <= high
    assert sorted(found.node) == sorted(itertools.chain(*made.truth))


FAVOURED = {
    cpu: 1024 if cpu in range(8, 12) else 971 if cpu < 16 else 617 for cpu in range(32)
}  # fmt: skip


@given(st.lists(st.floats(-0.03, 0.03), min_size=32, max_size=32))
@example([0.0] * 32)
@settings(max_examples=30, deadline=None)
def test_capacities_that_wander_between_readings(noise: list[float]) -> None:
    """A hybrid processor with favoured cores: CPUs 0 to 15 are fast."""
    shown = {
        f"{CPU}/cpu{cpu}/cpu_capacity": f"{size * (1 + own):.0f}"
        for (cpu, size), own in zip(FAVOURED.items(), noise, strict=True)
    }
    with tempfile.TemporaryDirectory() as folder:
        root = Made({f"{CPU}/online": "0-31", **shown}, [], []).at(Path(folder))
        found = cores(None, None, None, root)
    assert [cpu_list(each.cpus) for each in found.classes] == ["0-15", "16-31"]


@pytest.mark.parametrize(
    ("vcpus", "to"), [(8, "0-15"), (9, "0-15"), (11, "0-31")], ids=["eight", "nine", "eleven"]
)
def test_busy_vcpus_are_not_squeezed_onto_favoured_cores(
    vcpus: int, to: str, tmp_path: Path
) -> None:
    """Eight fast cores of two hardware threads, two of them favoured; sixteen slow ones."""
    shown = {f"{CPU}/cpu{cpu}/cpu_capacity": str(size) for cpu, size in FAVOURED.items()}
    shown |= {
        f"{CPU}/cpu{cpu}/topology/core_cpus_list": f"{cpu & ~1}-{cpu | 1}" for cpu in range(16)
    }
    root = Made({f"{CPU}/online": "0-31", **shown}, [], []).at(tmp_path)
    vcpu = next(each for each in threads("kvm_vhost") if each.role == "vcpu")
    every = tuple(range(32))
    guests = tuple(replace(vcpu, tid=n + 1, cpu=0.98, cpus=every) for n in range(vcpus))
    found = advice(guests, cores(None, None, None, root))
    assert {cpu_list(each.cpus) for each in found.threads} == {to}


def test_two_kinds_by_what_amd_states_and_nothing_else(tmp_path: Path) -> None:
    stated = {
        f"{CPU}/cpu{cpu}/acpi_cppc/highest_perf": "236" if cpu < 8 else "176" for cpu in range(24)
    }
    found = cores(None, None, None, Made({f"{CPU}/online": "0-23", **stated}, [], []).at(tmp_path))
    assert [cpu_list(each.cpus) for each in found.classes] == ["0-7", "8-23"]
    assert found.source == "by acpi_cppc/highest_perf" and not found.supposed


def test_what_a_host_shows_may_be_anything(tmp_path: Path) -> None:
    """Damaged files count as missing; the lists of a user are checked."""
    odd = {f"{CPU}/cpu{cpu}/cpu_capacity": text for cpu, text in enumerate(("-1", "9" * 40, "x"))}
    odd |= {"sys/devices/cpu_core/cpus": "0-", "sys/devices/cpu_atom/cpus": "\x00"}
    root = Made({f"{CPU}/online": "0-2", f"{CPU}/isolated": "?", **odd}, [], []).at(tmp_path)
    assert cores(None, None, None, root).supposed
    with pytest.raises(MisuseError, match="--fast"):
        kinds(root, fast="--root=/")
