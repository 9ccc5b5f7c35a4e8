"""What the update allocates on a process beside the weights: what a colocated engine must leave free."""

from __future__ import annotations

from typing import Any

# bytes of optimizer state for each trained parameter, as multiples of the parameter's own size
_STATES = {"sgd": 0.0, "adafactor": 0.1, "lion": 1.0, "muon": 1.0, "rmsprop": 1.0, "adagrad": 1.0}
# a tensor of fewer elements keeps its states whole
_QUANTISED = ("8bit", "4bit")


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
    states = sum(p.numel() for p in trained) * _state_bytes(optimizer, trained)
    if asleep:
        return int(states)
    size = 2 if bf16 else next(model.parameters()).element_size()
    return (
        int(states)
        + gradients
        + activation_bytes(model.config.get_text_config(), tokens, size, checkpointing)
    )


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


def _state_bytes(optimizer: str, trained: list[Any]) -> float:
    if any(word in optimizer for word in _QUANTISED):
        return 2.0
    size = trained[0].element_size() if trained else 0
    name = optimizer.lower()
    known = [factor for word, factor in _STATES.items() if name.startswith(word) or f"_{word}" in name]
    return (known[0] if known else 2.0) * size
