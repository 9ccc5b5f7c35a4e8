"""A reward as TRL calls it, with the dataset's columns; its grades are kept, which a matrix would lose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accelerate.utils import gather_object

from trlmath.errors import TrlmathError
from trlmath.evaluation.run import rollout_columns
from trlmath.together import agree
from trlmath.types import Grade, Problem


class RewardCall:
    """A reward as TRL calls it; adds the dataset's columns, and keeps the grades that a matrix would lose.

    Attributes:
        columns: of the rows that are graded next.
        grades: of the last call.
        early: grades of the next call, made while others were generated, or why there are none.
        holds: keep an error for `raise_together` instead of raising it, so that TRL's gather happens.
        error: the one kept.
    """

    def __init__(self, reward: Any, holds: bool = False) -> None:
        self.reward, self.holds = reward, holds
        self.grades, self.columns = list[Grade](), dict[str, list]()
        self.early: list[Grade] | TrlmathError | None = None
        self.error: TrlmathError | None = None
        self.__name__ = str(getattr(reward, "name", "reward"))

    def __call__(self, **kwargs: Any) -> list[float | None]:
        early, self.early = self.early, None
        try:
            if isinstance(early, TrlmathError):
                raise early
            # a rollout's own go before a column's
            self.grades = self.reward(**{**self.columns, **kwargs}) if early is None else early
        except TrlmathError as error:
            if not self.holds:
                raise
            self.error, self.grades = error, [Grade(None)] * len(kwargs["completions"])
        return [grade.reward for grade in self.grades]


def raise_together(calls: Sequence[RewardCall], accelerator: Any) -> None:
    """Raise the error that a reward's call has kept, on every process, whichever it happened on."""
    if accelerator.num_processes > 1:
        error = next((call.error for call in calls if call.error), None)
        agree(error, gather_object, accelerator.process_index)


def rows_for_rewards(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """The columns that rewards can name, one dict a problem, all with the same keys."""
    columns = rollout_columns(problems)
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
