"""Warm worker processes for what may not end: a wall-clock and a memory limit, killed and replaced at either.

Built on pebble. A pool starts when first needed, in the process that needs it (a forked child makes its own),
and the limit of a task counts from the moment a worker takes it up. Workers die with their parent.
"""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import multiprocessing.context
import multiprocessing.process
import multiprocessing.spawn
import multiprocessing.util
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from pebble import ProcessExpired, ProcessPool

from trlmath.errors import GradingError

TIMEOUT = 5.0
"""Seconds that one pair may take in a worker."""
MEMORY_BYTES = 4 * 1024**3
"""Address space of one worker."""
WORKERS = 2
START_SECONDS = 120.0
PROOF = ((r"\frac{1}{2}+\frac{1}{3}", r"\frac{5}{6}", True), ("0.83", r"\frac{5}{6}", False))
"""What each new pool must grade rightly: prediction, gold, verdict."""
_PR_SET_PDEATHSIG = 1

Judged = tuple[bool | None, str, str]


# -- inside a worker ---------------------------------------------------------


def _initialise(parent: int, memory: int) -> None:
    """Limits of a worker, set before it takes any work."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # pebble's handler cannot run while C code computes
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from trlmath.grading import heavy

    heavy.prepare()


def _task(prediction: str, gold: str, seconds: float) -> Judged:
    """One pair; the kernel kills the worker a second after its limit, even if nobody is left to."""
    from trlmath.grading import heavy

    signal.setitimer(signal.ITIMER_REAL, seconds + 1.0)  # SIGALRM's default action ends the process
    try:
        return heavy.judge(prediction, gold)
    except MemoryError:
        return None, "memory", "the grader ran out of its memory limit"
    except RecursionError:
        return None, "recursion", "the answer is nested too deeply"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


# -- starting workers ---------------------------------------------------------


class _Worker(multiprocessing.context.SpawnProcess):
    """A spawned process that does not import the parent's main module again."""

    def start(self) -> None:
        with _quiet_start():
            super().start()


class _Context(multiprocessing.context.SpawnContext):
    Process = _Worker  # type: ignore[assignment]


_start_lock = threading.Lock()


@contextmanager
def _quiet_start() -> Iterator[None]:
    """Start a process without re-running ``__main__`` (training scripts load models there).

    Also lifts, for that moment, the rule that a daemonic process has no children: ours end with their parent.
    """
    with _start_lock:
        original = multiprocessing.spawn.get_preparation_data
        thread = threading.get_ident()

        def light(name: str) -> dict[str, Any]:
            data = original(name)
            if threading.get_ident() == thread:
                data.pop("init_main_from_name", None)
                data.pop("init_main_from_path", None)
            return data

        config = multiprocessing.process.current_process()._config  # type: ignore[attr-defined]
        daemon = config.pop("daemon", None)
        multiprocessing.spawn.get_preparation_data = light
        try:
            yield
        finally:
            multiprocessing.spawn.get_preparation_data = original
            if daemon is not None:
                config["daemon"] = daemon


# -- the pool -------------------------------------------------------------------


