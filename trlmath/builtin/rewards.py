"""The built-in rewards: what the grader says about a completion, and a length penalty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from trlmath.errors import RecipeError
from trlmath.types import Grade

Style = Literal["r1_zero", "boxed", "question_only", "gsm8k", "last_number"]


@dataclass(frozen=True)
class R1Zero:
    """CS336's reward: 1 when the r1_zero format is kept and the answer is right, else 0.

    Parts: ``format``, ``answer`` (right whatever the format), ``both``. ``mode: reference`` counts the
    format exactly as CS336's ``r1_zero_reward_fn`` does; ``strict`` closes its loopholes.
    """

    independent: ClassVar = True
    mode: Literal["strict", "reference"] = "strict"

    def __call__(
        self, completions: Sequence[str], answer: Sequence[Any], finish_reasons: Sequence[str] | None = None
    ) -> list[Grade]:
        return grade(completions, answer, "r1_zero", self.mode, finish_reasons)


@dataclass(frozen=True)
class Boxed:
    r"""1 when the last ``\boxed{...}`` of the final part is right, else 0.

    The style of DeepSeek and Qwen: a box inside unfinished thinking is a draft and does not count.
    """

    independent: ClassVar = True

    def __call__(
        self, completions: Sequence[str], answer: Sequence[Any], finish_reasons: Sequence[str] | None = None
    ) -> list[Grade]:
        return grade(completions, answer, "boxed", "strict", finish_reasons)


@dataclass(frozen=True)
class Accuracy:
    """1 when the answer is right whatever the format, else 0; `style` says where to look for it."""

    independent: ClassVar = True
    style: Style = "r1_zero"

    def __call__(
        self, completions: Sequence[str], answer: Sequence[Any], finish_reasons: Sequence[str] | None = None
    ) -> list[Grade]:
        grades = grade(completions, answer, self.style, "strict", finish_reasons)
        return [replace(g, reward=g.parts["answer"]) for g in grades]


@dataclass(frozen=True)
class Format:
    """1 when the format of `style` is kept, else 0, whatever the answer; `mode` as for ``r1_zero``."""

    independent: ClassVar = True
    style: Style = "r1_zero"
    mode: Literal["strict", "reference"] = "strict"

    def __post_init__(self) -> None:
        if self.mode == "reference" and self.style != "r1_zero":
            raise RecipeError(
                f"mode 'reference' exists for style 'r1_zero' only, not {self.style!r}: use strict."
            )

    def __call__(
        self,
        completions: Sequence[str],
        answer: Sequence[Any] | None = None,
        finish_reasons: Sequence[str] | None = None,
    ) -> list[Grade]:
        golds = [""] * len(completions) if answer is None else answer
        grades = grade(completions, golds, self.style, self.mode, finish_reasons)
        return [replace(g, reward=g.parts["format"]) for g in grades]


@dataclass(frozen=True)
class Length:
    """Penalty for length in tokens: 0 up to `target`, then straight down to -1 at `max` and beyond.

    DAPO's soft overlong punishment (arXiv:2503.14476, eq. 13): `target` is its L_max - L_cache, `max` its
    L_max.
    """

    independent: ClassVar = True
    target: int
    max: int
    conformance: ClassVar = {"options": {"target": 2, "max": 4}}

    def __post_init__(self) -> None:
        if not 0 <= self.target < self.max:
            raise RecipeError(
                f"length needs 0 <= target < max, in tokens; got target {self.target}, max {self.max}."
            )

    def __call__(self, completion_ids: Sequence[Sequence[int]]) -> list[float]:
        return [
            -min(max(len(ids) - self.target, 0) / (self.max - self.target), 1.0) for ids in completion_ids
        ]


def grade(
    completions: Sequence[str], golds: Sequence[Any], style: str, mode: str, finish: Sequence[str] | None
) -> list[Grade]:
    """Grade a batch; the grader is imported only now, since it brings sympy along."""
    from trlmath.grading import grade_responses

    return grade_responses(completions, golds, style, mode, finish_reasons=finish)
