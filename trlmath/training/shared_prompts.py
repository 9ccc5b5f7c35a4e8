"""Rows that share a prompt in one forward: the prompt's keys and values are computed once, nothing is padded.

The rows of a micro-batch lie end to end in one sequence: for each distinct prompt all its tokens but the
last, then for each of its completions the last prompt token and the completion (without its last token,
which predicts nothing). Linear layers see only useful tokens. In attention (`shared_attention`) a prompt
sees itself, a completion its prompt and itself; so does the gradient, which flows from every completion
into the one copy of the prompt. Log-probabilities and gradients are those of the padded rows, to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from trlmath.training.shared_attention import Pieces, attend

# the name under which transformers knows our attention: sdpa, until a forward comes with pieces
ATTENTION = "trlmath_shared_prompts"
# what configurations call the share of attention weights that are dropped while training
_DROPPED = ("attention_dropout", "attn_pdrop", "attention_probs_dropout_prob")


@dataclass(frozen=True)
class Packed:
    """A micro-batch as one sequence of T tokens.

    Attributes:
        rows, columns: [T], where each token stands in the padded rows.
        positions: [T], restarting after each prompt.
        target_rows, target_columns: [S] of the S scored tokens: row, and number within the completion.
        scored: [S], the packed positions that predict them.
        pieces: for attention.
    """

    rows: torch.Tensor
    columns: torch.Tensor
    positions: torch.Tensor
    target_rows: torch.Tensor
    target_columns: torch.Tensor
    scored: torch.Tensor
    pieces: Pieces


def prompt_keys(prompt_ids: torch.Tensor, prompt_mask: torch.Tensor) -> list[int]:
    """Number the distinct prompts of rows padded on the left: equal prompts, equal numbers; [rows]."""
    numbers: dict[tuple[int, ...], int] = {}
    return [
        numbers.setdefault(tuple(ids[-length:]), len(numbers))
        for ids, length in zip(prompt_ids.tolist(), prompt_mask.sum(-1).tolist(), strict=True)
    ]


def pack(
    keys: Sequence[int],
    prompt_lengths: Sequence[int],
    completion_lengths: Sequence[int],
    prompt_width: int,
    device: torch.device,
) -> Packed:
    """Lay rows end to end.

    Args:
        keys: which rows share a prompt, see `prompt_keys`.
        prompt_lengths, completion_lengths: tokens of each row; a completion may have none.
        prompt_width: columns of the padded prompts, which stand at their right end.
        device: of the tensors returned.
    """
    rows, columns, positions = list[int](), list[int](), list[int]()
    target_rows, target_columns, scored = list[int](), list[int](), list[int]()
    own, behind = list[tuple[int, int]](), list[tuple[int, int, int, int]]()
    members: dict[int, list[int]] = {}
    for row, key in enumerate(keys):
        members.setdefault(key, []).append(row)
    for group in members.values():
        first, before = group[0], prompt_lengths[group[0]] - 1
        start = prompt_width - prompt_lengths[first]
        lies = len(rows)
        if before:
            rows += [first] * before
            columns += range(start, start + before)
            positions += range(before)
            own.append((lies, lies + before))
        for row in group:
            size = completion_lengths[row]
            if not size:
                continue
            own.append((len(rows), len(rows) + size))
            scored += range(*own[-1])
            target_rows += [row] * size
            target_columns += range(size)
            rows += [row] * size
            columns += range(prompt_width - 1, prompt_width - 1 + size)
            positions += range(before, before + size)
        if before and len(rows) > lies + before:
            behind.append((lies, lies + before, lies + before, len(rows)))
    if not rows:
        # a forward needs a token: prompts of one token behind which nothing is to be scored have none
        rows, columns, positions, own = [0], [prompt_width - 1], [0], [(0, 1)]

    def tensor(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.long, device=device)

    return Packed(
        tensor(rows),
        tensor(columns),
        tensor(positions),
        tensor(target_rows),
        tensor(target_columns),
        tensor(scored),
        Pieces(tuple(own), tuple(behind)),
    )


def score_packed(
    model: Any, packed: Packed, input_ids: torch.Tensor, logits_to_keep: int, entropy: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probabilities, and entropies, of the completions; [rows, logits_to_keep], 0 where there is none.

    Args:
        model: with TRL's fused head (`add_fused_lm_head`) and our attention (`install`).
        packed: how the rows lie.
        input_ids: [rows, prompts + completions], padded.
        logits_to_keep: columns of the completions.
    """
    ids = input_ids[packed.rows, packed.columns]
    labels = torch.full_like(ids, -100)
    width = input_ids.size(1) - logits_to_keep
    labels[packed.scored] = input_ids[packed.target_rows, width + packed.target_columns]
    output = model(
        input_ids=ids[None],
        position_ids=packed.positions[None],
        # of four dimensions, so that transformers makes no mask of its own; our attention reads the pieces
        attention_mask=torch.ones(1, 1, 1, 1, dtype=torch.bool, device=ids.device),
        pieces=packed.pieces,
        shift_labels=labels[None],
        fused_lm_head=True,
    )

    def rows_of(values: torch.Tensor) -> torch.Tensor:
        # the sum of nothing keeps rows without any completion token in the graph, with gradient 0
        rows = values.new_zeros(input_ids.size(0), logits_to_keep) + values[0, :0].sum()
        return rows.index_put((packed.target_rows, packed.target_columns), values[0, packed.scored])

    return rows_of(output.log_probs), rows_of(output.entropy) if entropy else None


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    pieces: Pieces | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Transformers' sdpa, or ours where `pieces` says how a packed sequence [1, heads, T, d] lies."""
    if pieces is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    return attend(query, key, value, pieces, scaling, dropout), None


def reason_against(model: Any) -> str | None:
    """Why rows of this model cannot share prompts; None when they can."""
    config = model.config.get_text_config()
    if model.config._attn_implementation not in ("sdpa", ATTENTION):
        return f"attention is {model.config._attn_implementation}, it needs sdpa"
    if not getattr(model, "_supports_attention_backend", False):
        return f"{type(model).__name__} does not take attention functions"
    if config is not model.config:
        return f"{type(model).__name__} is no plain text model"
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    windowed = getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    if kinds != {"full_attention"} or (windowed and not getattr(config, "layer_types", None)):
        return f"{type(model).__name__} has layers without full attention"
    if getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None):
        return f"{type(model).__name__} has experts, which are balanced over padded rows"
    dropped = next((n for n in _DROPPED if getattr(config, n, None)), None)
    if dropped is not None:
        return f"{type(model).__name__} drops attention weights ({dropped}: {getattr(config, dropped):g})"
    return None


def install(model: Any) -> str | None:
    """Let `model` (unwrapped, no adapter around it) share prompts; returns why not, or None."""
    reason = reason_against(model)
    if reason is None:
        AttentionInterface.register(ATTENTION, attention)
        AttentionMaskInterface.register(ATTENTION, sdpa_mask)
        model.set_attn_implementation(ATTENTION)
    return reason
