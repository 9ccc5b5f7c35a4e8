"""Grading that does not wait: finished groups are graded while others are still being generated.

Where the engine hands out groups as they finish (vLLM), and for rewards that say they grade each
completion by itself (``independent = True``). The grades are those of grading all at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from trlmath.errors import TrlmathError
from trlmath.training.reward_calls import RewardCall
from trlmath.types import Grade, Group


class EarlyGrading:
    """Grades groups in a thread of its own; a context manager around the generation.

    On leaving, each reward that could be graded early has its grades in ``early``, in the prompts' order; or
    the first error, which it raises when it is called for them.

    Args:
        calls: of the rewards.
        columns: the dataset's columns of each prompt.
        prompts: text of each prompt.
        state: the trainer's, for rewards that name ``trainer_state``.
    """

    def __init__(
        self,
        calls: Sequence[RewardCall],
        columns: Sequence[Mapping[str, Any]],
        prompts: Sequence[str],
        state: Any,
    ) -> None:
        self.calls = [call for call in calls if getattr(call.reward, "independent", False)]
        self._columns, self._prompts, self._state = columns, prompts, state
        self._thread = ThreadPoolExecutor(1, "grading")  # one: a reward need not bear two callers at once
        self._pending: dict[int, Future[list[list[Grade]]]] = {}
        self._failed: TrlmathError | None = None

    def take(self, number: int, group: Group) -> None:
        """Grade the group of prompt `number`; called from whichever thread received it."""
        if self.calls:
            self._pending[number] = self._thread.submit(self._grade, number, group)

    def _grade(self, number: int, group: Group) -> list[list[Grade]]:
        size = len(group.rollouts)
        given = {
            **{name: [value] * size for name, value in self._columns[number].items()},
            "prompts": [self._prompts[number]] * size,
            "completions": [r.text for r in group.rollouts],
            "completion_ids": [list(r.token_ids) for r in group.rollouts],
            "finish_reasons": [r.finish_reason for r in group.rollouts],
            "trainer_state": self._state,
        }
        if self._failed is not None:  # a reward that hangs would do so for every group
            return []
        try:
            return [call.reward(**given) for call in self.calls]
        except TrlmathError as error:
            self._failed = error
            return []

    def __enter__(self) -> EarlyGrading:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(wait=error is None, cancel_futures=error is not None)
        if error is not None or not self._pending:
            return
        graded = [self._pending[number].result() for number in sorted(self._pending)]
        for place, call in enumerate(self.calls):
            call.early = self._failed or [grade for group in graded for grade in group[place]]
