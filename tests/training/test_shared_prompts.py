"""A packed sequence of rows behind their shared prompts against the same rows padded."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM
from trl.trainer.utils import add_fused_lm_head

from trlmath.training import shared_prompts as sp

PROMPTS = [7, 7, 7, 3, 3, 1, 1]
COMPLETIONS = [4, 9, 1, 5, 0, 6, 2]
WIDTH, KEEP = 9, 10


@pytest.fixture
def rows():
    """Padded rows of three prompts: input ids and mask."""
    generator = torch.Generator().manual_seed(0)
    prompts = {n: torch.randint(3, 250, (n,), generator=generator) for n in set(PROMPTS)}
    ids = torch.zeros(len(PROMPTS), WIDTH + KEEP, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, (p, c) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        ids[i, WIDTH - p : WIDTH] = prompts[p]
        ids[i, WIDTH : WIDTH + c] = torch.randint(3, 250, (c,), generator=generator)
        mask[i, WIDTH - p : WIDTH + c] = 1
    return ids, mask


@pytest.fixture
def model(tiny_dir):
    made = AutoModelForCausalLM.from_pretrained(tiny_dir, dtype="float32")
    add_fused_lm_head(made, temperature=0.7, outputs=("log_probs", "entropy"))
    return made


def graded(model, score):
    """Log-probabilities, entropies and the gradient of a weighted sum of both."""
    model.zero_grad()
    logps, entropies = score()
    weights = torch.randn(logps.shape, generator=torch.Generator().manual_seed(2))
    (logps * weights + 0.1 * entropies * weights).sum().backward()
    return logps, entropies, {n: p.grad.clone() for n, p in model.named_parameters()}


def padded(model, rows):
    ids, mask = rows
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :WIDTH] = -100
    output = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return output.log_probs[:, -KEEP:], output.entropy[:, -KEEP:]


def shared(model, rows):
    ids, mask = rows
    keys = sp.prompt_keys(ids[:, :WIDTH], mask[:, :WIDTH])
    packed = sp.pack(keys, PROMPTS, COMPLETIONS, WIDTH, ids.device)
    assert len(packed.rows) == sum(COMPLETIONS) + (7 - 1) + (3 - 1)
    return sp.score_packed(model, packed, ids, KEEP, entropy=True)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_log_probabilities_entropies_and_gradients_are_the_padded_rows(model, rows, checkpointing):
    expected = graded(model, lambda: padded(model, rows))
    assert sp.install(model) is None
    if checkpointing:
        model.gradient_checkpointing_enable()
        model.train()
    found = graded(model, lambda: shared(model, rows))
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(found[1], expected[1], atol=1e-5, rtol=0)
    for name, gradient in expected[2].items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(found[2][name], gradient, atol=1e-5 * scale, rtol=0)


def test_without_pieces_the_model_is_as_it_was(model, rows):
    before, _ = padded(model, rows)
    sp.install(model)
    assert torch.equal(padded(model, rows)[0], before)
    assert "trlmath" not in model.config.to_json_string()


def test_equal_prompts_have_equal_numbers(rows):
    ids, mask = rows
    assert sp.prompt_keys(ids[:, :WIDTH], mask[:, :WIDTH]) == [0, 0, 0, 1, 1, 2, 2]


def test_rows_without_any_completion_have_gradient_zero(model, rows):
    ids, _ = rows
    sp.install(model)
    packed = sp.pack([0] * 7, [7] * 7, [0] * 7, WIDTH, ids.device)
    logps, _ = sp.score_packed(model, packed, ids, KEEP)
    logps.sum().backward()
    assert all(p.grad is not None and float(p.grad.abs().max()) == 0 for p in model.parameters())


def test_rows_of_one_token_prompts_without_any_completion_still_have_a_forward(model):
    """A process with nothing to do makes one with its first row masked, whatever that row is."""
    sp.install(model)
    packed = sp.pack([0], [1], [0], 1, torch.device("cpu"))
    logps, _ = sp.score_packed(model, packed, torch.ones(1, 3, dtype=torch.long), 2)
    assert logps.shape == (1, 2)
    assert float(logps.abs().max()) == 0
    logps.sum().backward()
    assert all(p.grad is not None and float(p.grad.abs().max()) == 0 for p in model.parameters())


def small(**changes):
    sizes = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    return Qwen2ForCausalLM(Qwen2Config(**sizes, num_attention_heads=2, num_key_value_heads=1, **changes))


@pytest.mark.parametrize("family", ["llama", "qwen3", "phi3", "olmo2", "gemma"])
def test_other_families_of_models(family, rows):
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    sizes |= {"vocab_size": 256, "num_hidden_layers": 2, "head_dim": 8, "pad_token_id": 0}
    windows = {"sliding_window": None} if family == "phi3" else {}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes, **windows))
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    expected = padded(model, rows)[0]
    assert sp.install(model) is None
    torch.testing.assert_close(shared(model, rows)[0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attn_implementation": "eager"}, "attention is eager"),
        ({"attention_dropout": 0.1}, "drops attention weights (attention_dropout: 0.1)"),
        ({"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}, "without full attention"),
    ],
)
def test_models_that_cannot_share_say_why(changes, reason):
    model = small(**changes)
    own = model.config._attn_implementation
    assert reason in sp.install(model)
    assert model.config._attn_implementation == own
