"""Emulated CPUs that are slowed while they run: loops against the speed that was asked for."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest

from command_line import one_line, vtax
from tested_machines import checked
from vtax.core import binaries
from vtax.core.errors import MisuseError, VtaxError
from vtax.environments import build
from vtax.environments.emulated_host import plugins
from vtax.environments.lab import program
from vtax.environments.qemu_program import Emulator
from vtax.environments.unpacked_qemu import QemuProgram

ROUNDS = 13
THIRD = 2
"""The median of 13 lies between the third lowest and the third highest with 97.8 % confidence
(order statistics of the binomial distribution)."""


def test_the_plugin_and_its_folder_are_in_the_box(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "plugin.so"
    monkeypatch.setattr(plugins.binaries, "find", lambda _: plugin)
    monkeypatch.setattr(program, "find", lambda: QemuProgram(Path("/usr/bin/qemu"), "7.2.22"))
    inside = Path("/run/vtax/libvtax_slow.so")
    emulator = program.boxed(None, slow_cores=True)
    assert emulator.read_only == {plugin: inside}
    assert emulator.options == ["-plugin", f"file={inside},speeds=/run/vtax/work/speeds"]
    both = program.boxed("zen4", slow_cores=True)
    assert [word for word in both.options if word == "-plugin"] == ["-plugin"] * 2


def test_what_cannot_be_slowed_is_refused() -> None:
    with pytest.raises(MisuseError, match="slow-cores= needs a thread for each CPU"):
        build("lab:slow-cores=on,icount=0")
    with pytest.raises(VtaxError, match=r"QEMU 9\.2\.1 loads no plugin of version 1"):
        plugins.slowable(Emulator(), "9.2.1")


def test_no_other_host_has_the_back_end() -> None:
    line = [str(binaries.find("vtax-host")), "place", "backends", "--json"]
    done = subprocess.run(line, capture_output=True, check=True, text=True)
    found = {each["name"]: each for each in json.loads(done.stdout)["backends"]}
    assert found["emulator"]["reason"] == "this is no host that vtax emulates with `slow-cores`"
    refused = vtax("place", "measure", "--backend", "emulator", "--load", "dgemm")
    assert "--backend emulator: not possible here" in one_line(refused, 1)


@pytest.fixture(scope="module")
def loops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc to make the loops")
    built = tmp_path_factory.mktemp("loops") / "slow_core"
    source = Path(__file__).with_name("slow_core.c")
    subprocess.run(["gcc", "-O2", "-static", "-o", built, source], check=True)
    return built


@pytest.mark.slow
@pytest.mark.long
def test_loops_are_as_slow_as_was_asked_and_other_cpus_are_not(loops: Path) -> None:
    checked("lab")
    slowed = f"{plugins.SPEEDS}/cpu0"
    script = f"{loops} 0 {slowed} {ROUNDS} 75 50 25; echo; {loops} 1 {slowed} {ROUNDS} 25"
    done = vtax("lab", "--smp", "2", "--mem", "2G", "--slow-cores", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    own, other = map(_ratios, done.stdout.split("\n\n"))
    assert len(own) == 9 and len(other) == 3
    for (loop, asked), found in own.items():
        _is_near(found, float(asked), f"{loop} at {asked}")
    for (loop, _), found in other.items():
        _is_near(found, 100.0, f"{loop} on the other CPU")


def _ratios(lines: str) -> dict[tuple[str, str], list[float]]:
    found = defaultdict(list)
    for loop, speed, ratio in map(str.split, lines.splitlines()):
        found[loop, speed].append(float(ratio))
    return found


def _is_near(found: list[float], asked: float, what: str) -> None:
    """The median is within 3 % of what was asked, as far as can be told on a busy machine, and
    within 6 % at any rate."""
    ordered = sorted(found)
    low, middle, high = ordered[THIRD], median(ordered), ordered[-1 - THIRD]
    said = f"{what}: {middle:.2f} [{low:.2f}, {high:.2f}]"
    print(said)
    assert len(found) == ROUNDS
    assert low <= 1.03 * asked and high >= 0.97 * asked, said
    assert abs(middle - asked) <= 0.06 * asked, said
