"""A started lab: the emulated host, the guests in it, and the channels to all of them."""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from vtax.environments import sandbox
from vtax.environments.agent import OUTPUT_LIMIT_BYTES, Agent, Finished, MachineLostError
from vtax.environments.base import Launch
from vtax.environments.capabilities import (
    C,
    Files,
    GuestPage,
    Guests,
    KvmCounters,
    PagingMode,
    Pause,
    RecordOutside,
    Switch,
    offered,
)
from vtax.environments.guest_page import FILE as PAGE_FILE
from vtax.environments.kvm_counters import Counters, of_guest
from vtax.environments.lab import boot, host_initramfs, nested, snapshot
from vtax.environments.lab.emulator import Emulator
from vtax.environments.lab.host import EmulatedHost
from vtax.environments.lab.snapshot import Snapshot, Store
from vtax.environments.output_limit import OutputLimit
from vtax.environments.qemu_program import program_version
from vtax.errors import VtaxError

if TYPE_CHECKING:
    from vtax.clocks import Skew
    from vtax.environments.lab.environment import Lab

HALT_TIMEOUT_S = 3.0
OUTPUT_BYTES = 64 << 20
"""Of each of stdout and stderr that is brought from a guest without a shared folder."""
_OUTPUTS = ("stdout", "stderr")
_GUEST_PATH = "/bin:/usr/bin"
"""Of a guest that has nothing but busybox."""


