"""Whether a command line's program is there, with the reason when it is not."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from vtax.core import elf
from vtax.core.errors import VtaxError

EMULATORS = Path("/proc/sys/fs/binfmt_misc")
"""The folder in which the kernel lists the kinds of programs that it gives to an emulator."""
FIRST_LINE_BYTES = 256
"""The kernel looks at this much of a script (BINPRM_BUF_SIZE)."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_SHELL = re.compile("[|&;<>$`]")
_BUILT_IN = frozenset({"cd", "export", "source", ".", "ulimit", "umask", "eval", "set", "time"})


def require(
    program: str, path: str, folder: Path, remedy: str, arguments: Sequence[str] = ()
) -> Path:
    """The path of `program`, as named from `folder`; raises VtaxError when it cannot be started.

    A script whose interpreter is missing cannot be started. A name without a slash is looked up in
    `path`, the value of the variable PATH. `arguments` are those of its command line.
    """
    if obstacle := _obstacle(program, path, folder):
        reason, own = obstacle
        meant = own or _meant(program, path, arguments) or remedy
        raise VtaxError(f"program '{program}': {reason}", meant)
    return folder / (program if "/" in program else shutil.which(program, path=path) or program)


def _meant(program: str, path: str, arguments: Sequence[str]) -> str | None:
    """What the user should write for a word that is no program's name."""
    whole = shlex.join([program, *arguments])
    if _ASSIGNMENT.match(program):
        return f"write env {whole}"
    if program in _BUILT_IN:
        return f"write sh -c {shlex.quote(whole)}"
    words = program.split()
    if _SHELL.search(program) or (len(words) > 1 and shutil.which(words[0], path=path)):
        return f"write sh -c {shlex.quote(' '.join([program, *arguments]))}"
    return None


def _obstacle(program: str, path: str, folder: Path) -> tuple[str, str] | None:
    """The reason why a program cannot be started, and a remedy where one is known."""
    if "/" in program:
        return _why_not(folder / program, path)
    if which := shutil.which(program, path=path):
        return _why_not(folder / which, path)
    for directory in path.split(os.pathsep):
        if directory and (found := Path(directory) / program).is_file():
            return _not_executable(found)
    return "it is not on the PATH", ""


def _not_executable(file: Path) -> tuple[str, str]:
    return f"{file} is not executable", f"chmod +x {shlex.quote(str(file))}"


def _why_not(file: Path, path: str) -> tuple[str, str] | None:
    if not file.exists():
        return "it does not exist", ""
    if not file.is_file():
        return "it is not a file", ""
    if not os.access(file, os.X_OK):
        return _not_executable(file)
    words = script_words(file)
    if not words:
        return _elf_obstacle(file)
    shown = words[0].encode("unicode_escape").decode()
    if not Path(words[0]).exists():
        reason = f"its interpreter {shown} does not exist"
        if not words[0].endswith("\r"):
            return reason, "install it, or change the script's first line"
        ends = rf"sed -i 's/\r$//' {shlex.quote(str(file))} removes the line ends of Windows"
        return f"{reason}: its lines end with CR LF", ends
    named = words[1] if len(words) > 1 and Path(words[0]).name == "env" else ""
    if named and not named.startswith("-") and not shutil.which(named.rstrip("\r"), path=path):
        return f"its interpreter {named!r} is not on the PATH", "install it"
    return None


def _elf_obstacle(file: Path) -> tuple[str, str] | None:
    """Why the kernel would not start a program that is an ELF file; None: no reason is seen."""
    header = elf.read(file)
    if header is None:
        return None
    own = platform.machine()
    runs = header.machine == own or (header.machine, own) == (elf.I386, elf.X86_64)
    if not runs:
        # Where an emulator is registered, the emulator looks for its own loader elsewhere.
        emulated = any(EMULATORS.glob("qemu-*"))
        meant = f"it is built for {header.machine}, not for {own}"
        return None if emulated else (meant, f"build it for {own}")
    if header.loader and not Path(header.loader).exists():
        shown = header.loader.encode("unicode_escape").decode()
        reason = f"its dynamic loader {shown} does not exist"
        return reason, "install the C library that it was built for, or link it statically"
    return None


def script_words(script: Path) -> list[str]:
    """The interpreter of a script and its one argument, as the kernel splits the first line.

    The result is empty where the file is no script.
    """
    try:
        with script.open("rb") as file:
            first = file.read(FIRST_LINE_BYTES)
    except OSError:
        return []
    if not first.startswith(b"#!"):
        return []
    # Split at blanks and tabs alone: a carriage return is part of the name.
    line = os.fsdecode(first[2:].split(b"\n", 1)[0]).strip(" \t")
    return re.split("[ \t]+", line, maxsplit=1) if line else []
