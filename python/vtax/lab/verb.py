"""`vtax lab`: a command of this machine beside a real KVM, in an emulated host."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtax.core.command import options
from vtax.core.command.options import Env, Share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vtax.core.runner.given import Wishes
    from vtax.environments.base import PagingEnvironment

EXAMPLES = """\b
Examples:
  vtax lab -- ls -l /dev/kvm
  vtax lab -- vtax compare --in native --in qemu:accel=kvm,mem=512M --reps 2 -- true
  vtax lab --npt 0 --out results -- vtax compare --in qemu:accel=kvm --out results -- true
  vtax lab --smp 2 --mem 6G -- bash -c 'cat /sys/module/kvm_amd/parameters/npt'

\b
The emulated host is an AMD machine with SVM, a stock kernel and stock kvm_amd. This machine has to
be x86-64 and needs no KVM; with QEMU 10 (Debian 13) guests do not boot under --npt 0. The clock is
the emulator's: counts are real, times are not.
"""

SETTINGS: dict[str, Any] = {
    "short_help": "Run a command beside a real KVM, in an emulated host.",
    "epilog": EXAMPLES,
    "context_settings": {"allow_interspersed_args": False, "ignore_unknown_options": False},
}
SIGNALLED = 128
CACHED = ("kernels", "guests")
"""Folders of vtax's cache that vtax itself needs in the emulated host."""


class Npt(StrEnum):
    """The parameter `npt` of kvm_amd."""

    ON = "1"
    OFF = "0"


def lab(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The command and its options, after --.", metavar="COMMAND"),
    ] = None,
    npt: Annotated[
        Npt, typer.Option(help="kvm_amd's parameter: 1 nested paging, 0 shadow paging.")
    ] = Npt.ON,
    smp: Annotated[int, typer.Option(min=1, help="CPUs of the emulated host.", metavar="N")] = 1,
    memory: Annotated[
        str, typer.Option("--mem", help="Memory of the emulated host.", metavar="SIZE")
    ] = "4G",
    kernel: Annotated[
        Path | None,
        typer.Option(help="A vmlinuz-RELEASE with KVM. Default: found or fetched.", metavar="FILE"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="What COMMAND writes into this folder is kept; all else is lost.",
            metavar="DIR",
        ),
    ] = None,
    share: Share = None,
    env: Env = None,
    timeout: options.Timeout = None,
    slow_cores: Annotated[
        bool,
        typer.Option("--slow-cores", help="COMMAND can slow the CPUs (docs/environments.md)."),
    ] = False,
    snapshot: Annotated[
        bool,
        typer.Option("--snapshot/--no-snapshot", help="Restore a saved host; else boot one."),
    ] = True,
    quiet: options.Quiet = False,
) -> None:
    """Run a command of this machine as root in an emulated host that has a real /dev/kvm.

    The command runs in the current folder and sees this machine's files without its secrets
    (docs/security.md). It may write everywhere; only what it writes into --out is kept. It gets
    your standard input and your environment variables without secrets. It has no network but the
    loopback. The exit code is the command's.
    """
    from vtax.core.errors import MisuseError
    from vtax.core.runner.given import Wishes
    from vtax.environments.base import with_paging_modes

    if not command:
        raise MisuseError("no command", "name one after --, e.g. vtax lab -- ls -l /dev/kvm")
    options = {"npt": npt.value, "smp": str(smp), "mem": memory}
    options |= {"kernel": str(kernel)} if kernel else {}
    options |= {"slow-cores": "on"} if slow_cores else {}
    options |= {} if snapshot else {"snapshot": "off"}
    environment = with_paging_modes().from_options(options)
    wishes = Wishes(share or (), keep_env=True, named=env or ())
    raise typer.Exit(_carry_out(environment, command, wishes, out, timeout, quiet=quiet))


def _carry_out(
    environment: PagingEnvironment,
    command: Sequence[str],
    wishes: Wishes,
    out: Path | None,
    timeout: str | None,
    *,
    quiet: bool,
) -> int:
    """Run the command and return its exit code."""
    from vtax.core import cache
    from vtax.core.command import standard_input
    from vtax.core.errors import MisuseError
    from vtax.core.formats.scratch import scratch
    from vtax.core.page.progress import progress
    from vtax.core.runner.following import Following
    from vtax.core.runner.given import given
    from vtax.core.units import parse_duration
    from vtax.environments import sharing
    from vtax.environments.base import allowed_cpus
    from vtax.workloads import programs

    limit_s = None if timeout is None else parse_duration(timeout)
    folder = Path.cwd()
    if not environment.has_folder(folder):
        raise MisuseError(f"{folder}: the emulated host has its own", "work in another folder")
    if out is not None:
        out = out.absolute()
        out.mkdir(parents=True, exist_ok=True)
    # The lab's vtax has no network to fetch them from.
    kernels = tuple(cache.folder(name) for name in CACHED)
    machine = {"the emulated host": environment}
    # vtax itself may be started by a script, and its Python may lie in a home.
    gets = given(machine, (command[0], sys.executable), folder, wishes, kernels)
    variables = {**gets.environment, "XDG_CACHE_HOME": str(cache.base())}
    environment = environment.with_shown(gets.shown)
    program = programs.require(command[0], variables["PATH"], folder, "check its name", command[1:])
    sharing.require_seen({"the emulated host": environment}, program)
    environment.check()
    for said in () if quiet else gets.said:
        print(f"note: {said}", file=sys.stderr)
    stdin = standard_input.read().content
    with scratch("host") as work, progress(quiet) as told:
        told.announce("starting the emulated host")
        with environment.start_host(work, allowed_cpus(), out) as host:
            told.stop()
            streams = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}
            with Following(host.output, streams):
                outcome = host.run(command, variables, folder, limit_s, stdin).outcome
    if outcome.timed_out:
        print(f"vtax: the command was ended after {timeout}", file=sys.stderr)
    if outcome.signal is not None:
        return SIGNALLED + outcome.signal
    return 1 if outcome.exit_code is None else outcome.exit_code


def add(app: typer.Typer) -> None:
    """Make it a verb of `app`."""
    app.command(**SETTINGS)(lab)
