"""What a run tells the person watching; evaluation and training only know this protocol."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from trlmath.data.shown import ShownRow
from trlmath.evaluation.report import EvaluationReport


class Display(Protocol):
    """The terminal, a notebook, or nothing."""

    def note(self, text: str) -> None:
        """Say one line."""

    def bar(self, what: str, total: int) -> AbstractContextManager[Callable[..., None]]:
        """Show progress of `what`; yields ``advance(count, **numbers)``."""
        ...

    def rows(self, shown: Sequence[ShownRow]) -> None:
        """Show rows of training data: what is given, trained and padded."""

    def evaluation(self, report: EvaluationReport) -> None:
        """Show one evaluation in full."""

    def comparison(self, before: Sequence[EvaluationReport], after: Sequence[EvaluationReport]) -> None:
        """Show the evaluations before and after."""


class Silent:
    """Shows nothing: other processes than the first, and tests."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def bar(self, what: str, total: int) -> AbstractContextManager[Callable[..., None]]:
        """Show nothing."""
        return nullcontext(_ignore)

    def rows(self, shown: Sequence[ShownRow]) -> None:
        """Show nothing."""

    def evaluation(self, report: EvaluationReport) -> None:
        """Show nothing."""

    def comparison(self, before: Sequence[EvaluationReport], after: Sequence[EvaluationReport]) -> None:
        """Show nothing."""


def _ignore(count: int = 1, **numbers: float | str) -> None:
    return None
