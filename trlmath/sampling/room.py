"""What fits into the context: one rule for every engine, told before a token is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trlmath.errors import EngineError
from trlmath.sampling.settings import SamplingSettings


def model_context(config: Any) -> int | None:
    """The context of a model in tokens, by transformers' config of it; None when it does not say."""
    return getattr(config.get_text_config(), "max_position_embeddings", None)


def smaller(*contexts: int | None) -> int | None:
    """The smallest context that is known."""
    return min((context for context in contexts if context), default=None)


def check_room(prompts: Sequence[Sequence[int]], settings: SamplingSettings, context: int | None) -> None:
    """Raise EngineError when a prompt is empty, or leaves no room for `max_tokens` in `context` tokens.

    An engine left to itself would cut the completion short (vLLM) and say ``length``.
    """
    longest = max((len(p) for p in prompts), default=0)
    if any(len(p) == 0 for p in prompts):
        raise EngineError("A prompt has no tokens; every prompt needs at least one.")
    if context and longest + settings.max_tokens > context:
        raise EngineError(
            f"The longest prompt has {longest} tokens and sampling.max_tokens is {settings.max_tokens}: "
            f"together more than the engine's context of {context}. Lower sampling.max_tokens to at most "
            f"{max(context - longest, 0)}, or add the filter prompt_length."
        )


def check_pairs(
    prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]], context: int | None
) -> None:
    """Raise EngineError when there is not one completion a prompt, or a pair exceeds `context` tokens."""
    if len(prompts) != len(completions):
        raise EngineError(
            f"{len(prompts)} prompts and {len(completions)} completions cannot be scored: give one "
            "completion for each prompt."
        )
    if any(len(p) == 0 for p in prompts):
        raise EngineError("A prompt has no tokens; every prompt needs at least one.")
    longest = max((len(p) + len(c) for p, c in zip(prompts, completions, strict=True)), default=0)
    if context and longest > context:
        raise EngineError(
            f"A prompt and its completion have {longest} tokens together, more than the engine's context of "
            f"{context}. Score a shorter completion, or give the engine a larger context."
        )
