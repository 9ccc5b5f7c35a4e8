"""Work that the processes of a run share: what fails on one of them fails on all, in the same words.

Else the others would wait for the one that has left, and then tell of a lost connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from trlmath.errors import TrlmathError


@dataclass(frozen=True)
class _Failed:
    process: int
    error: TrlmathError


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
