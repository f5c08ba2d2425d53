"""The build backend: maturin, plus the compiled programs that the package carries.

vtax ships eight programs and libraries in `vtax/_bin/`: the agent and the program for hosts
(static, they are pushed into guests and hosts of guests; the latter is dynamic where the system's
static libelf cannot be linked), the DGEMM driver and the reader of MPI's clock
(dynamic, they load the BLAS and the MPI that the system resolves), the BLAS of tuned kernels, the
preload shim of user-mode Linux and two plugins of QEMU. maturin packs one crate per wheel, and that
is the extension module `vtax._native`; so this file builds the eight with cargo first, and maturin
includes them as package data. That way they lie beside the Python code in every kind of install,
editable ones too.

An editable install is a wheel with nothing but the path of the Python code; its extension is
compiled as the programs are, beside that code.

Run as a script it only does the cargo part: `make` calls it to follow changes of the Rust code
without reinstalling, with the levels of packaging/setup.sh as arguments.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "vtax"
BIN = PACKAGE / "_bin"


class Artifact(NamedTuple):
    file: str
    crate: str
    selection: tuple[str, ...]
    rustc_args: tuple[str, ...] = ()
    profile: str = "release"
    environment: tuple[tuple[str, str], ...] = ()
    level: str = "use"
    """The first level of packaging/setup.sh that needs the program."""
    lost: str = ""
    """What vtax cannot do without the program; empty: nothing works."""
    libelf: bool = False
    """Whether it links libelf, dynamically where the system's static libelf cannot be linked."""
    own_target: str | None = None
    """A folder of its own in cargo's target folder, where sharing it would cost rebuilds."""
    machines: tuple[str, ...] = ("x86_64", "aarch64")
    """The architectures that the program is for."""


STATIC = ("-C", "target-feature=+crt-static")

ARTIFACTS = (
    # Static: no library of a guest or of a compute node is needed.
    Artifact(
        "vtax-agent",
        "agent",
        ("--bin", "vtax-agent"),
        STATIC,
        level="demo",
    ),
    # Static too: it is pushed into guests and hosts of guests. It is not a part of the agent, which
    # every guest has: libbpf, Parquet and the policies of the model are only for hosts.
    Artifact(
        "vtax-host",
        "host",
        ("--bin", "vtax-host"),
        STATIC,
        level="demo",
        lost="vtax explain, record, place, paging switch and control; studies vrtprof, explain "
        "and asymmetric-cores",
        libelf=True,
    ),
    Artifact(
        "vtax-dgemm",
        "workloads",
        ("--bin", "vtax-dgemm"),
        level="demo",
        lost="workload dgemm",
    ),
    Artifact(
        "vtax-mpi-clock",
        "workloads",
        ("--bin", "vtax-mpi-clock"),
        level="demo",
        lost="MPI's clock in vtax audit",
    ),
    # Only as a cdylib: beside an rlib it would not be optimised as a whole.
    Artifact("libvtaxblas.so", "blas", ("--lib", "--crate-type", "cdylib"), lost="vtax tune"),
    # User-mode Linux is for x86 only.
    Artifact(
        "libvtax_umlfix.so",
        "umlfix",
        ("--lib",),
        profile="shim",
        level="demo",
        lost="environment uml",
        machines=("x86_64",),
    ),
    # Its guests are x86, and an emulator of them on arm64 was not tried. It finds the interface in
    # the QEMU that loads it, so it is never linked statically.
    Artifact(
        "libvtax_trace.so",
        "trace",
        ("--lib",),
        lost="vtax paging trace",
        machines=("x86_64",),
    ),
    Artifact(
        "libvtax_nested.so",
        "nested",
        ("--lib",),
        lost="lab:model=",
        machines=("x86_64",),
    ),
    Artifact(
        "libvtax_slow.so",
        "slow",
        ("--lib",),
        lost="lab:slow-cores=",
        machines=("x86_64",),
    ),
)

# The stable ABI needs no interpreter to build against, and an extension module is not linked to
# libpython. maturin builds the same crate with other variables, which PyO3's build script watches:
# in one target folder the two would undo each other's work at every turn.
EXTENSION = Artifact(
    "lib_native.so",
    "python",
    ("--lib",),
    profile="extension",
    environment=(("PYO3_NO_PYTHON", "1"), ("PYO3_BUILD_EXTENSION_MODULE", "1")),
    lost="vtax paging",
    own_target="editable",
)
EXTENSION_FILE = PACKAGE / "_native.abi3.so"


def require_cargo() -> None:
    """End with one line when there is no cargo (maturin would fetch a toolchain by itself)."""
    if shutil.which("cargo") is None:
        sys.exit("vtax: cargo is missing: the Rust parts cannot be built; install Rust with rustup")


class NotBuilt(SystemExit):
    """A part could not be built; this ends the script unless the caller goes on without the
    part."""


