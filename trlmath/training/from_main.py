"""Decisions that one process makes for all; a mistake that it meets meets all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from accelerate.utils import broadcast_object_list

from trlmath.errors import TrlmathError

Answer = TypeVar("Answer")


def from_main(main: bool, work: Callable[[], Answer]) -> Answer:
    """What `work` returns on the main process, on every process.

    Raises:
        TrlmathError: `work` did, on the main process; every process raises it.
    """
    answer: list[Any] = [None]
    if main:
        try:
            answer = [work()]
        except TrlmathError as error:  # the others are waiting for an answer
            answer = [error]
    broadcast_object_list(answer)
    if isinstance(answer[0], TrlmathError):
        raise answer[0]
    return answer[0]
