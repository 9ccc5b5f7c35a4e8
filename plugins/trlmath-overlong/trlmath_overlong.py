"""A reward and a filter for trlmath: DAPO's soft overlong punishment, and groups that were mostly cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from trlmath import Drop, Grade, Group, Keep, RecipeError, hookimpl

trlmath_api = 1


@dataclass(frozen=True)
class Overlong:
    """0 up to `max_tokens` - `buffer` tokens, then straight down to -1 at `max_tokens` and beyond.

    DAPO's soft overlong punishment, arXiv:2503.14476, eq. 13 (its L_max and L_cache).
    """

    max_tokens: int
    buffer: int
    conformance: ClassVar = {"options": {"max_tokens": 4, "buffer": 2}}

    def __post_init__(self) -> None:
        if not 0 < self.buffer <= self.max_tokens:
            raise RecipeError(
                f"overlong needs 0 < buffer <= max_tokens, in tokens; got {self.buffer}, {self.max_tokens}."
            )

    def __call__(self, completion_ids: Sequence[Sequence[int]]) -> list[Grade]:
        return [self._grade(len(ids)) for ids in completion_ids]

    def _grade(self, tokens: int) -> Grade:
        over = max(tokens - (self.max_tokens - self.buffer), 0)
        return Grade(
            reward=-min(over / self.buffer, 1.0),
            parts={"in_time": float(over == 0)},
            reason=f"{tokens} tokens, {over} of them in the buffer or over the limit",
        )


@dataclass(frozen=True)
class MostlyCut:
    """Drop groups of which more than `share` of the rollouts were cut off at the limit."""

    share: float = 0.5
    moment: ClassVar[str] = "group"

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise RecipeError(f"mostly_cut needs 0 <= share < 1; got {self.share}.")

    def __call__(self, item: Group) -> Keep | Drop:
        cut = sum(rollout.finish_reason == "length" for rollout in item.rollouts)
        return Drop("mostly cut off") if cut > self.share * len(item.rollouts) else Keep()


@hookimpl
def register_rewards(register):
    """Offer the reward under the name that recipes write."""
    register("overlong", Overlong)


@hookimpl
def register_filters(register):
    """Offer the filter under the name that recipes write."""
    register("mostly_cut", MostlyCut)
