"""A started emulated host: booted, or restored from a snapshot, which is made if it is missing."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from vtax.core import cache
from vtax.core.errors import VtaxError
from vtax.core.formats.files import write_atomic
from vtax.core.formats.scratch import scratch
from vtax.environments import sandbox
from vtax.environments.agent import Agent, MachineLostError
from vtax.environments.base import Launch
from vtax.environments.channel import Channel
from vtax.environments.emulated_host import traces
from vtax.environments.emulated_host.emulator import Emulated, Emulator
from vtax.environments.emulated_host.host import EmulatedHost
from vtax.environments.emulated_host.snapshot import Name, Snapshot, Store

HOST_TIMEOUT_S = 120.0
"""The time for a boot, which takes 5 to 13 s on an idle machine."""


@dataclass(frozen=True, slots=True)
class Hellos:
    """What the agents said when they were ready; a restored machine does not say it again."""

    host: dict[str, Any]
    guests: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Booting:
    """An emulated host that is to be booted."""

    machine: Emulated
    initramfs: bytes
    boot: Callable[[Emulator, Agent], Hellos]
    """Awaits the host's agent, starts its guests and awaits theirs."""


class Recipe(Protocol):
    """What differs between emulated hosts."""

    @property
    def folder(self) -> str:
        """The folder of the cache that has the snapshots."""
        ...

    @property
    def keep(self) -> int:
        """The most snapshots to keep."""
        ...

    @property
    def what(self) -> str:
        """The host as messages name it."""
        ...

    @property
    def snapshot(self) -> bool:
        """Whether a saved machine is wanted."""
        ...

    @property
    def attempts(self) -> int:
        """How often to try a boot that is to be saved."""
        ...

    @property
    def nudge_s(self) -> float | None:
        """`Agent`'s argument of this name."""
        ...

    @property
    def emulated_clock(self) -> bool:
        """`Agent`'s argument of this name."""
        ...

    def name(self) -> Name:
        """The name of the snapshot."""
        ...

    def booting(self, ram: Path | None) -> Booting:
        """The machine that boots; `ram` has its memory if it is to be saved."""
        ...

    def restored(self, ram: Path) -> Emulated:
        """The machine whose memory is in `ram`."""
        ...

    def pause(self, host: EmulatedHost) -> None:
        """Hold all guests, so that the host can be saved."""
        ...

    def resume(self, host: EmulatedHost) -> None:
        """Undo `pause` in a restored host, whose clock stands where it was saved."""
        ...

    def lost_guest(
        self, emulator: Emulator, host: EmulatedHost, number: int, what: str
    ) -> MachineLostError:
        """The error for a guest that does not answer; the host still runs."""
        ...


