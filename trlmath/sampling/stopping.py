"""Where a stop string ends a completion."""

from __future__ import annotations

from collections.abc import Sequence


def cut_after_stop(text: str, stop: Sequence[str]) -> tuple[str, bool]:
    """Cut `text` behind the earliest stop string (which stays) and say whether there was one."""
    ends = [(at, at + len(s)) for s in stop if (at := text.find(s)) >= 0]
    if not ends:
        return text, False
    return text[: min(ends)[1]], True


def tail_tokens(stop: Sequence[str]) -> int:
    """How many last tokens must be decoded to see a stop string that has just been completed.

    A token is at least one byte, and the stop string may end inside the last one.
    """
    return max((len(s.encode()) for s in stop), default=0) + 1
