"""SamplingSettings: how completions are drawn, meaning the same thing on every engine."""

from __future__ import annotations

from dataclasses import dataclass

from trlmath.errors import RecipeError


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """Every field is always sent to the engine, so a model's own generation config cannot leak in.

    Attributes:
        temperature: divides the logits; 0 is greedy decoding.
        top_p: nucleus sampling, keeps the smallest set of tokens whose mass reaches it; 1 keeps all.
        top_k: keeps the `top_k` likeliest tokens; 0 keeps all.
        min_p: drops tokens less likely than `min_p` times the likeliest; 0 keeps all.
        min_tokens: end-of-text and stop strings cannot end a completion of fewer tokens.
        max_tokens: a completion of this many tokens is cut off (finish reason ``length``).
        stop: strings that end a completion; they stay part of its text.
        seed: makes the draw repeatable on one engine, one machine and one batch; None draws afresh.

    Raises:
        RecipeError: when a value is outside what is allowed.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    min_tokens: int = 0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        rules = {
            "temperature": (self.temperature >= 0, "0 (greedy) or more"),
            "top_p": (0 < self.top_p <= 1, "above 0 and at most 1"),
            "top_k": (self.top_k >= 0, "0 (all tokens) or more"),
            "min_p": (0 <= self.min_p <= 1, "between 0 and 1"),
            "min_tokens": (0 <= self.min_tokens <= self.max_tokens, "between 0 and max_tokens"),
            "max_tokens": (self.max_tokens >= 1, "1 or more"),
        }
        for key, (fine, allowed) in rules.items():
            if not fine:
                raise RecipeError(f"sampling.{key} is {getattr(self, key)!r}; allowed: {allowed}.")
        if any(not s for s in self.stop):
            raise RecipeError(
                "sampling.stop holds an empty string, which would end every completion at once."
            )
