"""The build backend: maturin, plus the compiled programs that the package carries.

vtax ships three artifacts in `vtax/_bin/`: the agent (static, it is pushed into guests), the
DGEMM driver (dynamic, it loads the BLAS the system resolves) and the preload shim of user-mode
Linux. maturin packs one crate per wheel, either programs or an extension module, so cargo builds
the three here first and maturin includes them as package data. That way they are found beside
the Python code in every kind of install, editable ones too, whatever the crate maturin builds.

Run as a script it only does the cargo part: `make setup` calls it to follow changes of the Rust
code without reinstalling.

The command `vtax` is declared here too: maturin refuses [project.scripts] beside a program, but
takes finished metadata over from `prepare_metadata_for_build_wheel`, as PEP 517 asks. When it
builds an extension module one day, the line moves to pyproject.toml.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / "python" / "vtax" / "_bin"
ENTRY_POINTS = "[console_scripts]\nvtax=vtax.cli.main:main\n"


class Artifact(NamedTuple):
    file: str
    crate: str
    selection: tuple[str, ...]
    rustc_args: tuple[str, ...] = ()


ARTIFACTS = (
    # Static: no library of a guest or of a compute node is needed. The same arguments as in
    # pyproject.toml, so that maturin's own call finds the program already built.
    Artifact(
        "vtax-agent",
        "vtax-agent",
        ("--bin", "vtax-agent"),
        ("-C", "target-feature=+crt-static"),
    ),
    Artifact("vtax-dgemm", "vtax-dgemm", ("--bin", "vtax-dgemm")),
    Artifact("libvtax_umlfix.so", "vtax-umlfix", ("--lib",)),
)


def require_cargo() -> None:
    """End with one line when there is no cargo (maturin would fetch a toolchain by itself)."""
    if shutil.which("cargo") is None:
        sys.exit("vtax: cargo is missing: the Rust parts cannot be built; install Rust with rustup")


def compile_artifact(artifact: Artifact) -> Path:
    """Build one artifact with cargo and return where cargo put it."""
    command = ["cargo", "rustc", "--release", "--locked", "--quiet"]
    command += ["--manifest-path", str(ROOT / "crates" / artifact.crate / "Cargo.toml")]
    command += ["--message-format", "json-render-diagnostics", *artifact.selection]
    command += ["--", *artifact.rustc_args]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"vtax: cargo could not build {artifact.file}; its messages are above")
    for line in done.stdout.splitlines():
        message = json.loads(line)
        for name in message.get("filenames", ()):
            if Path(name).name == artifact.file:
                return Path(name)
    sys.exit(f"vtax: cargo built {artifact.crate} but no {artifact.file} came out of it")


def place(built: Path, target: Path) -> None:
    """Copy by rename, so that a running program is never overwritten, and only when it changed."""
    if target.is_file() and target.read_bytes() == built.read_bytes():
        return
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copy2(built, fresh)
    fresh.replace(target)


def build_programs() -> None:
    """Bring `vtax/_bin` up to date."""
    require_cargo()
    BIN.mkdir(exist_ok=True)
    for artifact in ARTIFACTS:
        place(compile_artifact(artifact), BIN / artifact.file)


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
    name = str(_maturin().prepare_metadata_for_build_wheel(directory, config_settings))
    Path(directory, name, "entry_points.txt").write_text(ENTRY_POINTS)
    return name


def _build(hook: str, directory: str, config_settings: Any, metadata: str | None) -> str:
    build_programs()
    with tempfile.TemporaryDirectory() as temporary:
        if metadata is None:  # the frontend did not ask for it first; it need not
            prepare_metadata_for_build_wheel(temporary, config_settings)
        build = getattr(_maturin(), hook)
        return str(build(directory, config_settings, metadata or temporary))


def build_wheel(directory: str, config_settings: Any = None, metadata: str | None = None) -> str:
    return _build("build_wheel", directory, config_settings, metadata)


def build_editable(directory: str, config_settings: Any = None, metadata: str | None = None) -> str:
    return _build("build_editable", directory, config_settings, metadata)


get_requires_for_build_editable = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel

if __name__ == "__main__":
    build_programs()
