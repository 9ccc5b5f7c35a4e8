"""Run what can run, so many at once; what depends on a failed run is skipped, the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

POLL = 0.1


class Running(Protocol):
    """A run that was started."""

    def poll(self) -> int | None:
        """Its exit status, or None while it runs."""


class Watcher(Protocol):
    """Who is told what happens."""

    def started(self, name: str) -> None:
        """A run was started."""

    def ended(self, name: str, status: int) -> None:
        """A run ended with an exit status."""

    def skipped(self, name: str, because: str) -> None:
        """A run will not be started, since the run `because` has no result."""

    def waiting(self) -> None:
        """Time passes."""


def run_all(
    names: Sequence[str],
    sources: Mapping[str, str | None],
    done: Collection[str],
    start: Callable[[str, int], Running],
    stop: Callable[[Sequence[Running]], None],
    watcher: Watcher,
    jobs: int = 1,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Start every run of `names` that is not in `done`, in their order, each after its source.

    Args:
        sources: run -> the run it starts from.
        start: starts one in a slot, 0 to jobs - 1, which no other run has meanwhile.
        stop: ends the running ones; called when anything interrupts this.
    """
    finished: set[str] = set(done)
    lost: set[str] = set()
    waiting = [name for name in names if name not in finished]
    running: dict[int, tuple[str, Running]] = {}
    try:
        while waiting or running:
            for slot, (name, child) in list(running.items()):
                status = child.poll()
                if status is not None:
                    del running[slot]
                    (finished if status == 0 else lost).add(name)
                    watcher.ended(name, status)
            for name in list(waiting):
                source = sources.get(name)
                if source in lost:
                    waiting.remove(name)
                    lost.add(name)
                    watcher.skipped(name, str(source))
                elif len(running) < jobs and (source is None or source in finished):
                    waiting.remove(name)
                    slot = min(set(range(jobs)) - set(running))
                    running[slot] = (name, start(name, slot))
                    watcher.started(name)
            watcher.waiting()
            if running:
                wait(POLL)
    finally:
        if running:
            stop([child for _, child in running.values()])
