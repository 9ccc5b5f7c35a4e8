"""Random models of about so many parameters, for benchmarks: Qwen2's shape, the same weights every time."""

from __future__ import annotations

from typing import Any

SIZES = {  # hidden, layers, intermediate, heads, key-value heads, vocabulary
    "135M": (576, 30, 1536, 9, 3, 49_152),
    "20M": (384, 10, 1024, 6, 2, 12_000),
    "5M": (256, 6, 640, 4, 2, 4_000),
    "1M": (128, 4, 320, 4, 2, 512),
}


def random_qwen2(size: str) -> Any:
    """A model of one of `SIZES`, in float32; it has no tokenizer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    hidden, layers, intermediate, heads, key_values, vocabulary = SIZES[size]
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_values,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=1,
        eos_token_id=0,
        bos_token_id=None,
    )
    return Qwen2ForCausalLM(config)