class StartedHost:
    """An emulated host whose guests, if it has any, are up. Whoever makes one kills it. Raises
    VtaxError when it does not come up.
    """

    def __init__(self, recipe: Recipe, work: Path, cpus: Sequence[int]) -> None:
        self._recipe = recipe
        self._held = contextlib.ExitStack()
        saved: Snapshot | None = None
        notes: list[str] = []
        if recipe.snapshot:
            saved, made = _saved(recipe, cpus)
            self._held.enter_context(saved)
            notes += _snapshot_notes(made)
        try:
            self.hellos = self._start(work, cpus, saved)
        except BaseException:
            self.kill()
            raise
        self.launch = Launch(self.emulator.argv, sandbox.WORK, HOST_TIMEOUT_S, tuple(notes))

    def kill(self) -> None:
        """End the host and all that is in it."""
        self._held.close()

    def _start(self, work: Path, cpus: Sequence[int], saved: Snapshot | None) -> Hellos:
        if saved is None:
            booting = self._recipe.booting(None)
            self._connect(Emulator(booting.machine, booting.initramfs, work, cpus))
            return booting.boot(self.emulator, self.agent)
        self._connect(Emulator(self._recipe.restored(saved.ram), b"", work, cpus))
        self._restore(saved)
        self._recipe.resume(self.host)
        return Hellos(saved.meta["host"], tuple(saved.meta["guests"]))

    def _connect(self, emulator: Emulator) -> None:
        self.emulator = self._held.enter_context(emulator)
        self.agent = _agent(self._recipe, emulator.host, self._lost)
        self.host = EmulatedHost(self.agent)
        self.guests = [
            _agent(self._recipe, channel, functools.partial(self._lost_guest, number))
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
        error = _lost_host(self._recipe, self.emulator, what)
        if self.emulator.alive and (kept := self._keep_traces()):
            error = MachineLostError(error.message, f"{kept} has what it was doing; try again")
        self.kill()
        return error

    def _keep_traces(self) -> Path | None:
        """The file with traces of what the host is doing; None: there are none."""
        with contextlib.suppress(OSError, VtaxError):
            found = traces.traces(self.emulator.monitor(), self.emulator.console)
            file = cache.folder(self._recipe.folder) / traces.FILE
            write_atomic(file, found.encode())
            return file
        return None

    def _lost_guest(self, number: int, what: str) -> MachineLostError:
        try:
            error = self._recipe.lost_guest(self.emulator, self.host, number, what)
        except MachineLostError as lost:
            return lost
        self.kill()
        return error


def _lost_host(recipe: Recipe, emulator: Emulator, what: str) -> MachineLostError:
    lines = emulator.console.last_lines() or ["(nothing)"]
    return MachineLostError(f"{recipe.what} {what}; its console ends: {' | '.join(lines)}")


def _saved(recipe: Recipe, cpus: Sequence[int]) -> tuple[Snapshot, float | None]:
    """The snapshot of this host, and how long it took to make if it was made now."""
    store = Store(cache.folder(recipe.folder), recipe.keep)
    wanted = recipe.name()
    if found := store.find(wanted):
        return found, None
    with store.one_maker(wanted):
        if found := store.find(wanted):
            return found, None
        begin = time.monotonic()
        for attempt in range(recipe.attempts):
            try:
                with store.making(wanted) as folder:
                    _make(recipe, cpus, store, folder)
                break
            except MachineLostError:
                if attempt + 1 == recipe.attempts:
                    raise
        found = store.find(wanted)
    if found is None:
        raise VtaxError("the emulated host's snapshot vanished", "use snapshot=off")
    return found, time.monotonic() - begin


def _make(recipe: Recipe, cpus: Sequence[int], store: Store, folder: Path) -> None:
    """Boot an emulated host up to its guests and save it in `folder`."""
    booting = recipe.booting(folder / "ram")
    with (folder / "ram").open("wb") as ram:
        os.fchmod(ram.fileno(), 0o600)
        ram.truncate(booting.machine.memory_bytes)
    with (
        scratch("saved") as work,
        Emulator(booting.machine, booting.initramfs, work, cpus) as emulator,
    ):

        def lost(what: str) -> MachineLostError:
            emulator.kill()
            return _lost_host(recipe, emulator, what)

        agent = _agent(recipe, emulator.host, lost)
        hellos = booting.boot(emulator, agent)
        recipe.pause(EmulatedHost(agent))
        store.complete(folder, emulator.save(), {"host": hellos.host, "guests": hellos.guests})


def _agent(recipe: Recipe, channel: Channel, lost: Callable[[str], MachineLostError]) -> Agent:
    return Agent(
        channel,
        sandbox.WORK,
        lost,
        emulated_clock=recipe.emulated_clock,
        nudge_s=recipe.nudge_s,
    )


def _snapshot_notes(made_s: float | None) -> list[str]:
    notes = [
        "The emulated host was restored from a snapshot: every start has the same random pool.",
    ]
    if made_s is not None:
        notes.append(f"The snapshot was made for this start, in {made_s:.1f} s.")
    return notes
