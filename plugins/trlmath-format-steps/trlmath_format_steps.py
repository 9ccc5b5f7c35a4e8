"""A reward for trlmath: partial credit for every step of the r1_zero format, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trlmath import Grade, RecipeError, hookimpl

STEPS = ("think_end", "answer_open", "answer_text", "answer_end")


@dataclass(frozen=True)
class FormatSteps:
    """The share of the format's first `steps` steps that a completion takes, in order.

    ``</think>`` once; ``<answer>`` right after it; text inside; ``</answer>`` once and last. A reward
    between 0 and 1 for base models whose completions would all get 0 from ``r1_zero``.
    """

    steps: int = len(STEPS)

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= len(STEPS):
            raise RecipeError(f"format_steps needs 1 <= steps <= {len(STEPS)}; got {self.steps}.")

    def __call__(self, completions: Sequence[str]) -> list[Grade]:
        return [self._grade(text) for text in completions]

    def _grade(self, text: str) -> Grade:
        taken = steps_taken(text)
        parts = {name: float(position < taken) for position, name in enumerate(STEPS[: self.steps])}
        missing = next((name for name, part in parts.items() if not part), None)
        return Grade(
            reward=sum(parts.values()) / self.steps,
            parts=parts,
            category=f"no_{missing}" if missing else "all_steps",
            reason=f"the first step not taken is {missing}" if missing else "every step is taken",
        )


def steps_taken(text: str) -> int:
    """Return how many of `STEPS` the text takes before the first that it misses."""
    if text.count("</think>") != 1:
        return 0
    tail = text.partition("</think>")[2].lstrip()
    if not tail.startswith("<answer>"):
        return 1
    inside, end, rest = tail.removeprefix("<answer>").partition("</answer>")
    if not inside.replace("<answer>", "").strip():
        return 2
    return 4 if end and not rest.strip() and "<answer>" not in inside else 3


@hookimpl
def register_rewards(register):
    """Offer the reward under the name that recipes write."""
    register("format_steps", FormatSteps)
