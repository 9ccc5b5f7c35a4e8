"""A rehearsed end of generation holds what a real one does, and leaves the model as it was."""

from __future__ import annotations

import pytest
import torch
from tiny import save_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from trlmath.sampling.rehearsal import rehearse
from trlmath.sampling.settings import SamplingSettings
from trlmath.sampling.transformers_engine import TransformersSampler

PROMPT, N = 40, 3


@pytest.fixture(scope="module")
def sampler(tmp_path_factory):
    folder = save_tiny_model(tmp_path_factory.mktemp("model"), context=512)
    return TransformersSampler(
        AutoModelForCausalLM.from_pretrained(folder).train(), AutoTokenizer.from_pretrained(folder)
    )


def forwards(sampler, run):
    """Shapes of each forward and the room that the cache has after it."""
    seen = []

    def note(module, args, given, out):
        cache = given["past_key_values"]
        rows = tuple(given["input_ids"].shape)
        mask = tuple(given["attention_mask"].shape)
        seen.append((rows, mask, cache.get_seq_length(), cache.layers[0]._room_k.shape[-2]))
        seen[-1] += (int(given["position_ids"].max()),)

    hook = sampler.model.register_forward_hook(note, with_kwargs=True)
    try:
        run()
    finally:
        hook.remove()
    return seen


@pytest.mark.parametrize("tokens", [1, 2, 16, 300])
def test_the_last_forward_is_that_of_a_real_generation(sampler, tokens):
    settings = SamplingSettings(max_tokens=tokens, min_tokens=tokens)
    prompts = [[5] * (PROMPT - 1), [6] * PROMPT]
    real = forwards(sampler, lambda: sampler.generate(prompts, settings, n=N))
    tried = forwards(sampler, lambda: rehearse(sampler, 2, N, PROMPT, tokens, settings))
    assert len(tried) == min(2, tokens)
    assert tried[0] == real[0]
    assert (*tried[-1][:3], tried[-1][-1]) == (*real[-1][:3], real[-1][-1])
    assert real[-1][3] / 1.5 <= tried[-1][3] <= real[-1][3] * 1.5


def test_nothing_is_left(sampler):
    state = torch.get_rng_state()
    before = [p.clone() for p in sampler.model.parameters()]
    rehearse(sampler, 2, N, PROMPT, 16, SamplingSettings(max_tokens=16))
    assert torch.equal(state, torch.get_rng_state())
    assert sampler.model.training
    for old, new in zip(before, sampler.model.parameters(), strict=True):
        assert torch.equal(old, new)
        assert new.grad is None
