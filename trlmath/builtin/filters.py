"""The built-in filters: three for dataset rows before training, one for groups before the update."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from trlmath.errors import RecipeError
from trlmath.types import Decision, Drop, Group, Keep, Problem


@dataclass
class PromptLength:
    """Drop rows whose rendered prompt has more than `max` tokens or fewer than `min`."""

    max: int
    min: int = 0
    moment: ClassVar[Literal["example"]] = "example"
    conformance: ClassVar = {"options": {"max": 50}}

    def __post_init__(self) -> None:
        if not 0 <= self.min <= self.max:
            raise RecipeError(
                f"prompt_length needs 0 <= min <= max, in tokens; got min {self.min}, max {self.max}."
            )

    def bind(self, tokenizer: Any, prompt: Any) -> None:
        """Receive the model's tokenizer and the recipe's prompt, before the first row."""
        self._tokenizer, self._prompt = tokenizer, prompt

    def __call__(self, item: Problem) -> Decision:
        length = len(self._tokenizer(self._prompt.render(item.question))["input_ids"])
        if length > self.max:
            return Drop(f"prompt over {self.max} tokens")
        return Drop(f"prompt under {self.min} tokens") if length < self.min else Keep()


@dataclass
class GradableGold:
    """Drop rows whose gold answer is missing or cannot be read by the grader: no rollout could be scored."""

    moment: ClassVar[Literal["example"]] = "example"

    def __call__(self, item: Problem) -> Decision:
        if item.answer is None or not item.answer.strip():
            return Drop("no gold answer")
        from trlmath.grading import grade_answer

        # A gold that the grader cannot find equal to itself can never be rewarded.
        return Keep() if grade_answer(item.answer, item.answer).equal else Drop("gold answer unreadable")


@dataclass
class Duplicate:
    """Drop rows whose question was seen before, blind to case and to white space.

    `ignore_case: false` and `ignore_space: false` make it see them.
    """

    ignore_case: bool = True
    ignore_space: bool = True
    moment: ClassVar[Literal["example"]] = "example"
    _seen: set[str] = field(default_factory=set, init=False, repr=False)

    def __call__(self, item: Problem) -> Decision:
        text = item.question
        if self.ignore_space:
            text = re.sub(r"\s+", " ", text).strip()
        if self.ignore_case:
            text = text.casefold()
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if key in self._seen:
            return Drop("duplicate question")
        self._seen.add(key)
        return Keep()

    def state_dict(self) -> dict[str, Any]:
        """The hashes of the questions seen."""
        return {"seen": sorted(self._seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._seen = set(state["seen"])


@dataclass
class ZeroSpread:
    """Drop groups whose scorable rewards are all equal (to `tolerance`): their advantage is zero.

    The filter of dynamic sampling (DAPO, arXiv:2503.14476, section 3.2), without resampling.
    """

    tolerance: float = 0.0
    moment: ClassVar[Literal["group"]] = "group"

    def __post_init__(self) -> None:
        if self.tolerance < 0:
            raise RecipeError(f"zero_spread needs tolerance >= 0, got {self.tolerance}.")

    def __call__(self, item: Group) -> Decision:
        rewards = [
            r.grade.reward for r in item.rollouts if r.grade is not None and r.grade.reward is not None
        ]
        if not rewards:
            return Drop("no scorable rollout")
        return Drop("no spread in rewards") if max(rewards) - min(rewards) <= self.tolerance else Keep()
