"""Memory of decoding with the trainer's own module; pure arithmetic after the transformers engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trlmath.planning.facts import Facts
from trlmath.planning.shapes import Shape

MAX_ROWS = 256  # the engine's own default
# tensors of [rows, vocabulary] in float32 that drawing a token holds: logits, log-probabilities,
# noise, probabilities, their quotient
DRAWING = 5
SCORING = 4


def decoding(
    shape: Shape, facts: Facts, rows: int, together: int, options: Mapping[str, Any]
) -> dict[str, int]:
    """Bytes of the cache and of what drawing a token takes.

    Args:
        rows: completions asked for on one process.
        together: completions of one prompt.
    """
    most = int(options.get("max_rows", MAX_ROWS))
    at_once = min(rows, max(1, most // together) * together)
    cache = at_once * room(facts.longest_prompt, facts.max_tokens) * shape.cache_of_token
    text = shape.text
    heads, keys = text.num_attention_heads, getattr(text, "num_key_value_heads", None)
    size = getattr(text, "head_dim", None) or text.hidden_size // heads
    length = facts.longest_prompt + facts.max_tokens
    # padded prompts: keys and values are repeated for all heads, one layer at a time
    repeated = 2 * at_once * length * heads * size * shape.item if keys not in (None, heads) else 0
    logits = DRAWING * at_once * text.vocab_size * 4
    return {"cache": cache, "logits": max(logits, repeated)}


def scoring(shape: Shape, facts: Facts) -> int:
    """Bytes of one completion's distributions."""
    return SCORING * (facts.max_tokens + 1) * shape.text.vocab_size * 4


def room(prompt: int, completion: int) -> int:
    """Tokens that a growing cache has room for in the end."""
    held = prompt
    while held < prompt + completion:
        held = max(held + 1 + 16, int((held + 1) * 1.5))
    return held
