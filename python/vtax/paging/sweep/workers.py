"""What evaluates the points of a sweep: processes on this machine, or an existing Dask cluster.

Both give futures. A point's result comes back as a value also when the point failed, so that an
error of a future means that a worker was lost. Dask's own local cluster is not used on one machine:
anybody who reaches its ports, as every user of the machine does, can run code as the user of vtax.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import itertools
import logging
import queue
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from typing import TYPE_CHECKING

from vtax.core.errors import MisuseError, VtaxError
from vtax.core.processes import Pool, undisturbed
from vtax.paging.sweep.point import Evaluate, Finished, Point, Row

if TYPE_CHECKING:
    from distributed import Client

CONNECT_S = 10.0
"""Time for the scheduler to answer, and for a first worker to appear."""
CLOSE_S = 10.0
PER_WORKER = 3
"""Points handed over per process here: enough that none waits, few enough to stay small."""
AT_ONCE = 4000
"""Points handed over to a cluster, whose size may change: enough for a thousand threads."""
TRIES = 2
"""Tries of a point by itself, after the death of a worker that may have computed it."""
DIED = "the worker died while it computed this point, each time"

Work = Callable[[Point], Finished]


@contextlib.contextmanager
def running(scheduler: str | None, processes: int, evaluate: Evaluate) -> Iterator[Workers]:
    """Workers for the duration of a sweep; local processes are gone afterwards in every case.

    Raises MisuseError when `scheduler` is not an address; VtaxError when it does not answer, or has
    no workers with this version of vtax.
    """
    work = functools.partial(measured, evaluate)
    if scheduler is None:
        with contextlib.closing(_Local(processes, work)) as local:
            yield local
    else:
        with _connected(scheduler) as client:
            yield _Cluster(client, work)


class Workers(abc.ABC):
    """Takes points and returns their results."""

    most: int
    """How many points are handed over at a time."""

    def evaluated(self, points: Iterable[Point]) -> Iterator[tuple[Point, Finished]]:
        """Each point with its result, as they finish.

        Raises VtaxError when the scheduler is lost.
        """
        left = iter(points)
        under_way: dict[Future[Finished], Point] = {}
        done: queue.SimpleQueue[Future[Finished]] = queue.SimpleQueue()
        while True:
            for point in itertools.islice(left, self.most - len(under_way)):
                future = self._submit(point)
                under_way[future] = point
                future.add_done_callback(done.put)
            if not under_way:
                return
            future = done.get()
            point = under_way.pop(future)
            yield point, self._finished(point, future)

    @abc.abstractmethod
    def _submit(self, point: Point) -> Future[Finished]: ...

    @abc.abstractmethod
    def _finished(self, point: Point, future: Future[Finished]) -> Finished: ...


class _Local(Workers):
    """Processes on this machine. When one dies, the others end too; then points are tried one by
    one, so that only the point that kills its worker fails."""

    def __init__(self, processes: int, work: Work) -> None:
        self._processes, self._work = processes, work
        self._pool = Pool(processes)
        self.most = PER_WORKER * processes

    def close(self) -> None:
        """End the processes."""
        self._pool.close()

    def _submit(self, point: Point) -> Future[Finished]:
        try:
            return self._pool.submit(self._work, point)
        except BrokenExecutor:
            self._pool.close()
            self._pool = Pool(self._processes)
            return self._pool.submit(self._work, point)

    def _finished(self, point: Point, future: Future[Finished]) -> Finished:
        try:
            return future.result()
        except BrokenExecutor:
            return self._alone(point)
        except Exception as error:  # of the pickles
            return Finished((), reason(error), None)

    def _alone(self, point: Point) -> Finished:
        for _ in range(TRIES):
            with Pool(1) as pool, contextlib.suppress(BrokenExecutor):
                return pool.submit(self._work, point).result()
        return Finished((), DIED, None)


class _Cluster(Workers):
    """A Dask cluster, which divides points among its workers, tries those of a worker that died
    again, and waits while there are no workers."""

    most = AT_ONCE

    def __init__(self, client: Client, work: Work) -> None:
        self._executor, self._work = client.get_executor(pure=False), work

    def _submit(self, point: Point) -> Future[Finished]:
        future: Future[Finished] = self._executor.submit(self._work, point)
        return future

    def _finished(self, point: Point, future: Future[Finished]) -> Finished:
        from distributed import KilledWorker

        if future.cancelled():
            raise VtaxError(
                "the Dask scheduler is gone, and with it the points that were under way",
                "what was finished is kept: continue with --resume",
            )
        try:
            return future.result()
        except KilledWorker:
            return Finished((), DIED, None)
        except Exception as error:
            return Finished((), reason(error), None)


@contextlib.contextmanager
def _connected(address: str) -> Iterator[Client]:
    from distributed import Client

    scheme, separator, rest = address.partition("://")
    if not separator or scheme not in {"tcp", "tls", "ws", "wss"} or ":" not in rest:
        raise MisuseError(
            f"--scheduler {address}: is not an address", "write for example tcp://host:8786"
        )
    with _quiet():
        try:
            client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            why = reason(error) if isinstance(error, ValueError) else "no answer"
            raise VtaxError(
                f"cannot reach the Dask scheduler {address}: {why} within {CONNECT_S:g} s",
                "start one with 'dask scheduler', or leave --scheduler out",
            ) from None
        try:
            _check_workers(client, address)
            yield client
        finally:
            with undisturbed(), contextlib.suppress(TimeoutError, OSError):
                client.close(timeout=CLOSE_S)


def _check_workers(client: Client, address: str) -> None:
    """Check that there are workers and that they have this vtax: another one would model
    differently."""
    from vtax import __version__

    try:
        client.wait_for_workers(1, timeout=CONNECT_S)
    except TimeoutError:
        raise VtaxError(
            f"the Dask scheduler {address} has no workers after {CONNECT_S:g} s",
            f"start some with 'dask worker {address}'",
        ) from None

    def version() -> str:
        # This travels as code, so that it answers even where vtax is missing.
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


def measured(evaluate: Evaluate, point: Point) -> Finished:
    """Evaluate a point on a worker. Whatever goes wrong fails this point only."""
    begin = time.perf_counter()
    rows: tuple[Row, ...] = ()
    error: str | None = None
    try:
        rows = tuple(dict(row) for row in evaluate(point))
        error = None if rows else "the simulation gave no result"
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as problem:  # a panic of the native module is not an Exception
        error = reason(problem)
    return Finished(rows, error, time.perf_counter() - begin)


def reason(error: BaseException) -> str:
    """The reason in one line. The type's name says something only where the text does not."""
    text = " ".join(str(error).split())
    if isinstance(error, VtaxError) and text:
        return text
    name = type(error).__name__
    return f"{name}: {text}" if text else name


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Turn Dask's own log lines off: what matters in them comes as a point's reason or as an
    error."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
