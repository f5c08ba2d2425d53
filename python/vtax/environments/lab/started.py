"""A started emulated host: booted, or restored from a snapshot, which is made if it is missing."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vtax.core import cache
from vtax.core.errors import VtaxError
from vtax.core.formats.files import write_atomic
from vtax.core.formats.scratch import scratch
from vtax.environments import sandbox
from vtax.environments.agent import Agent, MachineLostError
from vtax.environments.base import Launch
from vtax.environments.channel import Channel
from vtax.environments.emulated_host import traces
from vtax.environments.emulated_host.emulator import Emulator
from vtax.environments.emulated_host.host import EmulatedHost
from vtax.environments.lab import boot, host_initramfs, program, snapshot
from vtax.environments.lab.configuration import LabConfiguration
from vtax.environments.lab.snapshot import Snapshot, Store

NUDGE_S = 5.0
"""QEMU 7.2 now and then leaves the timer's interrupt pending (IRR of the local APIC has it) while a
nested guest runs, and delivers it with the next interrupt. If that guest only computes, there is no
next interrupt, and the emulated host stands still."""


class StartedHost:
    """An emulated host whose guests, if it has any, are up. Whoever makes one kills it. Raises
    VtaxError when it does not come up.
    """

    def __init__(self, lab: LabConfiguration, work: Path, cpus: Sequence[int]) -> None:
        self._lab = lab
        self._held = contextlib.ExitStack()
        saved: Snapshot | None = None
        notes: list[str] = []
        parts = host_initramfs.find_parts(lab.kernel)
        if lab.snapshot:
            saved, made = _saved(lab, parts, cpus)
            self._held.enter_context(saved)
            notes += _snapshot_notes(made)
        try:
            self.hellos = self._start(parts, work, cpus, saved)
        except BaseException:
            self.kill()
            raise
        self.launch = Launch(self.emulator.argv, sandbox.WORK, boot.HOST_TIMEOUT_S, tuple(notes))

    def kill(self) -> None:
        """End the host and all that is in it."""
        self._held.close()

    def _start(
        self, parts: host_initramfs.Parts, work: Path, cpus: Sequence[int], saved: Snapshot | None
    ) -> boot.Hellos:
        lab = self._lab
        if saved:
            self._connect(Emulator(lab.emulated(parts, (), saved.ram, saved=True), b"", work, cpus))
            self._restore(saved)
            boot.resume(self.host, lab.guests)
            hellos = boot.Hellos(saved.meta["host"], tuple(saved.meta["guests"]))
        else:
            built = host_initramfs.build(parts, lab.guest, lab.nested_paging)
            machine = lab.emulated(parts, built.modules)
            self._connect(Emulator(machine, built.initramfs, work, cpus))
            hellos = _boot(lab, self.emulator, self.agent, built)
        self.host.set_clock()
        return hellos

    def _connect(self, emulator: Emulator) -> None:
        self.emulator = self._held.enter_context(emulator)
        self.agent = _agent(emulator.host, self._lost)
        self.host = EmulatedHost(self.agent)
        self.guests = [
            _agent(channel, functools.partial(self._lost_guest, number))
            for number, channel in enumerate(emulator.guests)
        ]

    def _restore(self, saved: Snapshot) -> None:
        try:
            self.emulator.restore(saved.state)
        except VtaxError as error:
            self.emulator.kill()
            lines = self.emulator.console.last_lines(3)
            reason = " | ".join([str(error), *lines])
            saved.discard()
            raise VtaxError(
                f"the saved emulated host cannot be restored: {reason}",
                "it has been removed: try again",
            ) from None

    def _lost(self, what: str) -> MachineLostError:
        # This comes before the console is full of the traces.
        error = _lost_host(self.emulator, what)
        if self.emulator.alive and (kept := self._keep_traces()):
            error = MachineLostError(error.message, f"{kept} has what it was doing; try again")
        self.kill()
        return error

    def _keep_traces(self) -> Path | None:
        """The file with traces of what the host is doing; None: there are none."""
        with contextlib.suppress(OSError, VtaxError):
            found = traces.traces(self.emulator.monitor(), self.emulator.console)
            file = cache.folder("lab") / traces.FILE
            write_atomic(file, found.encode())
            return file
        return None

    def _lost_guest(self, number: int, what: str) -> MachineLostError:
        try:
            lines = boot.console(self.host, number)
        except MachineLostError as error:
            return error
        self.kill()
        return MachineLostError(
            f"the lab's nested guest {number} {what}; its console ends: {' | '.join(lines)}"
        )


def _lost_host(emulator: Emulator, what: str) -> MachineLostError:
    lines = emulator.console.last_lines() or ["(nothing)"]
    return MachineLostError(
        f"the lab's emulated host {what}; its console ends: {' | '.join(lines)}"
    )


def _boot(
    lab: LabConfiguration, emulator: Emulator, agent: Agent, built: host_initramfs.HostFiles
) -> boot.Hellos:
    hello = agent.hello(boot.HOST_TIMEOUT_S)
    host = EmulatedHost(agent)
    host.set_clock()
    guests = boot.start_guests(host, emulator.guests, lab.nested(built.guest_modules))
    return boot.Hellos(hello, guests)


def _saved(
    lab: LabConfiguration, parts: host_initramfs.Parts, cpus: Sequence[int]
) -> tuple[Snapshot, float | None]:
    """The snapshot of this lab, and how long it took to make if it was made now."""
    store = Store()
    wanted = snapshot.name(
        lab.asked(), lab.files(parts), [program.find().version, parts.kernel.release]
    )
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


def _attempts(lab: LabConfiguration) -> int:
    """How often to try a boot that does not come up.

    If vtax's own guest does not boot, that is the emulator's fault: now and then it loses an
    interrupt of the nested guest (docs/environments.md). With an image of the user's, the image may
    be the cause.
    """
    return 1 if lab.kind in ("disk", "initramfs") else 2


def _make(
    lab: LabConfiguration,
    parts: host_initramfs.Parts,
    cpus: Sequence[int],
    store: Store,
    folder: Path,
) -> None:
    """Boot an emulated host up to its guests and save it in `folder`."""
    built = host_initramfs.build(parts, lab.guest, lab.nested_paging)
    plain = replace(lab, model=None, slow_cores=False)
    machine = plain.emulated(parts, built.modules, ram=folder / "ram")
    with (folder / "ram").open("wb") as ram:
        os.fchmod(ram.fileno(), 0o600)
        ram.truncate(lab.memory_bytes)
    with (
        scratch("lab") as work,
        Emulator(machine, built.initramfs, work, cpus) as emulator,
    ):

        def lost(what: str) -> MachineLostError:
            emulator.kill()
            return _lost_host(emulator, what)

        agent = _agent(emulator.host, lost)
        hellos = _boot(lab, emulator, agent, built)
        boot.pause(EmulatedHost(agent), lab.guests)
        store.complete(folder, emulator.save(), {"host": hellos.host, "guests": hellos.guests})


def _agent(channel: Channel, lost: Callable[[str], MachineLostError]) -> Agent:
    # On a busy host the emulator's clock lags, and with it those of the guests.
    return Agent(channel, sandbox.WORK, lost, emulated_clock=True, nudge_s=NUDGE_S)


def _snapshot_notes(made_s: float | None) -> list[str]:
    notes = [
        "The emulated host was restored from a snapshot: every start has the same random pool.",
    ]
    if made_s is not None:
        notes.append(f"The snapshot was made for this start, in {made_s:.1f} s.")
    return notes
