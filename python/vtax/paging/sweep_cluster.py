"""Dask for a sweep: processes on this machine, or a cluster that exists.

A point's result comes back as a value also when the point failed, so Dask sees an error only when
a worker was lost.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import queue
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vtax.errors import MisuseError, VtaxError
from vtax.paging.sweep_point import Evaluate, Finished, Point, Row

if TYPE_CHECKING:
    from distributed import Client, Future

SCRATCH = ".dask"
CONNECT_S = 10.0
"""For the scheduler to answer, and for a first worker to be there."""
WORKERLESS_S = 60.0
"""A cluster without any worker for so long has lost them for good."""
CLOSE_S = 10.0
WAIT_S = 0.5
COUNT_EVERY_S = 2.0
PER_THREAD = 3
"""Points handed over per worker thread: enough that none waits, few enough to stay small."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to run."""

    scheduler: str | None
    """The address of a scheduler; None: processes on this machine."""
    workers: int
    """How many processes, without a scheduler."""
    scratch: Path
    """A folder that does not exist and may be made, for the local processes."""


class Running(Protocol):
    """What hands over points and gives back what became of them."""

    @property
    def capacity(self) -> int:
        """How many points to have handed over at a time."""
        ...

    def submit(self, point: Point) -> None:
        """Hand over a point."""
        ...

    def next(self) -> tuple[Point, Finished]:
        """Wait for any point that was handed over; raises VtaxError when the cluster is gone."""
        ...


@contextlib.contextmanager
def running(place: Place, evaluate: Evaluate) -> Iterator[Running]:
    """A cluster for the duration of a sweep; a local one is gone afterwards in every case."""
    opened = _local(place) if place.scheduler is None else _existing(place.scheduler)
    with opened as client:
        yield _Dask(client, evaluate)


