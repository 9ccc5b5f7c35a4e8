"""Whether a model keeps packed rows apart, found out by trying."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from trlmath.errors import RecipeError
from trlmath.training.sft_batches import IGNORED

ALLOWED = 1e-5  # of the largest logit: the same kernels on the same shapes, so nothing but chance order


@torch.no_grad()
def leak(
    model: Any, collate: Callable[[list[dict[str, Any]]], dict[str, Any]], rows: Sequence[Sequence[int]]
) -> float:
    """How much the logits of the last of `rows` change, relative to the largest, when the others do.

    Args:
        model: the module, as it is trained.
        collate: TRL's padding-free collator.
        rows: token ids; at least two rows.
    """
    device = next(model.parameters()).device
    size = model.get_input_embeddings().num_embeddings
    before, last = rows[:-1], list(rows[-1])
    others = [[(token + 1) % size for token in row] for row in before]
    training = model.training
    model.eval()
    try:
        logits = []
        for first in (before, others):
            given = [{"input_ids": list(r), "labels": [IGNORED] * len(r)} for r in [*first, last]]
            packed = collate(given)
            del packed["labels"]
            packed = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in packed.items()}
            logits.append(model(**packed, use_cache=False).logits[0, -len(last) :].float())
    finally:
        model.train(training)
    return float((logits[0] - logits[1]).abs().max() / logits[0].abs().max())


def check_rows_apart(
    model: Any, collate: Callable[[list[dict[str, Any]]], dict[str, Any]], rows: Sequence[Sequence[int]]
) -> None:
    """Raise RecipeError when a packed row sees the rows before it."""
    changed = leak(model, collate, rows)
    if not changed <= ALLOWED:  # NaN counts as a leak
        attention = getattr(model.config, "_attn_implementation", "its attention")
        raise RecipeError(
            f"batch.packing: with model.attention={attention} this model does not keep packed rows apart: "
            f"another text in front of a row changes its logits by {changed:.1%} of the largest. Use "
            "flash_attention_2 (on a GPU), sdpa or eager, or set batch.packing=false."
        )
