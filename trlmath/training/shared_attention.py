"""Attention of rows that lie end to end behind the prompt they share, without a copy of the prompt for each.

A prompt sees itself, a completion its prompt and itself. What is kept for the backward follows the tokens of
the sequence, however many completions a prompt has: the prompt's keys and values are kept once, no mask is.

On a CPU the completions of a prompt attend to it in one call and to themselves in one each; the halves are
joined by the normalisers of their softmaxes, which torch's kernel gives beside its result. Elsewhere kernels
differ, so each completion goes through torch's public attention, again in the backward instead of being kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers.integrations.sdpa_attention import repeat_kv

from trlmath.errors import TrainingError

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

_forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


@dataclass(frozen=True)
class Pieces:
    """How the tokens of a packed sequence belong together; travels to every layer as a keyword.

    Attributes:
        own: (start, end) of each prompt and each completion, in order; they make up the sequence.
        behind: for each prompt that completions share, (start, end) of it and (start, end) of all of them,
            which lie next to one another.
    """

    own: tuple[tuple[int, int], ...]
    behind: tuple[tuple[int, int, int, int], ...]

    def with_prompts(self) -> Iterator[tuple[slice, slice]]:
        """Each piece, and the prompt that it sees beside itself, which may be empty."""
        for start, end in self.own:
            prompt = next(((a, b) for a, b, c, d in self.behind if c <= start < d), (0, 0))
            yield slice(start, end), slice(*prompt)


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    pieces: Pieces,
    scale: float | None,
    dropout: float = 0.0,
) -> torch.Tensor:
    """Attention of one packed sequence of T tokens.

    Args:
        query: [1, heads, T, d]; key and value may have fewer heads, and value another d.
        pieces: how the tokens belong together.
        scale: of the scores; None: 1 / sqrt(d).
        dropout: must be 0.

    Returns:
        [1, T, heads, d of value], contiguous.

    Raises:
        TrainingError: the model drops attention weights.
    """
    if dropout:
        raise TrainingError(
            f"the model drops {dropout:g} of its attention weights, which rows that share prompts cannot: "
            "set model.attention: eager, which pads the rows instead"
        )
    device, width = query.device.type, value.size(-1)
    if width < query.size(-1):
        value = pad(value, (0, query.size(-1) - width))
    if torch.is_autocast_enabled(device):
        # as torch does for its own attention
        kind = torch.get_autocast_dtype(device)
        query, key, value = query.to(kind), key.to(kind), value.to(kind)
    function: Any = _Joined if device == "cpu" else _Recomputed
    output = function.apply(*(_dense(t) for t in (query, key, value)), pieces, scale)
    return output.transpose(1, 2)[..., :width].contiguous()


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _heads(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Key and value with as many heads as the query has."""
    repeats = query.size(1) // key.size(1)
    return repeat_kv(key, repeats), repeat_kv(value, repeats)


