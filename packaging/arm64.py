"""Builds for arm64 on a machine of another architecture: the programs that are pushed, or a wheel.

`make arm64`, `make test` and `make wheels` run it. Rust's standard library for arm64 comes from
rustup; the C compiler and the libraries that it links come as packages of Debian,
unpacked into the cache, and so does the kernel of the environment qemu-arm64. Nothing is installed
but rustup's target. Where the toolchain or the kernel cannot be fetched, one line says so.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import vtax_build

sys.path.insert(0, str(vtax_build.ROOT / "python"))

from vtax.core.binaries import ARM64
from vtax.core.errors import VtaxError
from vtax.environments import packages, qemu_arm64

TARGET = "aarch64-unknown-linux-gnu"
PROGRAMS = ("vtax-agent", "vtax-host")
TEST_PROGRAMS = (
    vtax_build.Artifact(
        "hold_counters",
        "sys",
        ("--example", "hold_counters"),
        ("-C", "target-feature=+crt-static"),
    ),
)
"""Programs that stay in cargo's folder, where the tests look for them: no package may contain
them."""
LIBRARIES = ("libelf-dev:arm64", "zlib1g-dev:arm64")
COMPILER = (("gcc-aarch64-linux-gnu",), ("libc6-dev-arm64-cross",))
RUSTUP_TIMEOUT_S = 300


def rust_target() -> None:
    """Install Rust's standard library for arm64. Raises VtaxError when that fails."""
    found = subprocess.run(
        ["rustc", "--print", "target-libdir", "--target", TARGET],
        cwd=vtax_build.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode == 0 and any(Path(found.stdout.strip()).glob("libstd-*.rlib")):
        return
    if shutil.which("rustup") is None:
        raise VtaxError(f"Rust has no target {TARGET}, and there is no rustup to add it")
    try:
        done = subprocess.run(
            ["rustup", "target", "add", TARGET], cwd=vtax_build.ROOT, capture_output=True,
            text=True, timeout=RUSTUP_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise VtaxError(f"rustup took more than {RUSTUP_TIMEOUT_S} s for {TARGET}") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise VtaxError(f"rustup cannot add the target {TARGET}: {reason}")


def toolchain(root: Path) -> Mapping[str, str]:
    """The variables that make cargo compile C, and link, with what is unpacked in `root`."""
    library, own = root / "usr/lib/aarch64-linux-gnu", f"{platform.machine()}-linux-gnu"
    headers = (root / "usr/include", root / "usr/include/aarch64-linux-gnu")
    name = TARGET.replace("-", "_")
    return {
        "PATH": f"{root / 'usr/bin'}:{os.environ['PATH']}",
        # The assembler's own libraries; this folder has no others.
        "LD_LIBRARY_PATH": str(root / "usr/lib" / own),
        f"CC_{name}": "aarch64-linux-gnu-gcc",
        f"AR_{name}": "aarch64-linux-gnu-ar",
        f"CFLAGS_{name}": " ".join(f"-I{each}" for each in headers),
        f"CARGO_TARGET_{name.upper()}_LINKER": "aarch64-linux-gnu-gcc",
        # The C library's linker script has paths from the root of the file system.
        f"CARGO_TARGET_{name.upper()}_RUSTFLAGS": f"-C link-arg=--sysroot={root}",
        "LIBBPF_SYS_LIBRARY_PATH": str(library),
    }


QUICK = {
    # The recorder takes minutes otherwise, for no gain in an emulated machine.
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
}


def build(*, for_tests: bool = False) -> None:
    """Bring the programs for arm64 in `vtax/_bin/aarch64` up to date, and those that tests use.

    Raises VtaxError when the toolchain cannot be fetched.
    """
    variables = {**require_toolchain(), **QUICK}
    artifacts = [each for each in vtax_build.ARTIFACTS if each.file in PROGRAMS]
    compile_into(vtax_build.BIN / ARM64, artifacts, variables)
    for artifact in TEST_PROGRAMS if for_tests else ():
        vtax_build.compile_artifact(artifact, TARGET, variables)


def require_toolchain() -> Mapping[str, str]:
    """The variables of `toolchain`, after fetching what they name. Raises VtaxError."""
    vtax_build.require_cargo()
    rust_target()
    return toolchain(packages.fetch(packages.ARM64, "toolchain", LIBRARIES, COMPILER))


def compile_into(
    folder: Path, artifacts: Sequence[vtax_build.Artifact], variables: Mapping[str, str]
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for artifact in artifacts:
        built = vtax_build.compile_artifact(artifact, TARGET, variables)
        vtax_build.place(built, folder / artifact.file)


def wheel(directory: Path, extra: Mapping[str, str] = MappingProxyType({})) -> Path:
    """Make the wheel for arm64 in `directory`, with further variables for cargo; return its path.

    Raises VtaxError when the toolchain cannot be fetched or maturin fails.
    """
    variables = {**require_toolchain(), **extra}
    with tempfile.TemporaryDirectory(prefix="vtax-wheel-") as scratch:
        # maturin packs the programs that lie in the source tree; this machine's do in that one.
        tree = Path(scratch)
        _copy_sources(tree)
        artifacts = [each for each in vtax_build.ARTIFACTS if ARM64 in each.machines]
        compile_into(tree / vtax_build.BIN.relative_to(vtax_build.ROOT), artifacts, variables)
        line = [sys.executable, "-m", "maturin", "build", "--quiet", "--locked"]
        line += ["--profile", vtax_build.EXTENSION.profile, "--target", TARGET]
        # The tag says Linux, as that of a wheel from pip does: its libraries were not looked at.
        line += ["--auditwheel", "skip", "--out", str(directory)]
        own = {"CARGO_TARGET_DIR": str(vtax_build.target_folder()), "PYO3_NO_PYTHON": "1"}
        environment = {**os.environ, **variables, **own}
        if subprocess.run(line, cwd=tree, env=environment, check=False).returncode != 0:
            raise VtaxError("maturin could not make the wheel; its messages are above")
    (made,) = directory.glob(f"*{ARM64}.whl")
    return made


def _copy_sources(tree: Path) -> None:
    for name in ("Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md"):
        shutil.copy2(vtax_build.ROOT / name, tree)
    for path in vtax_build.ROOT.glob("LICENSE-*"):
        shutil.copy2(path, tree)
    (tree / "crates").symlink_to(vtax_build.ROOT / "crates")
    for name in (".cargo", "packaging", "python"):
        compiled = shutil.ignore_patterns("_bin", "*.so", "__pycache__")
        shutil.copytree(vtax_build.ROOT / name, tree / name, ignore=compiled)


def main(arguments: Sequence[str]) -> None:
    """Build what the arguments ask for.

    No argument: the programs of the environment qemu-arm64; `tests`: the programs of its tests too;
    `wheel FOLDER`: a wheel. Raises VtaxError when the toolchain cannot be fetched.
    """
    if arguments[:1] == ["wheel"]:
        folder = Path(arguments[1])
        folder.mkdir(exist_ok=True)
        print(wheel(folder))
    else:
        build(for_tests="tests" in arguments)
        # Fetch it here and not at the first use, which may be without a network.
        qemu_arm64.boot_files()


if __name__ == "__main__":
    if platform.machine() == ARM64:
        sys.exit("vtax: this machine is arm64: its own programs are those of 'make setup'")
    try:
        main(sys.argv[1:])
    except VtaxError as error:
        sys.exit(f"vtax: no programs for arm64: {error}")
