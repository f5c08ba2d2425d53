"""What many hosts cost the machine that measures them: simulated by real agents on this machine.

    .venv/bin/python bench/agents.py
    .venv/bin/python bench/agents.py --agents 100

Each agent is a `vtax-agent serve` of its own with a channel of its own, as an `ssh` or `srun` would
join one to a host; what those cost is not in it. All agents are started, then each runs `true` some
times, one after the other as a campaign does.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from interleaved import about

from vtax.core import binaries
from vtax.core.command import campaigns
from vtax.environments import build
from vtax.environments.channel import Channel
from vtax.environments.machine import Machine
from vtax.environments.machine_command import MachineCommand

BYTES = {"sent": 0, "received": 0}


def count_bytes() -> None:
    """Count what goes over all channels from now on."""
    send, read = Channel._send_bytes, Channel._read

    def sent(self: Channel, data: bytes, deadline: float) -> None:
        BYTES["sent"] += len(data)
        send(self, data, deadline)

    def received(self: Channel, what: str) -> bytes:
        data = read(self, what)
        BYTES["received"] += len(data)
        return data

    Channel._send_bytes = sent  # type: ignore[method-assign]
    Channel._read = received  # type: ignore[method-assign]


def cpu_s() -> float:
    """CPU time of this process alone."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory_kib(pid: int) -> int:
    """Resident memory of a process that it shares with nobody."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1])
    return 0


def timed(what: str, count: int, work: Callable[[], None]) -> None:
    """Say what `count` pieces of work cost."""
    before = dict(BYTES)
    begin, used = time.monotonic(), cpu_s()
    work()
    elapsed, used = time.monotonic() - begin, cpu_s() - used
    traffic = {each: (BYTES[each] - before[each]) / count for each in BYTES}
    print(
        f"{what}: {1e3 * elapsed / count:.2f} ms each, {1e3 * used / count:.2f} ms of CPU time of "
        f"the controller, {traffic['sent']:.0f} bytes sent, {traffic['received']:.0f} received"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=1000)
    parser.add_argument("--reps", type=int, default=3)
    asked = parser.parse_args()
    about()
    count_bytes()
    resource.setrlimit(resource.RLIMIT_NOFILE, (16 * asked.agents + 256,) * 2)
    variables = campaigns.variables()
    with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as scratch:
        machines: list[Machine] = []

        def start() -> None:
            for number in range(asked.agents):
                work = Path(scratch, str(number))
                work.mkdir()
                machine = build("native:cpus=1").start(work, [0])
                assert isinstance(machine, Machine)
                machines.append(stack.enter_context(machine))

        def repeat() -> None:
            for number in range(asked.reps):
                for machine in machines:
                    (machine.work / f"r{number}").mkdir()
                    machine.execute(MachineCommand(("true",), variables, f"r{number}", 60.0))

        print(f"{asked.agents} agents; {binaries.find('vtax-agent').stat().st_size} bytes each")
        timed("start", asked.agents, start)
        timed("repetition", asked.agents * asked.reps, repeat)
        each = sum(memory_kib(machine.pid) for machine in machines) / len(machines)
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(f"memory: {each:.0f} KiB of an agent, {own} MiB of the controller")


if __name__ == "__main__":
    main()
