"""Tracing a program for a prediction."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vtax.core.errors import VtaxError
from vtax.environments import traced_qemu
from vtax.paging.trace.campaign import Traced, Wanted, trace
from vtax.workloads.variables import base_environment

TIMEOUT_S = 600.0


def trace_into(
    file: Path,
    argv: Callable[[str], list[str]],
    memory: str,
    *,
    warm_up: bool,
    parameters: Sequence[str] = (),
    instruction_tlb: int | None = None,
) -> Traced:
    """Trace a command in an emulated guest with that memory; with `warm_up`, twice.

    `parameters` are the guest kernel's, `instruction_tlb` is as in `Wanted`. `argv` gets the path
    of vtax-agent in the guest. Raises VtaxError where nothing can be traced and where the command
    fails, KeyboardInterrupt after Ctrl-C.
    """
    plain = traced_qemu.guest({"mem": memory})
    guest = replace(plain, emulator=replace(plain.emulator, parameters=parameters))
    wanted = Wanted(
        argv=argv(guest.agent_inside()),
        variables=base_environment(os.environ),
        workdir=None,
        out=file,
        user_only=False,
        compare=False,
        timeout_s=TIMEOUT_S,
        warm_up=warm_up,
        passed_on=False,
        instruction_tlb=instruction_tlb,
    )
    done = trace(wanted, guest, lambda _: None)
    if done.outcome is None:
        raise KeyboardInterrupt  # the trace keeps what there is, and says so by this
    if done.outcome.exit_code != 0:
        raise VtaxError(f"in the traced guest it ended with code {done.outcome.exit_code}")
    return done
