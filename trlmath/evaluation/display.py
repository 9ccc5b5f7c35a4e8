"""What a run tells the person watching; evaluation and training only know this protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from trlmath.data.shown import ShownRow
from trlmath.evaluation.report import EvaluationReport
from trlmath.types import Group


class Watch(Protocol):
    """What follows a training run for the person watching."""

    def advance(self, count: int = 1, **numbers: float | str) -> None:
        """`count` more steps are done."""

    def metrics(self, numbers: Mapping[str, float]) -> None:
        """A step's numbers, as ``metrics.jsonl`` names them."""

    def rollouts(self, groups: Sequence[Group], step: int) -> None:
        """A step's graded rollouts, of which one is shown."""


class Display(Protocol):
    """The terminal, a notebook, or nothing."""

    def note(self, text: str) -> None:
        """Say one line."""

    def bar(self, what: str, total: int) -> AbstractContextManager[Callable[..., None]]:
        """Show progress of `what`; yields ``advance(count, **numbers)``."""
        ...

    def training(self, what: str, total: int) -> AbstractContextManager[Watch]:
        """Show training of `total` steps."""
        ...

    def record(self, file: Path) -> None:
        """Write what is said from here on to `file` too."""

    def report(self, directory: Path) -> None:
        """Make the page of a run that has ended; never fails."""

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

    def training(self, what: str, total: int) -> AbstractContextManager[Watch]:
        """Show nothing."""
        return nullcontext(Unwatched())

    def record(self, file: Path) -> None:
        """Write nothing."""

    def report(self, directory: Path) -> None:
        """Make no page."""

    def rows(self, shown: Sequence[ShownRow]) -> None:
        """Show nothing."""

    def evaluation(self, report: EvaluationReport) -> None:
        """Show nothing."""

    def comparison(self, before: Sequence[EvaluationReport], after: Sequence[EvaluationReport]) -> None:
        """Show nothing."""


class Unwatched:
    """Nobody watches."""

    def advance(self, count: int = 1, **numbers: float | str) -> None:
        """Show nothing."""

    def metrics(self, numbers: Mapping[str, float]) -> None:
        """Show nothing."""

    def rollouts(self, groups: Sequence[Group], step: int) -> None:
        """Show nothing."""


def _ignore(count: int = 1, **numbers: float | str) -> None:
    return None
