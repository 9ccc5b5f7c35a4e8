"""Attention of rows behind shared prompts against each row by itself, and what it keeps for the backward."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl.trainer.utils import add_fused_lm_head

from trlmath.errors import TrainingError
from trlmath.training import shared_attention
from trlmath.training import shared_prompts as sp

HEADS, KEY_HEADS, WIDTH = 4, 2, 8
# prompts, their completions, as (prompt tokens, tokens of completions)
GROUPS = [(7, [4, 9, 1]), (3, [5, 0]), (1, [6, 2])]


def packed(groups):
    """Rows of `groups` as they lie, and how many columns the padded rows have."""
    rows = [(key, prompt, size) for key, (prompt, sizes) in enumerate(groups) for size in sizes]
    keys, prompts, completions = zip(*rows, strict=True)
    width = max(prompts)
    return sp.pack(keys, prompts, completions, width, torch.device("cpu")), len(rows), width, max(completions)


def tensors(tokens, value_width=WIDTH, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = [(HEADS, WIDTH), (KEY_HEADS, WIDTH), (KEY_HEADS, value_width)]
    made = [torch.randn(1, heads, tokens, width, generator=generator) for heads, width in shapes]
    return [tensor.to(dtype).requires_grad_() for tensor in made]


def by_itself(query, key, value, pieces):
    """The definition: all keys of the sequence, masked to the piece's own past and its prompt."""
    seen = torch.zeros(query.size(2), query.size(2), dtype=torch.bool)
    for start, end in pieces.own:
        seen[start:end, start:end] = torch.ones(end - start, end - start).tril().bool()
    for a, b, c, d in pieces.behind:
        seen[c:d, a:b] = True
    repeated = (t.repeat_interleave(HEADS // KEY_HEADS, 1) for t in (key, value))
    return scaled_dot_product_attention(query, *repeated, attn_mask=seen, scale=0.3).transpose(1, 2)


@pytest.mark.parametrize("value_width", [WIDTH, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", ["_Joined", "_Recomputed"])
def test_output_and_gradients_are_those_of_a_mask(monkeypatch, function, dtype, value_width):
    """`_Recomputed` is what other devices than CPUs get."""
    monkeypatch.setattr(shared_attention, "_Joined", getattr(shared_attention, function))
    pieces = packed(GROUPS)[0].pieces
    given, exact = (tensors(pieces.own[-1][1], value_width, kind) for kind in (dtype, torch.float32))
    found, expected = shared_attention.attend(*given, pieces, 0.3), by_itself(*exact, pieces)
    assert found.dtype == dtype
    assert found.is_contiguous()
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    close = {"atol": 1e-6 if dtype == torch.float32 else 0.05, "rtol": 0.0}
    torch.testing.assert_close(found.float(), expected, **close)
    (found * weights.to(dtype)).sum().backward()
    (expected * weights).sum().backward()
    for ours, theirs in zip(given, exact, strict=True):
        largest = float(theirs.grad.abs().max())
        torch.testing.assert_close(ours.grad.float() / largest, theirs.grad / largest, **close)


def test_dropped_attention_weights_are_refused():
    pieces = packed(GROUPS)[0].pieces
    with pytest.raises(TrainingError, match="drops 0.1 of its attention weights"):
        shared_attention.attend(*tensors(pieces.own[-1][1]), pieces, None, dropout=0.1)


@pytest.fixture(scope="module")
def wide():
    """A model whose activations outweigh what does not follow tokens."""
    sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2}
    model = Qwen2ForCausalLM(Qwen2Config(**sizes, num_attention_heads=4, num_key_value_heads=2))
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    assert sp.install(model) is None
    return model


def kept(model, groups):
    """(tokens, bytes that the forward keeps for the backward), each storage once; weights do not count."""
    rows, count, width, longest = packed(groups)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    # held, or the next tensor could lie where one that is gone lay
    held = dict[int, torch.UntypedStorage]()

    def hold(tensor):
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(hold, lambda tensor: tensor):
        sp.score_packed(model, rows, torch.ones(count, width + longest, dtype=torch.long), longest)
    return len(rows.rows), sum(s.nbytes() for at, s in held.items() if at not in weights)


@pytest.mark.parametrize("function", ["_Joined", "_Recomputed"])
def test_what_is_kept_for_the_backward_follows_the_tokens(monkeypatch, wide, function):
    """Not how they fall on prompts and completions; the rows' own log-probabilities aside."""
    monkeypatch.setattr(shared_attention, "_Joined", getattr(shared_attention, function))
    shapes = [[(256, [256])], [(64, [56] * 8)], [(256, [4] * 64)], [(384, [1] * 128)]]
    found = [kept(wide, groups) for groups in shapes]
    assert {tokens for tokens, _ in found} == {511}
    assert max(size for _, size in found) <= 1.1 * min(size for _, size in found)
