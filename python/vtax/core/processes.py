"""Python worker processes that end when vtax does, however it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import resource_tracker
from typing import ParamSpec, Self, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_FOR_VTAX = {signal.SIGINT, signal.SIGHUP}
"""A terminal sends these signals to the whole process group, but vtax is to end the workers."""
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Pool:
    """A pool of processes: leaving the context ends them, also in the middle of their work.

    Each is started fresh, because polars has threads, which a fork would not survive. A process
    that dies breaks the pool: futures and `submit` then raise `concurrent.futures.BrokenExecutor`.
    """

    def __init__(self, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._others = set(multiprocessing.active_children())
        self._executor = ProcessPoolExecutor(processes, context, initializer=_follow)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hand over work; it and its result travel as pickles."""
        # The first process starts the tracker, which unblocks the signals of the thread it is in.
        resource_tracker.ensure_running()
        # Submitting starts processes, which inherit the blocked signals.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _FOR_VTAX)
        try:
            return self._executor.submit(work, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        """End the processes and wait for that."""
        with undisturbed():
            self._executor.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - self._others:
                process.kill()
                process.join()


def _follow() -> None:
    """In a worker: end when vtax does, also when it was killed."""
    threading.Thread(target=_end_with_vtax, daemon=True).start()


def _end_with_vtax() -> None:
    vtax = multiprocessing.parent_process()
    if vtax is not None:
        vtax.join()
    os._exit(1)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Clean something up without letting a second Ctrl-C leave processes behind."""
    try:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _ENDINGS}
    except ValueError:  # not in the main thread: no signal arrives here
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
