"""A filter for trlmath: keep prompts whose pass rate, followed over the steps, lies between two bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from trlmath import Drop, Group, Keep, PluginError, RecipeError, Rollout, hookimpl

trlmath_api = 1


@dataclass
class Difficulty:
    """Drop groups of problems whose running pass rate is below `low` or above `high`.

    ``rate = memory * rate + (1 - memory) * this step's``, with the weight `memory` on the past. The first
    `patience` groups of a problem are kept. `part`: what counts as passed, ``reward`` (above 0) or a part
    of the grade. Online difficulty filtering, arXiv:2504.03380.
    """

    low: float = 0.05
    high: float = 0.95
    memory: float = 0.5
    patience: int = 1
    part: str = "reward"
    moment: ClassVar[str] = "group"
    _seen: dict[str, tuple[float, int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high <= 1:
            raise RecipeError(f"difficulty needs 0 <= low < high <= 1; got {self.low} and {self.high}.")
        if not 0 <= self.memory < 1:
            raise RecipeError(f"difficulty needs 0 <= memory < 1; got {self.memory}.")
        if self.patience < 0:
            raise RecipeError(f"difficulty needs patience >= 0; got {self.patience}.")

    def __call__(self, item: Group) -> Keep | Drop:
        passed = [told for rollout in item.rollouts if (told := self._passed(rollout)) is not None]
        if not passed:
            return Drop("no scorable rollout")
        key = _key(item)
        rate, count = self._seen.get(key, (0.0, 0))
        now = sum(passed) / len(passed)
        rate = now if count == 0 else self.memory * rate + (1 - self.memory) * now
        self._seen[key] = (rate, count + 1)
        if count < self.patience:
            return Keep()
        if rate < self.low:
            return Drop("too hard so far")
        return Drop("too easy by now") if rate > self.high else Keep()

    def _passed(self, rollout: Rollout) -> bool | None:
        grade = rollout.grade
        if grade is None or grade.reward is None:
            return None
        if self.part == "reward":
            return grade.reward > 0
        if self.part not in grade.parts:
            raise PluginError(
                f"part: the grade has no part {self.part!r}; it has {', '.join(grade.parts) or 'none'}."
            )
        value = grade.parts[self.part]
        return None if value is None else value > 0

    def state_dict(self) -> dict[str, Any]:
        """Rate and number of groups of every problem seen, by a hash of its question."""
        return {"seen": {key: list(value) for key, value in self._seen.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._seen = {key: (float(rate), int(count)) for key, (rate, count) in state["seen"].items()}


def _key(item: Group) -> str:
    text = item.problem.question if item.problem else item.prompt
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@hookimpl
def register_filters(register):
    """Offer the filter under the name that recipes write."""
    register("difficulty", Difficulty)
