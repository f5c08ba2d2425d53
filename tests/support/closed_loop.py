"""The closed loop in the lab: a guest alternates between two programs, KVM and QEMU's plugin count
what it does, and the controller switches its paging mode on stock KVM.

GUPS misses the TLB with nearly each update, so long walks make nested paging dear. mmap-churn
changes its page tables all the time, so exits make shadow paging dear. Both are there from the
beginning, and one of them is stopped: no phase begins with a program's start. A phase ends after a
number of the guest's instructions, so that it does the same work in each mode.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counter_page import counters
from paging_switch_lab import Background, shell, started
from vtax.environments.lab import program
from vtax.environments.lab.machine import LabMachine

MACHINE = "opteron2350"
"""DAV2M's primary machine: a TLB without tags, and walks that caches shorten little."""
PROGRAMS = (("gups", "--mem 64M --seconds 100000"), ("mmap-churn", "--seconds 100000"))
TICK = "while :; do read -t 0.2 nothing <>/run/tick; done"
"""A third program that only wakes: the plugin knows the paging mode from loads of CR3, and a
program alone makes none."""
POLICIES = {"vtax": 5_000_000, "dav2m": 1_000_000}
"""The length of each policy's window in instructions: it has to fit an emulator's speed. All other
parameters are the policies' defaults."""
STATIC = ("nested", "shadow")
STATE = "/run/vtax/control"
POLICY, LINES, LOG = (f"/run/loop.{name}" for name in ("toml", "jsonl", "log"))
SETTLED = 400_000_000
"""Instructions after which a program has filled its memory."""
PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Run:
    """A run of all phases in one mode, or under one policy."""

    name: str
    cycles: int
    """The model's, of all phases together."""
    cpi: Sequence[float]
    """Cycles per instruction of each phase."""
    course: Sequence[tuple[int, int]]
    """Instructions and cycles since the beginning, at each look."""
    lines: Sequence[dict[str, Any]]
    """The controller's; none in a static mode."""

    @property
    def switches(self) -> Sequence[dict[str, Any]]:
        return [line for line in self.lines if line["applied"]]


class Loop:
    """A lab in which runs can be made one after the other."""

    def __init__(self, machine: LabMachine, page: Path) -> None:
        self._machine = machine
        self._page = page
        guest = machine.guests[0]
        shell(guest, f"mkfifo /run/tick; setsid sh -c '{TICK}' >/dev/null 2>&1 </dev/null &")
        self._programs = []
        for name, arguments in PROGRAMS:
            each = Background(guest, name, arguments)
            self._programs.append(each)
            # It fills its memory, and goes on to its work.
            for _ in self._phase(each, SETTLED):
                pass

    def run(self, name: str, phases: int, instructions: int) -> Run:
        """Run `phases` phases of `instructions` instructions each under a mode or a policy."""
        self._machine.host.switch(name if name in STATIC else "nested")
        controller = None if name in STATIC else self._control(name)
        before, cpi, course = counters(self._page), [], []
        for number in range(phases):
            begin = end = counters(self._page)
            running = self._programs[number % len(self._programs)]
            for end in self._phase(running, instructions):
                course.append(_work(before, end))
            done, cycles = _work(begin, end)
            cpi.append(cycles / done)
        _, cycles = _work(before, counters(self._page))
        return Run(name, cycles, cpi, course, self._end(controller) if controller else [])

    def reports(self) -> Sequence[dict[str, Any]]:
        """End both programs; their reports say whether their memory is what it must be. GUPS undoes
        all its updates, which takes as long as they took."""
        found = []
        for each in self._programs:
            self._resume(each, True)
            found.append(each.report(patience_s=10 * PATIENCE_S))
        return found

    def _phase(self, running: Background, instructions: int) -> Iterator[dict[str, int]]:
        """The counters at each look while the program runs alone, and after it."""
        begin, deadline = counters(self._page), time.monotonic() + PATIENCE_S
        self._resume(running, True)
        while _work(begin, now := counters(self._page))[0] < instructions:
            yield now
            assert time.monotonic() < deadline, "the guest does nothing"
            time.sleep(0.1)
        self._resume(running, False)
        yield counters(self._page)

    def _resume(self, each: Background, runs: bool) -> None:
        shell(self._machine.guests[0], f"kill -{'CONT' if runs else 'STOP'} {each.pid}")

    def _control(self, policy: str) -> int:
        host = self._machine.host
        text = f'policy = "{policy}"\nwindow = {POLICIES[policy]}\nmachine = "{MACHINE}"\n'
        host.push(POLICY, text.encode())
        words = f"--policy={POLICY} --guest={program.MODEL_PAGE} --json --apply"
        words += " --max-pause=5s --min-dwell=2s --every=500ms"
        line = f"rm -rf {STATE}; : >{LINES}; setsid /bin/vtax-host paging control {words}"
        return int(shell(host, f"{line} >{LINES} 2>{LOG} </dev/null & echo $!"))

    def _end(self, controller: int) -> Sequence[dict[str, Any]]:
        host = self._machine.host
        wait = f"while kill -0 {controller} 2>/dev/null; do sleep 0.1; done"
        shell(host, f"kill -TERM {controller}; {wait}")
        return [json.loads(line) for line in host.pull(LINES).decode().splitlines()]


def _work(before: dict[str, int], after: dict[str, int]) -> tuple[int, int]:
    """The guest's instructions and cycles between two looks."""
    done, cycles = (after[name] - before[name] for name in ("model.instructions", "model.cycles"))
    return done, cycles


@contextmanager
def closed_loop(folder: Path) -> Iterator[Loop]:
    """A lab with both programs in its guest; a skip where it cannot be."""
    with started(folder, model=MACHINE, guest_mem="384M") as machine:
        yield Loop(machine, folder / program.MODEL_PAGE.name)
