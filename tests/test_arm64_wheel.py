"""The wheel for arm64, with all its dependencies, in the emulated arm64 machine."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from arm64_machine import Arm64, reuse_packages, started
from command_line import ROOT
from vtax.core import cache
from vtax.core.errors import VtaxError
from vtax.environments import qemu_arm64
from vtax.environments.initramfs import newc
from vtax.environments.packages import ARM64, fetch

pytestmark = pytest.mark.long

PYTHON = (
    "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libexpat1",
    "zlib1g", "libbz2-1.0", "liblzma5", "libcrypt1", "libffi8", "libsqlite3-0", "libssl3",
    "libgcc-s1", "libstdc++6",
)  # fmt: skip
"""Debian 12's Python, with the libraries that its standard library and the wheels need."""
PLATFORMS = ("linux", "manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
SITE = "site"
LEFT_OUT = ("plotly/package_data/datasets", "plotly/labextension")
SPEC = "qemu-arm64:icount=off,mem=4G"
PYTHON_TIMEOUT_S = 300.0
"""One command of vtax takes 10 to 70 s in the emulated machine."""
CALL = "import sys; sys.argv[0] = 'vtax'; from vtax.main import main; main()"
AARCH64 = b"\xb7\x00"
"""`e_machine` of ELF, at offset 18."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "packaging"))
        arm64 = importlib.import_module("arm64")
        try:
            made = arm64.wheel(tmp_path_factory.mktemp("wheel"), arm64.QUICK)
        except VtaxError as error:
            pytest.skip(str(error))
    assert isinstance(made, Path)
    return made


@pytest.fixture(scope="module")
def machine(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arm64]:
    """A machine whose first file system has Python, the wheel and the wheel's dependencies."""
    work = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(work.parent / "cache"))
        reuse_packages()
        try:
            kernel, initramfs = qemu_arm64.boot_files()
            names = [f"{name}:{ARM64.architecture}" for name in PYTHON]
            python = fetch(ARM64, "python", names)
        except VtaxError as error:
            pytest.skip(str(error))
        files = {**tree(python), **packages(wheel, work)}
        folders = {str(parent) for name in files for parent in Path(name).parents} - {"."}
        larger = cache.folder("arm64") / "with-python"
        larger.write_bytes(initramfs.read_bytes() + newc(files, tuple(sorted(folders))))
        patch.setattr(qemu_arm64, "boot_files", lambda: (kernel, larger))
        with started(SPEC, work, PYTHON_TIMEOUT_S) as found:
            yield found


def tree(folder: Path, below: str = "") -> dict[str, bytes]:
    """The files of a folder by their path; links are stored as what they name."""
    found = {}
    for path in folder.rglob("*"):
        target = path
        if path.is_symlink() and not path.exists():
            target = folder / str(path.readlink()).lstrip("/")
        if target.is_file():
            found[str(Path(below) / path.relative_to(folder))] = target.read_bytes()
    return found


def packages(wheel: Path, work: Path) -> dict[str, bytes]:
    """What the wheel and its dependencies install, or a skip."""
    line = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    line += ["--only-binary=:all:", "--python-version", "311", "--implementation", "cp"]
    for name in PLATFORMS:
        line += ["--platform", f"{name}_aarch64"]
    for name in ("cp311", "abi3", "none"):
        line += ["--abi", name]
    done = subprocess.run(
        [*line, "--dest", str(work / "wheels"), str(wheel)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        pytest.skip(f"the packages that vtax needs cannot be had: {done.stderr[-200:]}")
    for path in (work / "wheels").glob("*.whl"):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(work / SITE)
    found = tree(work / SITE, SITE)
    return {name: found[name] for name in found if not any(each in name for each in LEFT_OUT)}


def vtax(machine: Arm64, words: str) -> str:
    variables = f'export HOME=/root PYTHONPATH=/{SITE} PATH="$PATH:/usr/bin"'
    line = f'{variables}; cd; python3.11 -c "{CALL}" {words}'
    return machine.run("/bin/busybox", "sh", "-c", line)


def test_every_program_is_for_arm64(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if "/_bin/" in name or name.endswith(".so")]
        machines = {name: archive.read(name)[18:20] for name in names}
    assert {Path(name).name for name in names} == {
        "vtax-agent", "vtax-host", "vtax-dgemm",
        "vtax-mpi-clock", "_native.abi3.so",
    }  # fmt: skip
    assert set(machines.values()) == {AARCH64}, machines


def test_doctor_knows_the_machine(machine: Arm64) -> None:
    found = vtax(machine, "doctor")
    assert "hardware counters count" in found
    assert "user-mode Linux is for x86" in found


def test_a_comparison_and_an_audit(machine: Arm64) -> None:
    work = "vtax-agent workload gups --mem 1M --count 200000"
    found = vtax(machine, f"compare --in native --baseline none --reps 3 --with counts -- {work}")
    # The emulated PMU counts instructions only where the clock does too.
    assert {"wall_s", "cycles"} <= {line.split(" ")[0] for line in found.splitlines()}
    (card,) = json.loads(vtax(machine, "audit --in native --quick --json || true"))["environments"]
    checks = {check["name"]: check["verdict"] for check in card["checks"]}
    assert checks["clock-step"] == checks["clock-backward"] == "pass"


def test_a_recording_counts_cycles(machine: Arm64) -> None:
    assert "0 lost" in vtax(machine, "record --every 20ms --for 2s --events hw --out rec 2>&1")
    assert "hw.cycles" in vtax(machine, "timeline rec --event hw.cycles --json")


def test_the_model_runs(machine: Arm64) -> None:
    assert "Modelled, not measured" in vtax(machine, "paging simulate gcc --mode shadow")
