"""What the update allocates on a process beside the weights: what a colocated engine must leave free."""

from __future__ import annotations

from typing import Any

# numbers that an optimizer keeps for each trained parameter; one that is not here: two, as Adam
_NUMBERS = {"sgd": 0.0, "adafactor": 0.025, "adagrad": 1.0, "rmsprop": 1.0, "lion": 1.0, "ademamix": 3.0}
# bytes of a quantised one, with the scales of its blocks and the small tensors that stay whole
_QUANTISED = {"8bit": 1.05, "4bit": 0.55}


def update_reserve(
    model: Any, optimizer: str, tokens: int, checkpointing: bool, bf16: bool, asleep: bool
) -> int:
    """Bytes that the update allocates and the engine must not take; an estimate.

    Args:
        model: the trainer's; its parameters are allocated already.
        optimizer: transformers' name, ``trainer.optim``.
        tokens: padded tokens of one forward.
        checkpointing: activations of a layer are computed again instead of kept.
        bf16: the forward computes in bfloat16.
        asleep: the engine's memory is free during the update, so only what stays between updates counts.
    """
    trained = [p for p in model.parameters() if p.requires_grad]
    gradients = sum(p.numel() * p.element_size() for p in trained)
    size = trained[0].element_size() if trained else 0
    states = int(sum(p.numel() for p in trained) * state_bytes(optimizer, size))
    if asleep:
        return states
    size = 2 if bf16 else next(model.parameters()).element_size()
    config = model.config.get_text_config()
    return states + gradients + activation_bytes(config, tokens, size, checkpointing)


def state_bytes(optimizer: str, size: int) -> float:
    """Bytes that an optimizer keeps for each trained parameter.

    Args:
        optimizer: transformers' name, ``trainer.optim``.
        size: bytes of a parameter.
    """
    kind = optimizer.removeprefix("paged_").split("_")[0]
    return _NUMBERS.get(kind, 2.0) * next((s for word, s in _QUANTISED.items() if word in optimizer), size)


def activation_bytes(config: Any, tokens: int, size: int, checkpointing: bool) -> int:
    """Activations that one forward of a decoder (Llama's or Qwen's shape) keeps for its backward.

    Args:
        config: transformers'.
        tokens: padded tokens.
        size: bytes of a number in the forward.
        checkpointing: see `update_reserve`.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    heads = config.num_attention_heads
    wide = (getattr(config, "head_dim", None) or hidden // heads) * heads
    groups = getattr(config, "num_key_value_heads", None) or heads
    narrow = wide // heads * groups
    # two norms (input in float32 and output), q, k, v, attention's output, o_proj's; gate, up, their product
    layer = 2 * (4 + size) * hidden + size * (2 * wide + 2 * narrow + hidden + 4 * inner)
    kept = (
        size * hidden * config.num_hidden_layers + layer
        if checkpointing
        else layer * config.num_hidden_layers
    )
    # the head is computed in pieces; one of them, in float32, forward and backward
    head = min(tokens, 1024) * config.vocab_size * 4 * 2
    return tokens * kept + head
