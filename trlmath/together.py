"""Work that the processes of a run share, or that one does for all: what fails on one fails on all.

Else the others would wait for the one that has left, and then tell of a lost connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from accelerate.utils import broadcast_object_list

from trlmath.errors import TrlmathError

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class _Failed:
    process: int
    error: TrlmathError


def from_first(value: Answer) -> Answer:
    """What the first process passes, on every process."""
    told = [value]
    broadcast_object_list(told)
    return told[0]


def from_main(main: bool, work: Callable[[], Answer]) -> Answer:
    """What `work` returns on the main process, on every process.

    Raises:
        TrlmathError: `work` did, on the main process; every process raises it.
    """
    answer: Any = None
    if main:
        try:
            answer = work()
        except TrlmathError as error:  # the others are waiting for an answer
            answer = error
    answer = from_first(answer)
    if isinstance(answer, TrlmathError):
        raise answer
    return answer


def gathered(
    work: Callable[[], list[Any]], gather: Callable[[list[Any]], list[Any]], process: int
) -> list[Any]:
    """What `work` makes on each process, in their order.

    Args:
        gather: collects a list from all processes.
        process: number of this one.

    Raises:
        TrlmathError: that of this process, else of the first process that raised one.
    """
    own: list[Any]
    try:
        own = work()
    except TrlmathError as error:
        own = [_Failed(process, error)]
    everything = gather(own)
    failed = [item for item in everything if isinstance(item, _Failed)]
    if own and isinstance(own[0], _Failed):
        raise own[0].error
    if failed:
        _tell(failed[0])
    return everything


def agree(error: TrlmathError | None, gather: Callable[[list[Any]], list[Any]], process: int) -> None:
    """Raise `error`, or another process's; every process must call this equally often."""

    def work() -> list[Any]:
        if error is not None:
            raise error
        return []

    gathered(work, gather, process)


def _tell(failed: _Failed) -> NoReturn:
    error = failed.error
    raise type(error)(f"process {failed.process}: {error}")