class Pool:
    """A pebble pool of warm workers that has proven itself on one right and one wrong answer."""

    def __init__(self, workers: int = WORKERS) -> None:
        self.pid = os.getpid()
        self.workers = workers
        self.timeout = TIMEOUT
        self._pool = ProcessPool(
            max_workers=workers,
            initializer=_initialise,
            initargs=(self.pid, MEMORY_BYTES),
            context=_Context(),
        )
        self._closing = threading.Event()
        started = threading.Event()
        # The kernel ties a worker's life to the THREAD that started it: start them from one that stays.
        self._keeper = threading.Thread(
            target=self._keep, args=(started,), name="trlmath-grading", daemon=True
        )
        self._keeper.start()
        started.wait(START_SECONDS)
        self._finalizer = multiprocessing.util.Finalize(
            self, Pool._stop, args=(self._pool, self.pid), exitpriority=100
        )
        self._prove()

    def _keep(self, started: threading.Event) -> None:
        _ = self._pool.active  # starts the workers
        self._first = [self._pool.schedule(_task, args=(p, g, START_SECONDS)) for p, g, _ in PROOF]
        started.set()
        self._closing.wait()

    def _prove(self) -> None:
        try:
            said = [future.result(START_SECONDS)[0] for future in self._first]
        except (ProcessExpired, BrokenProcessPool, FutureTimeout, OSError, ImportError) as error:
            self.close()
            raise GradingError(
                f"the grading workers cannot start ({type(error).__name__}: {error}). Check that `python -c "
                f"'import sympy, math_verify'` works in this environment and that memory allows it."
            ) from error
        for (prediction, gold, truth), verdict in zip(PROOF, said, strict=True):
            if verdict is not truth:
                self.close()
                raise GradingError(
                    f"the grading workers grade wrongly: {prediction} against {gold} gave {verdict}, not "
                    f"{truth}. Run `trlmath doctor` and reinstall trlmath with its dependencies."
                )

    def judge(self, pairs: Sequence[tuple[str, str]]) -> list[Judged]:
        """Judge pairs in the workers, in order. A pair that kills its worker is tried once more, alone."""
        results: list[Judged | None] = [None] * len(pairs)
        waiting = list(range(len(pairs)))
        for last in (False, True):
            futures = [
                (i, self._pool.schedule(_task, (*pairs[i], self.timeout), timeout=self.timeout))
                for i in waiting
            ]
            waiting = []
            for index, future in futures:
                try:
                    results[index] = future.result()
                except FutureTimeout:
                    results[index] = None, "timeout", f"not decided within {self.timeout:g} s"
                except ProcessExpired as error:
                    results[index] = None, "crash", f"the worker died ({error})"
                    if not last:
                        waiting.append(index)
        return [result for result in results if result is not None]

    def close(self) -> None:
        """End the workers."""
        self._closing.set()
        self._finalizer()

    @staticmethod
    def _stop(pool: ProcessPool, pid: int) -> None:
        if os.getpid() == pid:
            pool.stop()
            pool.join()


_pool: Pool | None = None
_pool_lock = threading.Lock()


def pool(workers: int | None = None) -> Pool:
    """This process's pool: started when it has none yet (a fork has none) or a larger one is asked for."""
    global _pool
    with _pool_lock:
        if _pool is None or _pool.pid != os.getpid() or (workers or 0) > _pool.workers:
            if _pool is not None and _pool.pid == os.getpid():
                _pool.close()
            _pool = None
            _pool = Pool(workers or WORKERS)
        return _pool


def judge(pairs: Sequence[tuple[str, str]], workers: int | None = None) -> list[Judged]:
    """Judge pairs in this process's pool, starting a fresh one should it be broken.

    Raises:
        GradingError: the workers cannot start, twice.
    """
    for last in (False, True):
        current = pool(workers)
        try:
            return current.judge(pairs)
        except (BrokenProcessPool, RuntimeError, CancelledError) as error:
            _drop(current)
            if last:
                raise GradingError(
                    f"the grading workers died twice in a row ({type(error).__name__}: {error}). "
                    "Is something on this machine ending processes (out of memory)?"
                ) from error
    raise AssertionError("unreachable")


def _drop(broken: Pool) -> None:
    """Close a pool that broke, unless another thread has already put a new one in its place."""
    global _pool
    with _pool_lock:
        if _pool is broken:
            _pool = None
            broken.close()


def shutdown() -> None:
    """End this process's workers; the next use starts new ones."""
    global _pool
    with _pool_lock:
        if _pool is not None and _pool.pid == os.getpid():
            _pool.close()
        _pool = None


def _forget() -> None:
    """In a forked child: the parent's workers are not ours, neither to use nor to end."""
    global _pool, _pool_lock, _start_lock
    if _pool is not None:
        _pool._finalizer.cancel()
        for child in list(multiprocessing.process._children):  # type: ignore[attr-defined]
            if isinstance(child, _Worker):
                multiprocessing.process._children.discard(child)  # type: ignore[attr-defined]
    _pool = None
    _pool_lock, _start_lock = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_forget)
atexit.register(shutdown)
