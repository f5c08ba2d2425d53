"""Installing vtax: the wheel carries the programs, and one line says what is missing."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from command_line import ROOT
from vtax.verbs import app

PROGRAMS = (
    "vtax-agent", "vtax-host", "vtax-dgemm", "vtax-mpi-clock",
    "libvtaxblas.so", "libvtax_umlfix.so", "libvtax_trace.so", "libvtax_nested.so",
    "libvtax_slow.so",
)  # fmt: skip
SETUP = ROOT / "packaging/setup.sh"
BUILDING = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def tool(folder: Path, name: str, script: str) -> None:
    """Make a program of that name that only does what `script` says."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout with a space in its path, and a PATH with nothing but the basic tools."""
    checkout = tmp_path / "a checkout"
    (checkout / "packaging").mkdir(parents=True)
    shutil.copy(SETUP, checkout / "packaging")
    (checkout / "Cargo.toml").write_text('[workspace.package]\nrust-version = "1.85"\n')
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "sed", "head", "cut", "sort", "mkdir", "flock", "tail"):
        found = shutil.which(name)
        assert found, name
        (tools / name).symlink_to(found)
    return checkout


def run_setup(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    tools = checkout.parent / "tools"
    return subprocess.run(
        [str(tools / "bash"), "packaging/setup.sh"],
        cwd=checkout,
        env={"PATH": str(tools), "HOME": str(checkout), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def run_without_cargo(bare: Path, candidate: str) -> subprocess.CompletedProcess[str]:
    """Run setup as root without cargo, where apt has this version of cargo-web."""
    tools = bare.parent / "tools"
    with_apt(tools, user=0)
    (tools / "cargo").unlink()
    tool(tools, "apt-cache", f'echo "  Candidate: {candidate}"')
    return run_setup(bare)


def test_what_is_missing_is_named_at_once_and_debians_newer_cargo_installed(bare: Path) -> None:
    done = run_without_cargo(bare, "1.96.0+dfsg1-1~deb12u2")
    calls = (bare / "apt-calls").read_text().splitlines()
    assert calls[1].endswith("install --no-install-recommends cargo-web hpcc")
    assert "cargo is missing" in done.stderr


def test_an_older_cargo_web_is_not_installed(bare: Path) -> None:
    done = run_without_cargo(bare, "1.84.0")
    assert (bare / "apt-calls").read_text().splitlines()[1].endswith(" hpcc")
    assert "no such package" in done.stdout and "cargo is missing" in done.stderr


def test_debians_newer_cargo_is_offered_before_rustup(bare: Path) -> None:
    tools = bare.parent / "tools"
    with_apt(tools, user=0)
    tool(tools, "cargo", "echo cargo 1.63.0")
    tool(tools, "apt-cache", 'echo "  Candidate: 1.96.0"')
    done = run_setup(bare)
    assert re.search(r"1.63.0 is too old.*apt-get install cargo-web.*rustup", done.stderr)
    assert not (bare / "apt-calls").exists()


def test_each_system_package_has_a_level() -> None:
    listed = re.search(r"^packages='(.*?)'$", SETUP.read_text(), re.M | re.S)
    assert listed
    for line in listed[1].splitlines():
        fields = [field.strip() for field in line.split("|")]
        assert len(fields) == 4 and fields[3] in {"demo", "use", "test"}, line


def test_missing_python_is_one_line(bare: Path) -> None:
    done = run_setup(bare)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "Python 3.11 or newer is missing" in done.stderr


def test_an_old_python_is_as_good_as_none(bare: Path) -> None:
    tool(bare.parent / "tools", "python3", "exit 1")
    assert "Python 3.11 or newer is missing" in run_setup(bare).stderr


def test_missing_cargo_is_one_line(bare: Path) -> None:
    tool(bare.parent / "tools", "python3", "exit 0")
    done = run_setup(bare)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cargo is missing: install Rust 1.85 or newer with rustup" in done.stderr


def test_an_old_cargo_is_one_line(bare: Path) -> None:
    tools = bare.parent / "tools"
    tool(tools, "python3", "exit 0")
    tool(tools, "cargo", "echo cargo 1.63.0 'old'")
    done = run_setup(bare)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cargo 1.63.0 is too old: vtax needs Rust 1.85" in done.stderr


def with_apt(tools: Path, *, user: int, fails: bool = False, build_tools: bool = True) -> None:
    """Imitate a Debian on which everything but hpcc (and gcc) is installed; setup ends before .venv
    is made."""
    for name in ("grep", "tr", "cat", "sha256sum"):
        (tools / name).symlink_to(str(shutil.which(name)))
    for name in ("awk", "env"):
        (tools / name).symlink_to(str(shutil.which(name)))
    tool(tools, "python3", 'case "$*" in *venv*) exit 7;; esac')
    tool(tools, "cargo", "echo cargo 1.95.0")
    tool(tools, "id", f"echo {user}")
    present = "hpcc|cargo-web) ;; *) printf installed"
    if not build_tools:
        present = f"gcc|{present}"
    tool(tools, "dpkg-query", f'for last; do :; done; case "$last" in {present};; esac')
    tool(tools, "apt-cache", 'echo "  Candidate: 1.0"')
    tool(tools, "apt-get", f'echo "$@" >> apt-calls; exit {100 if fails else 0}')


def test_apt_installs_only_what_is_missing_and_says_why(bare: Path) -> None:
    with_apt(bare.parent / "tools", user=0)
    done = run_setup(bare)
    assert re.search(r"hpcc +to measure: HPC Challenge", done.stdout)
    assert "gcc" not in done.stdout
    calls = (bare / "apt-calls").read_text().splitlines()
    assert "update" in calls[0]
    assert calls[1].endswith("install --no-install-recommends hpcc")


def test_a_user_without_sudo_is_told_what_is_lost_and_goes_on(bare: Path) -> None:
    with_apt(bare.parent / "tools", user=1000)
    done = run_setup(bare)
    assert "not root and there is no sudo" in done.stdout
    assert re.search(r"hpcc +without it: no workload hpcc", done.stdout)
    assert "making .venv" in done.stdout
    assert not (bare / "apt-calls").exists()
    assert "going on without hpcc" in run_setup(bare).stdout


def test_sudo_is_used_for_apt_alone(bare: Path) -> None:
    tools = bare.parent / "tools"
    with_apt(tools, user=1000)
    tool(tools, "sudo", 'printf "%s\\n" "$*" >> sudo-calls; [ "$1" != -n ] || shift; exec "$@"')
    run_setup(bare)
    calls = (bare / "sudo-calls").read_text().splitlines()
    assert len(calls) == 2
    assert all("apt-get" in call for call in calls)


def test_a_failed_install_of_what_the_build_needs_ends_setup(bare: Path) -> None:
    with_apt(bare.parent / "tools", user=0, fails=True, build_tools=False)
    done = run_setup(bare)
    assert done.returncode == 1
    assert "a package that the build needs is missing" in done.stderr
    assert "making .venv" not in done.stdout


def test_a_second_setup_waits_for_the_first(bare: Path) -> None:
    with_apt(bare.parent / "tools", user=1000)
    lock = bare / "target/setup/lock"
    lock.parent.mkdir(parents=True)
    hold = ["flock", str(lock), "sh", "-c", "echo locked; sleep 1"]
    with subprocess.Popen(hold, stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        holder.stdout.readline()
        assert "another setup is running; waiting for it" in run_setup(bare).stdout


def backend() -> ModuleType:
    """The build backend, which is not part of the package."""
    sys.path.insert(0, str(ROOT / "packaging"))
    try:
        return importlib.import_module("vtax_build")
    finally:
        sys.path.pop(0)


def test_maturin_and_the_backend_build_the_extension_alike() -> None:
    vtax_build = backend()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]
    extension = vtax_build.EXTENSION
    assert settings["manifest-path"] == f"crates/{extension.crate}/Cargo.toml"
    assert settings["profile"] == extension.profile
    module = vtax_build.EXTENSION_FILE.relative_to(ROOT / "python")
    assert settings["module-name"].split(".") == [*module.parent.parts, module.name.split(".")[0]]
    assert tuple(item.file for item in vtax_build.ARTIFACTS) == PROGRAMS


def test_a_panic_of_the_extension_does_not_end_python() -> None:
    profiles = tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"]
    assert profiles[backend().EXTENSION.profile] == {"inherits": "release", "panic": "unwind"}


def test_what_is_in_use_is_replaced_and_never_overwritten(tmp_path: Path) -> None:
    built, target = tmp_path / "built", tmp_path / "target"
    built.write_text("new")
    target.write_text("old")
    with target.open() as in_use:
        backend().place(built, target)
        assert (in_use.read(), target.read_text()) == ("old", "new")
    assert sorted(tmp_path.iterdir()) == [built, target]
    unchanged = target.stat()
    backend().place(built, target)
    assert target.stat().st_ino == unchanged.st_ino


def test_a_part_that_cannot_be_built_keeps_no_other_from_being_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    build = backend()

    def compiled(artifact: Any) -> Path:
        if artifact.file in refused:
            raise build.NotBuilt(f"no {artifact.file}")
        built = tmp_path / artifact.file
        built.write_text(artifact.file)
        return built

    placed = tmp_path / "bin"
    monkeypatch.setattr(build, "BIN", placed)
    monkeypatch.setattr(build, "EXTENSION_FILE", placed / build.EXTENSION_FILE.name)
    monkeypatch.setattr(build, "compile_artifact", compiled)
    refused = {"vtax-host", "lib_native.so"}
    build.build_checkout()
    last = build.EXTENSION_FILE.name
    assert {each.name for each in placed.iterdir()} == {*PROGRAMS, last} - {*refused, last}
    said = capsys.readouterr().err
    assert re.search(r"vtax-host +without it: no vtax explain", said)
    assert re.search(r"lib_native.so +without it: no vtax paging", said)
    refused = {"vtax-agent"}
    with pytest.raises(build.NotBuilt, match="vtax-agent"):
        build.build_checkout()


def test_the_backend_without_cargo_is_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "packaging/vtax_build.py")],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cargo is missing" in done.stderr


def build(hook: str, directory: Path, environment: Mapping[str, str]) -> None:
    """Do the frontend's part of building; pip itself has no command for an sdist."""
    script = "import sys; sys.path.insert(0, 'packaging'); import vtax_build;"
    python(environment, "-c", f"{script} vtax_build.{hook}({str(directory)!r})")


def python(environment: Mapping[str, str], *arguments: str) -> str:
    """Run a Python program that must succeed, and return what it prints."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("maturin", reason="maturin is not installed: run 'make setup'")
    folder = tmp_path_factory.mktemp("sdist")
    build("build_sdist", folder, BUILDING)
    (found,) = folder.glob("*.tar.gz")
    return found


def test_the_sdist_has_all_that_a_build_takes(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        archive.extractall(tmp_path)
    assert not [name for name in names if "/target/" in name or "__pycache__" in name]
    assert not [name for name in names if "/_bin/" in name or name.endswith(".so")]
    tracked = subprocess.run(
        ["git", "ls-files", "Cargo.*", "LICENSE-*", "README.md", "crates", "packaging",
         "pyproject.toml", "python"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if tracked.returncode == 0:
        assert set(tracked.stdout.splitlines()) <= names
    # Every crate is there, with what it builds and what it depends on.
    (unpacked,) = tmp_path.iterdir()
    command = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1", "--no-deps"]
    found = subprocess.run(command, cwd=unpacked, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    crates = json.loads(found.stdout)["packages"]
    assert {crate["name"] for crate in crates} == {
        f"vtax-{path.name}" for path in ROOT.glob("crates/*")
    }
    assert all(Path(each["src_path"]).is_file() for crate in crates for each in crate["targets"])


def test_the_studies_are_of_this_version() -> None:
    own, studies = (
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        for folder in (ROOT, ROOT / "studies")
    )
    assert studies["version"] == own["version"]
    assert studies["dependencies"] == [f"{own['name']}=={own['version']}"]


@pytest.mark.slow
@pytest.mark.long
def test_the_sdist_builds_a_wheel_that_works_elsewhere(sdist: Path, tmp_path: Path) -> None:
    environment = {
        **BUILDING,
        # Files of an sdist have an old date: in the usual folder cargo would take what it compiled
        # from older sources for up to date. The test is about packing, not about speed.
        "CARGO_TARGET_DIR": str(tmp_path / "target"),
        "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0",
        "CARGO_PROFILE_RELEASE_LTO": "off",
        "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    }
    pip = ("-m", "pip", "--disable-pip-version-check", "--quiet")
    options = ("--no-deps", "--no-build-isolation", "--no-index")
    python(environment, *pip, "wheel", *options, "--wheel-dir", str(tmp_path), str(sdist))
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive_:
        members = archive_.namelist()
        entry = next(name for name in members if name.endswith("/entry_points.txt"))
        assert "vtax=vtax.main:main" in archive_.read(entry).decode()
    assert {f"vtax/_bin/{name}" for name in PROGRAMS} <= set(members)
    # There is one extension, for the stable ABI: a wheel built with one Python serves later ones.
    extensions = [name for name in members if name.endswith(".so") and "/_bin/" not in name]
    assert extensions == ["vtax/_native.abi3.so"]
    assert "-abi3-" in wheel.name
    sources = {str(path.relative_to(ROOT / "python")) for path in ROOT.glob("python/vtax/**/*.py")}
    assert sources | {"vtax/_native.pyi", "vtax/py.typed"} <= set(members)

    home = tmp_path / "elsewhere"
    python(environment, *pip, "install", *options, "--target", str(home), str(wheel))
    environment["PYTHONPATH"] = str(home)
    found = python(
        environment, "-P", "-c", "from vtax import binaries; print(binaries.find('vtax-agent'))"
    )
    agent = Path(found.strip())
    assert agent == home / "vtax/_bin/vtax-agent"
    assert subprocess.run([agent, "--version"], check=False).returncode == 0
    # The build asks for no interpreter: the program is static and runs in a guest without
    # libraries.
    assert b"ld-linux" not in agent.read_bytes()[:4096]
    # The command of that name is replaced by the agent.
    called = python(
        environment,
        "-P",
        "-c",
        "from vtax.core.binaries import run_agent; run_agent()",
        "--version",
    )
    assert called.startswith("vtax-agent ")
    version = "import vtax, vtax._native; print(vtax.__version__ == vtax._native.version())"
    assert python(environment, "-P", "-c", version) == "True\n"


def test_fresh_machines_run_each_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    """The script also installs beforehand what README says must be there."""
    monkeypatch.syspath_prepend(str(ROOT / "packaging"))
    fresh = importlib.import_module("fresh")

    def verbs(command: Any, name: str = "") -> Iterator[str]:
        if not hasattr(command, "commands"):
            yield name
            return
        for word, each in command.commands.items():
            yield from verbs(each, f"{name} {word}".strip())

    known = set(verbs(typer.main.get_command(app)))
    run = {
        name
        for name in known
        for line in fresh.VERBS
        if line == name or line.startswith(f"{name} ")
    }
    assert run == known
    readme = (ROOT / "README.md").read_text()
    assert all(f"    {command} " in readme for command in fresh.README_COMMANDS)
    said = re.search(r"Both work on .* with (.*); \[", readme)
    assert said and set(re.findall("`(.*?)`", said[1])) == set(fresh.BEFOREHAND)
