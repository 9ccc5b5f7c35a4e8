"""TRL's own reward functions by their names. TRL is imported only when a recipe uses one.

They read ``completion[0]["content"]``, so they are registered as wanting chat-shaped completions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trlmath.components import Register


def register_all(register: Register) -> None:
    """Register TRL 1.16's reward functions and reward factories."""
    for name in ("accuracy_reward", "reasoning_accuracy_reward", "think_format_reward"):
        register(name, f"trl.rewards:{name}", completions="chat")
    register("get_soft_overlong_punishment", get_soft_overlong_punishment)
    register("get_repetition_penalty_reward", get_repetition_penalty_reward)
    register("get_cosine_scaled_reward", get_cosine_scaled_reward, completions="chat")


def get_soft_overlong_punishment(max_completion_len: int, soft_punish_cache: int) -> Callable[..., Any]:
    """TRL: 0 up to `max_completion_len - soft_punish_cache` tokens, then down to -1 (arXiv:2503.14476)."""
    from trl.rewards import get_soft_overlong_punishment as make

    return make(max_completion_len, soft_punish_cache)


get_soft_overlong_punishment.conformance = {  # type: ignore[attr-defined]
    "options": {"max_completion_len": 6, "soft_punish_cache": 3}
}


def get_repetition_penalty_reward(ngram_size: int = 3, max_penalty: float = -1.0) -> Callable[..., Any]:
    """TRL: the share of repeated token n-grams (`ngram_size`) times `max_penalty` (arXiv:2502.03373, C.2)."""
    from trl.rewards import get_repetition_penalty_reward as make

    return make(ngram_size, max_penalty)


def get_cosine_scaled_reward(
    max_len: int,
    min_value_wrong: float = -1.0,
    max_value_wrong: float = -0.5,
    min_value_correct: float = 0.5,
    max_value_correct: float = 1.0,
) -> Callable[..., Any]:
    """TRL: correctness scaled by length along a cosine (arXiv:2502.03373, C.1).

    A right answer gets from `max_value_correct` (no tokens) to `min_value_correct` (`max_len` tokens), a
    wrong one from `min_value_wrong` to `max_value_wrong`.
    """
    from trl.rewards import get_cosine_scaled_reward as make

    return make(max_len, min_value_wrong, max_value_wrong, min_value_correct, max_value_correct)


get_cosine_scaled_reward.conformance = {"options": {"max_len": 20}}  # type: ignore[attr-defined]