def _like_heads(gradient: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """The gradient of `tensor` from that of its repeated heads."""
    return gradient.unflatten(1, (tensor.size(1), -1)).sum(2)


def _at(start: int, end: int) -> tuple[slice, slice, slice]:
    return slice(None), slice(None), slice(start, end)


def _result(query: torch.Tensor) -> torch.Tensor:
    """Room for the output; laid out as the next layer takes it, so that it is kept once."""
    return torch.empty_like(query.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)


class _Joined(torch.autograd.Function):
    """Prompt and completion attended apart, joined by log-sum-exp; the kernels of torch's CPU attention.

    The gradient of either half is the kernel's own, given output and normaliser of the whole.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        pieces: Pieces,
        scale: float | None,
    ) -> torch.Tensor:
        keys, values = _heads(query, key, value)
        output = _result(query)
        norm = query.new_empty(query.shape[:3], dtype=torch.promote_types(query.dtype, torch.float32))
        for start, end in pieces.own:
            at = _at(start, end)
            output[at], norm[at] = _forward(query[at], keys[at], values[at], 0.0, True, scale=scale)
        for a, b, c, d in pieces.behind:
            to, at = _at(a, b), _at(c, d)
            seen, normaliser = _forward(query[at], keys[to], values[to], 0.0, False, scale=scale)
            share = torch.sigmoid(normaliser - norm[at])[..., None]
            output[at] = torch.lerp(output[at].to(share), seen.to(share), share).to(output)
            norm[at] = torch.logaddexp(norm[at], normaliser)
        ctx.save_for_backward(query, key, value, output, norm)
        ctx.pieces, ctx.scale = pieces, scale
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, output, norm = ctx.saved_tensors
        keys, values = _heads(query, key, value)
        given = _dense(gradient)
        of_query, of_keys, of_values = (
            torch.empty_like(query),
            torch.empty_like(keys),
            torch.empty_like(values),
        )

        def gradients(at: Any, to: Any, causal: bool) -> Tensors:
            halves = (given[at], query[at], keys[to], values[to], output[at], norm[at])
            found: Tensors = _backward(*halves, 0.0, causal, scale=ctx.scale)
            return found

        for start, end in ctx.pieces.own:
            at = _at(start, end)
            of_query[at], of_keys[at], of_values[at] = gradients(at, at, True)
        for a, b, c, d in ctx.pieces.behind:
            to, at = _at(a, b), _at(c, d)
            seen = gradients(at, to, False)
            of_query[at] += seen[0]
            of_keys[to] += seen[1]
            of_values[to] += seen[2]
        return of_query, _like_heads(of_keys, key), _like_heads(of_values, value), None, None


class _Recomputed(torch.autograd.Function):
    """Piece by piece through torch's public attention, on any device; nothing of it is kept."""

    @staticmethod
    def forward(
        ctx: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        pieces: Pieces,
        scale: float | None,
    ) -> torch.Tensor:
        ctx.save_for_backward(query, key, value)
        ctx.pieces, ctx.scale = pieces, scale
        keys, values = _heads(query, key, value)
        output = _result(query)
        for own, prompt in pieces.with_prompts():
            output[:, :, own] = _piece(_parts(query, keys, values, own, prompt), scale)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value = ctx.saved_tensors
        keys, values = _heads(query, key, value)
        of_query = torch.empty_like(query)
        of_keys, of_values = torch.zeros_like(keys), torch.zeros_like(values)
        for own, prompt in ctx.pieces.with_prompts():
            parts = [p.detach().requires_grad_() for p in _parts(query, keys, values, own, prompt)]
            with torch.enable_grad():
                output = _piece(parts, ctx.scale)
            found = torch.autograd.grad(output, parts, gradient[:, :, own])
            of_query[:, :, own] = found[0]
            of_keys[:, :, prompt] += found[1]
            of_keys[:, :, own] += found[2]
            of_values[:, :, prompt] += found[3]
            of_values[:, :, own] += found[4]
        return of_query, _like_heads(of_keys, key), _like_heads(of_values, value), None, None


def _parts(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, own: slice, prompt: slice
) -> list[torch.Tensor]:
    """A completion's queries; keys of its prompt and its own; values of its prompt and its own."""
    return [query[:, :, own], *(t[:, :, s] for t in (keys, values) for s in (prompt, own))]


def _piece(parts: Sequence[torch.Tensor], scale: float | None) -> torch.Tensor:
    """One completion of n tokens behind its prompt of p, which may be 0: [1, heads, n, d]."""
    query, prompt_keys, own_keys, prompt_values, own_values = parts
    keys, values = torch.cat([prompt_keys, own_keys], 2), torch.cat([prompt_values, own_values], 2)
    before, mask = prompt_keys.size(2), None
    if before:
        # aligned with the last key: torch's own `is_causal` is aligned with the first
        mask = torch.ones(query.size(2), keys.size(2), dtype=torch.bool, device=keys.device).tril(before)
    return scaled_dot_product_attention(
        query, keys, values, attn_mask=mask, is_causal=mask is None, scale=scale
    )