def target_folder() -> Path:
    """The folder in which cargo puts what it makes."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def compile_artifact(
    artifact: Artifact,
    target: str | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Build one artifact with cargo and return where cargo put it.

    `target` is Rust's name of another architecture, whose toolchain `variables` name.
    """
    command = ["cargo", "rustc", "--profile", artifact.profile, "--locked", "--quiet"]
    command += ["--manifest-path", str(ROOT / "crates" / artifact.crate / "Cargo.toml")]
    command += ["--message-format", "json-render-diagnostics", *artifact.selection]
    if target is not None:
        command += ["--target", target]
    if artifact.own_target is not None:
        command += ["--target-dir", str(target_folder() / artifact.own_target)]
    # For another architecture the program is pushed, so a program that is not static is of no use.
    dynamic = artifact.libelf and target is None and not static_libelf()
    command += ["--", *(() if dynamic else artifact.rustc_args)]
    environment = {**os.environ, **dict(artifact.environment), **variables}
    built = None
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as cargo:
        for message in with_progress(artifact, map(json.loads, cargo.stdout or ())):
            names = map(Path, message.get("filenames", ()))
            built = next((name for name in names if name.name == artifact.file), built)
    if cargo.returncode != 0:
        raise NotBuilt(f"vtax: cargo could not build {artifact.file}; its messages are above")
    if built is None:
        raise NotBuilt(f"vtax: cargo built {artifact.crate} but no {artifact.file} came out of it")
    return built


def with_progress(artifact: Artifact, messages: Iterable[Any]) -> Iterator[Any]:
    """Pass on cargo's messages and show each crate that it compiled: a counter on a terminal."""
    compiled, terminal = 0, sys.stderr.isatty()
    for message in messages:
        if message["reason"] == "compiler-artifact" and not message["fresh"]:
            compiled += 1
            text = f"  {artifact.file}: {compiled} compiled, {message['target']['name']}"
            print(f"\r\x1b[K{text}" if terminal else text, end="" if terminal else "\n",
                  file=sys.stderr, flush=True)  # fmt: skip
        yield message
    if compiled and terminal:
        print(file=sys.stderr)


@functools.cache
def static_libelf() -> bool:
    """Whether the system's static libelf has all symbols that it refers to (Debian 13's lacks
    some)."""
    source = "int main(void) { return 0; }\n"
    whole = ("-static", "-Wl,--whole-archive", "-lelf", "-Wl,--no-whole-archive", "-lz")
    done = subprocess.run(
        ["cc", "-x", "c", "-", "-o", os.devnull, *whole],
        input=source, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode == 0


def place(built: Path, target: Path) -> None:
    """Copy by rename, so that a running program is never overwritten, and only if the file
    changed."""
    if target.is_file() and target.read_bytes() == built.read_bytes():
        return
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy2(built, fresh)
    fresh.replace(target)


def build_programs(levels: Collection[str] = ("demo", "use")) -> None:
    """Bring the programs of these levels in `vtax/_bin` up to date."""
    require_cargo()
    BIN.mkdir(exist_ok=True)
    for artifact in ARTIFACTS:
        if artifact.level in levels and platform.machine() in artifact.machines:
            place(compile_artifact(artifact), BIN / artifact.file)


def build_checkout(levels: Collection[str] = ("demo", "use")) -> None:
    """Bring the programs and the extension module of an editable install up to date.

    A part that cannot be built does not keep the others from being built; the end names it.
    """
    require_cargo()
    BIN.mkdir(exist_ok=True)
    parts = [(artifact, BIN / artifact.file) for artifact in ARTIFACTS]
    lost = []
    for artifact, target in [*parts, (EXTENSION, EXTENSION_FILE)]:
        if artifact.level not in levels or platform.machine() not in artifact.machines:
            continue
        try:
            place(compile_artifact(artifact), target)
        except NotBuilt as error:
            if not artifact.lost:
                raise
            print(error, file=sys.stderr)
            lost.append(f"  {artifact.file:22} without it: no {artifact.lost}")
    if lost:
        print("vtax: not built:", *lost, sep="\n", file=sys.stderr)


# The hooks of PEP 517 and PEP 660. maturin is imported late: as a script this file runs without it.


def _maturin() -> Any:
    require_cargo()
    import maturin

    return maturin


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    return list(_maturin().get_requires_for_build_wheel(config_settings))


def get_requires_for_build_sdist(config_settings: Any = None) -> list[str]:
    return list(_maturin().get_requires_for_build_sdist(config_settings))


def build_sdist(directory: str, config_settings: Any = None) -> str:
    return str(_maturin().build_sdist(directory, config_settings))


def prepare_metadata_for_build_wheel(directory: str, config_settings: Any = None) -> str:
    return str(_maturin().prepare_metadata_for_build_wheel(directory, config_settings))


def build_wheel(directory: str, config_settings: Any = None, metadata: str | None = None) -> str:
    build_programs()
    return str(_maturin().build_wheel(directory, config_settings, metadata))


def build_editable(directory: str, config_settings: Any = None, metadata: str | None = None) -> str:
    """The wheel of an editable install; `rust=later` leaves compiling to the caller."""
    if (config_settings or {}).get("rust") != "later":
        build_checkout()
    with tempfile.TemporaryDirectory() as scratch:
        info = str(_maturin().prepare_metadata_for_build_wheel(scratch))
        files = {
            str(path.relative_to(scratch)): path.read_bytes()
            for path in Path(scratch, info).rglob("*")
            if path.is_file()
        }
    files["vtax.pth"] = f"{PACKAGE.parent}\n".encode()
    record = f"{info}/RECORD"
    files[record] = "".join(f"{name},,\n" for name in [*files, record]).encode()
    tag = next(
        line.removeprefix(b"Tag: ").decode()
        for line in files[f"{info}/WHEEL"].splitlines()
        if line.startswith(b"Tag: ")
    )
    wheel = f"{info.removesuffix('.dist-info')}-{tag}.whl"
    with zipfile.ZipFile(Path(directory, wheel), "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return wheel


get_requires_for_build_editable = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel

if __name__ == "__main__":
    build_checkout(sys.argv[1:] or ("demo", "use"))
