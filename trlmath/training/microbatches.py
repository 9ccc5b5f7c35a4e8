"""Cut one optimizer step's rollouts into micro-batches by token budget; pure, knows no trainer.

Each micro-batch is padded to its own longest row only, and carries the weight that makes the sum of
the micro-batches' losses equal to the loss of the uncut batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

Batch = Mapping[str, Any]

# tensors whose second dimension is the completion's (it may also be 1: one value a row)
_COMPLETION_KEYS = (
    "completion_ids",
    "completion_mask",
    "tool_mask",
    "advantages",
    "old_per_token_logps",
    "ref_per_token_logps",
    "sampling_per_token_logps",
    "importance_sampling_ratio",
)
_PROMPT_KEYS = ("prompt_ids", "prompt_mask")

# How a loss type averages, and so what share of the whole a micro-batch's own mean stands for.
# TRL takes these means per process and per accumulation step; we take them over the whole optimizer
# step, which is what TRL computes when a step is one uncut batch on one process. Rows masked as a whole
# (truncated ones, dropped groups) are out of the sum and of the count alike; TRL would still count them.
MEAN_OVER_ROWS = frozenset({"grpo", "sapo", "dr_grpo", "luspo"})
MEAN_OVER_TOKENS = frozenset({"bnpo"})
SUM_OVER_FIXED = frozenset({"dapo", "cispo", "vespo"})


class MicroBatch(dict):
    """Tensors of some rows, and what their loss counts for.

    Attributes:
        weight: factor for the loss of this micro-batch.
        tokens: completion tokens trained on, for weighing metrics.
    """

    weight: float = 1.0
    tokens: int = 0


def row_lengths(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (prompt, completion) lengths in tokens, each [rows].

    The completion's is where its last counted token stands: rows masked as a whole have length 0.
    """
    mask = batch["completion_mask"].bool()
    positions = torch.arange(1, mask.size(1) + 1, device=mask.device)
    return batch["prompt_mask"].sum(-1), (mask * positions).amax(-1)


def plan(
    prompt_lengths: Sequence[int], completion_lengths: Sequence[int], budget: int | None
) -> list[list[int]]:
    """Partition rows into micro-batches of at most `budget` padded tokens; a longer row goes alone.

    Args:
        prompt_lengths, completion_lengths: tokens of each row.
        budget: None puts all rows into one.

    Returns:
        row numbers of each micro-batch, longest rows first, so that a budget too large for the memory
        shows at the first step.
    """
    order = sorted(range(len(prompt_lengths)), key=lambda i: (-completion_lengths[i], -prompt_lengths[i], i))
    batches: list[list[int]] = []
    prompt = completion = 0
    for row in order:
        wide = max(prompt, prompt_lengths[row]) + max(completion, completion_lengths[row])
        if batches and (budget is None or wide * (len(batches[-1]) + 1) <= budget):
            batches[-1].append(row)
            prompt, completion = max(prompt, prompt_lengths[row]), max(completion, completion_lengths[row])
        else:
            batches.append([row])
            prompt, completion = prompt_lengths[row], completion_lengths[row]
    return batches


def take(batch: Batch, rows: Sequence[int]) -> MicroBatch:
    """Return `rows` of `batch`, trimmed to the longest prompt and completion among them."""
    index = torch.as_tensor(list(rows), device=batch["completion_ids"].device)
    prompts, completions = row_lengths(batch)
    prompt = max(int(prompts[index].max()), 1)
    completion = max(int(completions[index].max()), 1)
    full = batch["completion_ids"].size(1)
    part = MicroBatch()
    for key, value in batch.items():
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            part[key] = value
            continue
        value = value[index]
        if key in _PROMPT_KEYS:
            value = value[:, -prompt:]
        elif key in _COMPLETION_KEYS and value.dim() == 2 and value.size(1) == full:
            value = value[:, :completion]
        part[key] = value
    part.tokens = int(_counted(part).sum())
    return part


def empty(batch: Batch) -> MicroBatch:
    """A micro-batch of one row that counts for nothing, for ranks that have fewer than the others."""
    part = take(batch, [0])
    part["completion_mask"] = torch.zeros_like(part["completion_mask"])
    part.weight, part.tokens = 0.0, 0
    return part


def weigh(part: MicroBatch, loss_type: str, rows: float, tokens: float) -> MicroBatch:
    """Set the weight of `part` in a step whose mean process has `rows` trained rows and `tokens` tokens.

    Means over processes (a fraction) make the average of gradients over processes the gradient of the
    whole, however unevenly the rows fell.
    """
    counted = int((_counted(part).sum(-1) > 0).sum())
    size = part["completion_ids"].size(0)
    if loss_type in MEAN_OVER_ROWS:
        part.weight = size / max(rows, 1e-9) if counted else 0.0
    elif loss_type in MEAN_OVER_TOKENS:
        part.weight = part.tokens / max(tokens, 1e-9)
    elif loss_type in SUM_OVER_FIXED:
        part.weight = 1.0
    else:
        known = ", ".join(sorted(MEAN_OVER_ROWS | MEAN_OVER_TOKENS | SUM_OVER_FIXED))
        raise ValueError(f"loss_type {loss_type!r} has no known way of averaging; known: {known}")
    return part


def _counted(part: Batch) -> torch.Tensor:
    mask = part["completion_mask"]
    return mask * part["tool_mask"] if "tool_mask" in part else mask
