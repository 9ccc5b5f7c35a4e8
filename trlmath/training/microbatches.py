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
# step, which is what TRL computes when a step is one uncut batch on one process. A truncated row that is
# masked still counts as a row, as in TRL; rows of dropped groups are out of the sum and of the count alike.
MEAN_OVER_ROWS = frozenset({"grpo", "sapo", "dr_grpo", "luspo"})
MEAN_OVER_TOKENS = frozenset({"bnpo"})
SUM_OVER_FIXED = frozenset({"dapo", "cispo", "vespo"})


class MicroBatch(dict):
    """Tensors of some rows, and what their loss counts for.

    Attributes:
        weight: factor for the loss of this micro-batch.
        token_share: factor for means over tokens beside the loss (an entropy bonus).
        tokens: completion tokens trained on, for weighing metrics.
    """

    weight: float = 1.0
    token_share: float = 1.0
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


def plan_shared(
    keys: Sequence[int], prompt_lengths: Sequence[int], completion_lengths: Sequence[int], budget: int | None
) -> list[list[int]]:
    """Partition rows that lie end to end behind the prompt they share into micro-batches of `budget` tokens.

    Rows of one prompt stay together where they fit; a prompt whose rows do not fit is computed once for
    each piece. A row longer than the budget goes alone.

    Args:
        keys: equal numbers for rows of one prompt.
        prompt_lengths, completion_lengths: tokens of each row.
        budget: None puts all rows into one.

    Returns:
        row numbers of each micro-batch, the fullest first.
    """
    members: dict[int, list[int]] = {}
    for row in sorted(range(len(keys)), key=lambda i: (-completion_lengths[i], i)):
        members.setdefault(keys[row], []).append(row)
    pieces: list[tuple[int, list[int]]] = []
    for rows in members.values():
        cost, piece = prompt_lengths[rows[0]], list[int]()
        for row in rows:
            if piece and budget is not None and cost + completion_lengths[row] > budget:
                pieces.append((cost, piece))
                cost, piece = prompt_lengths[row], []
            cost += completion_lengths[row]
            piece.append(row)
        pieces.append((cost, piece))
    pieces.sort(key=lambda piece: -piece[0])
    batches: list[tuple[int, list[int]]] = []
    for cost, rows in pieces:
        fits = (i for i, (used, _) in enumerate(batches) if budget is None or used + cost <= budget)
        place = next(fits, None)
        if place is None:
            batches.append((cost, rows))
        else:
            batches[place] = (batches[place][0] + cost, batches[place][1] + rows)
    return [rows for _, rows in sorted(batches, key=lambda batch: -batch[0])]


def joined(batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (input ids, attention mask), each [rows, prompt + completion]."""
    return (
        torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1),
        torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1),
    )


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
    for key in _COMPLETION_KEYS:
        # log-probabilities too: against a masked token's 0 a very unlikely one would give 0 x inf
        if key in part and key != "completion_ids":
            part[key] = torch.zeros_like(part[key])
    part.weight, part.token_share, part.tokens = 0.0, 0.0, 0
    return part


def weigh(part: MicroBatch, loss_type: str, rows: float, tokens: float) -> MicroBatch:
    """Set the weight of `part` in a step whose mean process has `rows` counted rows and `tokens` tokens.

    Means over processes (a fraction) make the average of gradients over processes the gradient of the
    whole, however unevenly the rows fell.
    """
    counted = int((_counted(part).sum(-1) > 0).sum())
    size = part["completion_ids"].size(0)
    part.token_share = part.tokens / max(tokens, 1e-9)
    if loss_type in MEAN_OVER_ROWS:
        part.weight = size / max(rows, 1e-9) if counted else 0.0
    elif loss_type in MEAN_OVER_TOKENS:
        part.weight = part.token_share
    elif loss_type in SUM_OVER_FIXED:
        part.weight = 1.0
    else:
        known = ", ".join(sorted(MEAN_OVER_ROWS | MEAN_OVER_TOKENS | SUM_OVER_FIXED))
        raise ValueError(f"loss_type {loss_type!r} has no known way of averaging; known: {known}")
    return part


def _counted(part: Batch) -> torch.Tensor:
    mask = part["completion_mask"]
    return mask * part["tool_mask"] if "tool_mask" in part else mask