@contextlib.contextmanager
def _local(place: Place) -> Iterator[Client]:
    import dask.config

    with _told("start"):
        from distributed import Client, LocalCluster, Security

        security = Security.temporary()

    settings: dict[str, Any] = {
        # The second death of a worker over the same point is the point's.
        "distributed.scheduler.allowed-failures": 1,
        # A worker holds only the point it computes: its death is no one else's.
        "distributed.scheduler.worker-saturation": 1.0,
        # A long point may keep the interpreter busy; a dead process is seen by its connection.
        "distributed.scheduler.worker-ttl": None,
        "distributed.worker.profile.enabled": False,
        # Without a dashboard there is still an HTTP server, open to every user: it shall know
        # nothing.
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        stack.callback(shutil.rmtree, place.scratch, ignore_errors=True)
        stack.enter_context(_quiet())
        # Whoever reaches a scheduler's port may run code as its owner: only we have the key.
        with _signals_held(), _told("start"):
            cluster = LocalCluster(
                n_workers=place.workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                protocol="tls://",
                security=security,
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
                local_directory=str(place.scratch),
            )
            # Before a signal can come again.
            stack.callback(_undisturbed, functools.partial(cluster.close, timeout=CLOSE_S))
        client = Client(cluster, set_as_default=False)
        stack.callback(_undisturbed, functools.partial(client.close, timeout=CLOSE_S))
        yield client


@contextlib.contextmanager
def _existing(address: str) -> Iterator[Client]:
    from distributed import Client

    scheme, separator, rest = address.partition("://")
    if not separator or scheme not in {"tcp", "tls", "ws", "wss"} or ":" not in rest:
        raise MisuseError(
            f"--scheduler {address}: is no address", "write for example tcp://host:8786"
        )
    with _quiet():
        try:
            client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            reason = _reason(error) if isinstance(error, ValueError) else "no answer"
            raise VtaxError(
                f"cannot reach the Dask scheduler {address}: {reason} within {CONNECT_S:g} s",
                "start one with 'dask scheduler', or leave --scheduler out",
            ) from None
        try:
            _check_workers(client, address)
            yield client
        finally:
            _undisturbed(functools.partial(client.close, timeout=CLOSE_S))


def _check_workers(client: Client, address: str) -> None:
    """Workers are there and have this vtax: another one would model something else."""
    from vtax import __version__

    try:
        client.wait_for_workers(1, timeout=CONNECT_S)
    except TimeoutError:
        raise VtaxError(
            f"the Dask scheduler {address} has no workers after {CONNECT_S:g} s",
            f"start some with 'dask worker {address}'",
        ) from None

    def version() -> str:
        # Travels as code, so that it answers also where vtax is missing.
        try:
            import vtax
        except ImportError:
            return "no vtax"
        return f"vtax {vtax.__version__}"

    for worker, found in client.run(version).items():
        if found != f"vtax {__version__}":
            raise VtaxError(
                f"the Dask worker {worker} has {found}, this is vtax {__version__}",
                "install the same version on every worker",
            )


class _Dask:
    def __init__(self, client: Client, evaluate: Evaluate) -> None:
        self._client = client
        self._evaluate = functools.partial(measured, evaluate)
        # On a shared scheduler equal keys of two clients would be one task.
        self._run = secrets.token_hex(4)
        self._number = 0
        self._waiting: dict[Future[Any], Point] = {}
        self._done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self._seen_worker = time.monotonic()
        self._counted = -math.inf
        self._capacity = 1

    @property
    def capacity(self) -> int:
        # Workers come and go, but asking for each point would cost more than it gains.
        if time.monotonic() - self._counted > COUNT_EVERY_S:
            self._counted = time.monotonic()
            self._capacity = PER_THREAD * max(1, self._threads())
        return self._capacity

    def submit(self, point: Point) -> None:
        self._number += 1
        future = self._client.submit(
            self._evaluate, point, key=f"vtax-{self._run}-{self._number}", pure=False
        )
        self._waiting[future] = point
        future.add_done_callback(self._done.put)

    def next(self) -> tuple[Point, Finished]:
        while True:
            try:
                future = self._done.get(timeout=WAIT_S)
            except queue.Empty:
                self._check_alive()
                continue
            return self._waiting.pop(future), self._result(future)

    def _result(self, future: Future[Any]) -> Finished:
        from distributed import KilledWorker

        if future.cancelled():
            raise _lost("the Dask scheduler dropped the points that were under way")
        try:
            finished: Finished = future.result(timeout=CONNECT_S)
        except KilledWorker:
            return Finished((), "the worker died while it computed this point, each time", None)
        except Exception as error:
            return Finished((), _reason(error), None)
        return finished

    def _check_alive(self) -> None:
        now = time.monotonic()
        if self._client.status == "running" and self._threads():
            self._seen_worker = now
        elif self._client.status == "closed" or now - self._seen_worker > WORKERLESS_S:
            raise _lost("the Dask cluster has no scheduler or no workers any more")

    def _threads(self) -> int:
        try:
            return sum(self._client.nthreads().values())
        except (OSError, ValueError):
            return 0


def measured(evaluate: Evaluate, point: Point) -> Finished:
    """Evaluate a point on a worker. Whatever goes wrong is the point's own affair."""
    begin = time.perf_counter()
    rows: tuple[Row, ...] = ()
    error: str | None = None
    try:
        rows = tuple(dict(row) for row in evaluate(point))
        error = None if rows else "the simulation gave no result"
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as problem:  # a panic of the native module is no Exception
        error = _reason(problem)
    return Finished(rows, error, time.perf_counter() - begin)


def _reason(error: BaseException) -> str:
    """One line. The type's name says something only where the text does not."""
    text = " ".join(str(error).split())
    if isinstance(error, VtaxError) and text:
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _lost(message: str) -> VtaxError:
    return VtaxError(message, "what was finished is kept: continue with --resume")


@contextlib.contextmanager
def _told(action: str) -> Iterator[None]:
    """What Dask cannot do, in one line."""
    try:
        yield
    except (ImportError, OSError, RuntimeError, TimeoutError) as error:
        raise VtaxError(
            f"cannot {action} local Dask processes: {_reason(error)}",
            "check the installation with 'pip check', memory and open files",
        ) from None


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """No signal ends the sweep meanwhile, and what is started never sees a Ctrl-C.

    A terminal sends it to the whole process group, but to end the workers is the sweep's business.
    Dask starts all its processes, later ones too, from a thread that is started here. SIGTERM must
    reach them, so it is not blocked but kept for later.
    """
    kept: list[int] = []
    # It would be started by the first process, and unblocks the signals of the thread that does it.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: signal.raise_signal(kept[0]) if kept else None)
        stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        if threading.current_thread() is threading.main_thread():
            handler = signal.signal(signal.SIGTERM, lambda number, _frame: kept.append(number))
            stack.callback(signal.signal, signal.SIGTERM, handler)
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Dask's own log lines off: what matters of them comes as a point's reason or as an error."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _undisturbed(close: functools.partial[Any]) -> None:
    """Close something without letting a second Ctrl-C leave processes behind."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    except ValueError:  # not in the main thread: no signal arrives here
        before = {}
    try:
        with contextlib.suppress(TimeoutError, OSError):
            close()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
