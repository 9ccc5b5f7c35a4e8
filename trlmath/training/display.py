"""What a run tells the person watching; training only knows this protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from trlmath.evaluation.report import EvaluationReport


class Display(Protocol):
    """The terminal, a notebook, or nothing."""

    def note(self, text: str) -> None:
        """Say one line."""

    def bar(self, what: str, total: int) -> AbstractContextManager[Callable[..., None]]:
        """Show progress of `what`; yields ``advance(count, **numbers)``."""
        ...

    def comparison(self, before: Sequence[EvaluationReport], after: Sequence[EvaluationReport]) -> None:
        """Show the evaluations before and after."""


class Silent:
    """Shows nothing: other processes than the first, and tests."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def bar(self, what: str, total: int) -> AbstractContextManager[Callable[..., None]]:
        """Show nothing."""
        return nullcontext(_ignore)

    def comparison(self, before: Sequence[EvaluationReport], after: Sequence[EvaluationReport]) -> None:
        """Show nothing."""


def _ignore(count: int = 1, **numbers: float | str) -> None:
    return None


def grouped(logs: Mapping[str, float]) -> dict[str, float]:
    """TRL's and transformers' metric names as the run directory's groups.

    ``reward`` becomes ``train/reward``, ``sampling/...`` becomes ``engine/...``; our own groups stay.
    """
    own = ("train/", "eval/", "eval_greedy/", "engine/", "time/")
    renamed = {}
    for name, value in logs.items():
        if name.startswith(own):
            renamed[name] = value
        elif name.startswith("sampling/"):
            renamed["engine/" + name.removeprefix("sampling/")] = value
        elif name == "step_time":
            renamed["time/step"] = value
        elif name not in ("epoch", "total_flos"):
            renamed[f"train/{name}"] = value
    return renamed
