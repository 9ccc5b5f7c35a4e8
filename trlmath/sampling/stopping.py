"""Where a stop string ends a completion, and how a completion may end: one rule for every engine."""

from __future__ import annotations

from collections.abc import Sequence

from trlmath.errors import EngineError
from trlmath.types import FinishReason


def cut_after_stop(text: str, stop: Sequence[str], held: int = 0) -> tuple[str, bool]:
    """Cut `text` behind the stop string that is complete first (it stays), and say whether there was one.

    Args:
        held: characters of the first `min_tokens` tokens. As in vLLM, a stop string that ends in them ends
            nothing; one that begins in them and ends later does.
    """
    ends = [at + len(s) for s in stop if (at := text.find(s, max(0, held - len(s) + 1))) >= 0]
    return (text[: min(ends)], True) if ends else (text, False)


def tail_tokens(stop: Sequence[str]) -> int:
    """How many last tokens must be decoded to see a stop string that has just been completed.

    A token is at least one byte, and the stop string may end inside the last one.
    """
    return max((len(s.encode()) for s in stop), default=0) + 1


def whole(text: str) -> str:
    """`text` without a last character whose bytes have not all come yet: as vLLM tells it."""
    return text.rstrip("\N{REPLACEMENT CHARACTER}")


def finish_reason(told: object, engine: str) -> FinishReason:
    """The engine's own finish reason. Raises EngineError for any but ``stop`` and ``length``."""
    if told not in ("stop", "length"):
        raise EngineError(
            f"{engine} ended a completion by {told!r}, neither by its end nor its length: it cannot be "
            "trained on or counted. The same command goes on from the last checkpoint."
        )
    return told
