"""The last token of a full batch of completions, all as long as they may be: what decoding takes at most."""

from __future__ import annotations

import torch
from transformers.cache_utils import Cache

from trlmath.sampling.settings import SamplingSettings
from trlmath.sampling.transformers_engine import TransformersSampler, _drawer, _eval_mode, read_prompts

PIECES = 64  # in which the cache grows, at most: about as much at once as token by token


@torch.no_grad()
def rehearse(
    sampler: TransformersSampler,
    prompts: int,
    n: int,
    prompt: int,
    completion: int,
    settings: SamplingSettings,
) -> None:
    """Read made-up prompts, grow the cache as if all but the last token had been decoded, and draw that one.

    Args:
        prompts: read at once, the first of them shorter, so that they are padded.
        n: completions of each.
        prompt, completion: tokens.
    """
    rows = prompts * n
    with sampler._open_model() as model, _eval_mode(model):
        ids = torch.zeros(prompts, prompt, dtype=torch.long, device=model.device)
        mask = torch.ones_like(ids)
        mask[0, : prompt - 1][:1] = 0
        cache, logits = read_prompts(model, ids, mask, n)
        mask = mask.repeat_interleave(n, 0)
        if completion > 1:
            grow(cache, completion - 2)
            at = mask.sum(-1)[:, None] + completion - 2
            mask = torch.cat([mask, mask.new_ones(rows, completion - 1)], -1)
            out = model(
                input_ids=ids.new_zeros(rows, 1),
                attention_mask=mask,
                position_ids=at,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            logits = out.logits[:, -1]
        generator = torch.Generator(device=model.device)
        generator.manual_seed(0)
        _drawer(settings, generator)(logits.float())


def grow(cache: Cache, tokens: int) -> None:
    """Add `tokens` made-up ones to every layer that keeps keys and values, piece by piece."""
    piece = max(1, -(-tokens // PIECES))
    for layer in cache.layers:
        keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
        if keys is None or values is None:
            continue
        keys, values = keys[..., :1, :], values[..., :1, :]
        for done in range(0, tokens, piece):
            shape = (*keys.shape[:-2], min(piece, tokens - done))
            layer.update(keys.expand(*shape, keys.shape[-1]), values.expand(*shape, values.shape[-1]))
