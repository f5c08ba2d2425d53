"""What an emulated host that does not answer is doing, according to its kernel and its CPUs.

Its kernel prints the stacks of blocked tasks and of its CPUs when it is asked by SysRq, which comes
over the emulated keyboard (admin-guide/sysrq); the CPUs' registers come from QEMU, so that there is
something even when the kernel itself is stuck.
"""

from __future__ import annotations

import contextlib
import time

from vtax.core.errors import VtaxError
from vtax.environments.console import ConsoleTail, plain_text
from vtax.environments.emulated_host.qmp import Qmp

PARAMETER = "sysrq_always_enabled"
"""Parameter of the emulated host's kernel."""
FILE = "emulated-host.txt"
"""Traces of the lab that was lost last, in the cache's folder of labs: work folders end with a
command."""
LOUD, BLOCKED, CPUS = "9", "w", "l"
"""Keys of SysRq: send all messages to the console; show blocked tasks; show what CPUs do."""
PRINT_S = 5.0
"""An emulated serial line takes this long for some dozens of KiB."""
_QUIET_S = 0.5


def traces(monitor: Qmp, console: ConsoleTail) -> str:
    """Registers and stacks, as far as they are available."""
    registers = ""
    with contextlib.suppress(VtaxError):
        argument = {"command-line": "info registers -a"}
        registers = str(monitor.execute("human-monitor-command", argument))
        for key in (LOUD, BLOCKED, CPUS):
            monitor.execute("send-key", {"keys": [_qcode(each) for each in ("alt", "sysrq", key)]})
            _until_quiet(console)
    return f"{plain_text(registers.encode())}\n{console.text()}"


def _qcode(key: str) -> dict[str, str]:
    return {"type": "qcode", "data": key}


def _until_quiet(console: ConsoleTail) -> None:
    deadline = time.monotonic() + PRINT_S
    before = None
    while time.monotonic() < deadline and (now := console.text()) != before:
        before = now
        time.sleep(_QUIET_S)