class LabMachine:
    """A `Machine` whose commands run in the nested guest; a context manager as that is."""

    def __init__(self, lab: Lab, work: Path, cpus: Sequence[int]) -> None:
        begin = time.monotonic()
        self.output_limit_bytes = OUTPUT_LIMIT_BYTES
        self._lab = lab
        self._work = work
        self._mode: PagingMode = "nested" if lab.nested_paging else "shadow"
        self._shares = lab.kind == "host"
        self._held = contextlib.ExitStack()
        saved: Snapshot | None = None
        notes: list[str] = []
        parts = host_initramfs.find_parts(lab.kernel)
        if lab.snapshot:
            saved, made = _saved(lab, parts, cpus)
            self._held.enter_context(saved)
            notes += _snapshot_notes(made)
        try:
            self._start(parts, cpus, saved)
            self.launch = Launch(
                self._emulator.argv, sandbox.WORK, boot.HOST_TIMEOUT_S, tuple(notes)
            )
            self.boot_s = time.monotonic() - begin
            self.facts: dict[str, Any] = {}
            self.refresh_facts()
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._emulator.pid

    def run(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        timeout_s: float | None = None,
        *,
        workdir: Path | None = None,
        leave: bool = False,
    ) -> Finished:
        """Run a command in the first nested guest, with its output in `folder` below its writable
        folder.

        It runs in `workdir`, a folder of this machine's that the guest has; None: in `folder`.

        A guest without the host's tree gets the files in `folder` before, and its stdout and
        stderr are brought there after. `leave`: what it leaves running goes on.
        """
        agent = self.guests[0]
        if not self._shares:
            self._push_inputs(agent, folder)
        variables = self._variables(environment)
        finished = agent.run(
            argv, variables, folder, timeout_s, workdir, self._output_limit(folder), leave=leave
        )
        if not self._shares:
            self._pull_outputs(agent, folder, folder)
        return finished

    def run_everywhere(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        folder: str,
        timeout_s: float | None = None,
        workdir: Path | None = None,
    ) -> Sequence[Finished]:
        """Run a command in all guests at once; output of guest N goes to the folder FOLDER-N."""
        variables, limit = self._variables(environment), self._output_limit(folder)
        asked = (argv, variables, folder, timeout_s, workdir, limit)
        # Each guest has its own channel, so a thread each.
        pool = ThreadPoolExecutor(len(self.guests))
        try:
            running = [pool.submit(guest.run, *asked) for guest in self.guests]
            found = [each.result() for each in running]
        finally:
            # After Ctrl-C they go on until the machine, and with it their channels, is closed.
            pool.shutdown(wait=False, cancel_futures=True)
        for number, guest in enumerate(self.guests):
            self._pull_outputs(guest, folder, f"{folder}-{number}")
        return found

    def offer(self, wanted: type[C]) -> C | None:
        """The means to use a capability; None when the machine has it not."""
        guest = self.guests[0]
        found = (
            Files(guest.push, guest.pull),
            Guests(self.run_everywhere),
            RecordOutside({"vm": "all"}, self.host),
            KvmCounters(self.counters),
            Switch(self.switch, lambda: self._mode),
            Pause(
                lambda: boot.pause(self.host, len(self.guests)),
                lambda: boot.resume(self.host, len(self.guests)),
            ),
            GuestPage(self.launch.work_inside / PAGE_FILE),
        )
        return offered([each for each in found if type(each) in self._lab.offered()], wanted)

    def switch(self, to: PagingMode) -> Mapping[str, Any]:
        """Switch all guests while they run; returns the agent's report."""
        report = self.host.switch(to)
        self._mode = to
        return report

    def _output_limit(self, folder: str) -> OutputLimit:
        return OutputLimit(self._work, folder, self.output_limit_bytes)

    def counters(self, guest: int = 0) -> Counters:
        """What KVM has counted for a guest so far."""
        return of_guest(self.host.counters(), self._qemu_pid(guest))

    def clock_skew(self) -> Skew:
        """How far the nested guest's clock is from this machine's."""
        return self.guests[0].clock_skew()

    def refresh_facts(self) -> None:
        """Read the nested guest's facts again."""
        self.facts = self.guests[0].facts()

    def console(self) -> str:
        """What the emulated host printed last, for a log."""
        return self._emulator.console.text()

    def close(self) -> None:
        """End the lab. Nothing in it has anything to save: no agent is asked."""
        self.kill()

    def kill(self) -> None:
        """End the lab now."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(
        self, parts: host_initramfs.Parts, cpus: Sequence[int], saved: Snapshot | None
    ) -> None:
        lab = self._lab
        if saved:
            machine = lab.emulated(parts, (), ram=saved.ram, saved=True)
            self._connect(Emulator(machine, b"", self._work, cpus))
            self._restore(saved)
            boot.resume(self.host, lab.guests)
            hellos = boot.Hellos(saved.meta["host"], tuple(saved.meta["guests"]))
        else:
            built = host_initramfs.build(parts, lab.guest, lab.nested_paging)
            machine = lab.emulated(parts, built.modules)
            self._connect(Emulator(machine, built.initramfs, self._work, cpus))
            hellos = _boot(lab, self._emulator, self.host, self._host_agent, built)
        self.hello = hellos.guests[0]
        self.host.set_clock()
        if self._shares:
            self.hello = boot.let_in(self.host, self._emulator.guests)[0]
        else:
            for agent in self.guests:
                agent.set_clock()

    def _connect(self, emulator: Emulator) -> None:
        self._emulator = self._held.enter_context(emulator)
        self._host_agent = Agent(self._emulator.host, sandbox.WORK, self._lost)
        self.host = EmulatedHost(self._host_agent)
        self.guests = [
            Agent(channel, sandbox.WORK, functools.partial(self._lost_guest, number))
            for number, channel in enumerate(self._emulator.guests)
        ]

    def _restore(self, saved: Snapshot) -> None:
        try:
            self._emulator.restore(saved.state)
        except VtaxError as error:
            self._emulator.kill()
            lines = self._emulator.console.last_lines(3)
            reason = " | ".join([str(error), *lines])
            saved.discard()
            raise VtaxError(
                f"the saved emulated host cannot be restored: {reason}",
                "it has been removed: try again",
            ) from None

    def _qemu_pid(self, guest: int) -> int | None:
        """None where there is one guest only, so there is nothing to look up."""
        if len(self.guests) == 1:
            return None
        text = self.host.pull(str(nested.folder(guest) / "pid"), 64).decode().strip()
        return int(text) if text.isdecimal() else -1

    def _variables(self, environment: Mapping[str, str]) -> Mapping[str, str]:
        if self._shares:
            return environment
        return {**environment, "PATH": f"{environment.get('PATH', '')}:{_GUEST_PATH}".lstrip(":")}

    def _push_inputs(self, agent: Agent, folder: str) -> None:
        for path in sorted((self._work / folder).glob("*")):
            if path.is_file() and not path.is_symlink():
                agent.push(str(sandbox.WORK / folder / path.name), path.read_bytes())

    def _pull_outputs(self, agent: Agent, folder: str, to: str) -> None:
        target = self._work / to
        target.mkdir(mode=0o700, exist_ok=True)
        for name in _OUTPUTS:
            content = agent.pull(str(sandbox.WORK / folder / name), OUTPUT_BYTES)
            (target / name).write_bytes(content)

    def _lost(self, what: str) -> MachineLostError:
        self.kill()
        lines = self._emulator.console.last_lines() or ["(nothing)"]
        return MachineLostError(
            f"the lab's emulated host {what}; its console ends: {' | '.join(lines)}"
        )

    def _lost_guest(self, number: int, what: str) -> MachineLostError:
        try:
            lines = boot.console(self.host, number)
        except MachineLostError as error:
            return error
        self.kill()
        return MachineLostError(
            f"the lab's nested guest {number} {what}; its console ends: {' | '.join(lines)}"
        )


def _boot(
    lab: Lab,
    emulator: Emulator,
    host: EmulatedHost,
    agent: Agent,
    built: host_initramfs.HostFiles,
) -> boot.Hellos:
    hello = agent.hello(boot.HOST_TIMEOUT_S)
    host.set_clock()
    guests = boot.start_guests(host, emulator.guests, lab.nested(built.guest_modules))
    return boot.Hellos(hello, guests)


def _saved(
    lab: Lab, parts: host_initramfs.Parts, cpus: Sequence[int]
) -> tuple[Snapshot, float | None]:
    """The snapshot of this lab, and how long it took to make if it was made now."""
    store = Store()
    wanted = snapshot.name(lab.asked(), lab.files(parts), [program_version(), parts.kernel.release])
    if found := store.find(wanted):
        return found, None
    with store.one_maker(wanted):
        if found := store.find(wanted):
            return found, None
        begin = time.monotonic()
        for attempt in range(_attempts(lab)):
            try:
                with store.making(wanted) as folder:
                    _make(lab, parts, cpus, store, folder)
                break
            except MachineLostError:
                if attempt + 1 == _attempts(lab):
                    raise
        found = store.find(wanted)
    if found is None:
        raise VtaxError("the emulated host's snapshot vanished", "use snapshot=off")
    return found, time.monotonic() - begin


def _attempts(lab: Lab) -> int:
    """How often a boot is tried that did not come up.

    A guest of our own that does not boot is the emulator's fault: now and then it loses an
    interrupt of the nested guest (docs/environments.md). An image of the user's may be the cause.
    """
    return 2 if lab.kind in ("builtin", "host") else 1


def _make(
    lab: Lab, parts: host_initramfs.Parts, cpus: Sequence[int], store: Store, folder: Path
) -> None:
    """Boot an emulated host up to its guests and save it in `folder`."""
    built = host_initramfs.build(parts, lab.guest, lab.nested_paging)
    machine = lab.emulated(parts, built.modules, ram=folder / "ram")
    with (folder / "ram").open("wb") as ram:
        os.fchmod(ram.fileno(), 0o600)
        ram.truncate(lab.memory_bytes)
    with (
        tempfile.TemporaryDirectory(prefix="vtax-lab-") as work,
        Emulator(machine, built.initramfs, Path(work), cpus) as emulator,
    ):

        def lost(what: str) -> MachineLostError:
            emulator.kill()
            lines = emulator.console.last_lines() or ["(nothing)"]
            return MachineLostError(
                f"the lab's emulated host {what}; its console ends: {' | '.join(lines)}"
            )

        agent = Agent(emulator.host, sandbox.WORK, lost)
        host = EmulatedHost(agent)
        hellos = _boot(lab, emulator, host, agent, built)
        boot.pause(host, lab.guests)
        store.complete(folder, emulator.save(), {"host": hellos.host, "guests": hellos.guests})


def _snapshot_notes(made_s: float | None) -> list[str]:
    notes = [
        "The emulated host was restored from a snapshot: every start has the same random pool.",
    ]
    if made_s is not None:
        notes.append(f"The snapshot was made for this start, in {made_s:.1f} s.")
    return notes
