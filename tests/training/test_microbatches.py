"""Cutting a step's rollouts: every row once, within the budget, trimmed, weights that add up."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trlmath.training import microbatches as mb

lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 60)), min_size=1, max_size=40)


@given(lengths, st.one_of(st.none(), st.integers(1, 400)))
def test_every_row_once_and_within_the_budget(pairs, budget):
    prompts, completions = zip(*pairs, strict=True)
    parts = mb.plan(prompts, completions, budget)
    assert sorted(row for part in parts for row in part) == list(range(len(pairs)))
    for part in parts:
        tokens = len(part) * (max(prompts[i] for i in part) + max(completions[i] for i in part))
        assert budget is None or tokens <= budget or len(part) == 1
    if budget is None:
        assert len(parts) == 1


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(1, 60)), min_size=1, max_size=40),
    st.one_of(st.none(), st.integers(1, 400)),
)
def test_rows_that_share_a_prompt_fill_the_budget_and_no_more(pairs, budget):
    keys, completions = zip(*pairs, strict=True)
    prompts = [7 + 3 * key for key in keys]
    parts = mb.plan_shared(keys, prompts, completions, budget)
    assert sorted(row for part in parts for row in part) == list(range(len(pairs)))
    for part in parts:
        tokens = sum({keys[i]: prompts[i] for i in part}.values()) + sum(completions[i] for i in part)
        assert budget is None or tokens <= budget or len(part) == 1
    if budget is None:
        assert len(parts) == 1


def test_a_prompt_is_not_computed_twice_where_its_rows_fit():
    assert mb.plan_shared([0, 1, 0, 1], [10, 10, 10, 10], [5, 5, 5, 5], 20) == [[0, 2], [1, 3]]
    assert mb.plan_shared([0, 1, 0, 1], [10, 10, 10, 10], [5, 5, 5, 5], 40) == [[0, 2, 1, 3]]


def batch(prompts, completions, width=5):
    """Rows of given lengths, padded as TRL does: prompts on the left, completions on the right."""
    p, c = max(prompts) + 2, max(completions) + width
    prompt_mask = torch.tensor([[0] * (p - n) + [1] * n for n in prompts])
    completion_mask = torch.tensor([[1] * n + [0] * (c - n) for n in completions])
    rows = torch.arange(1, len(prompts) + 1)[:, None]
    return {
        "prompt_ids": prompt_mask * rows,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_mask * rows,
        "completion_mask": completion_mask,
        "advantages": torch.arange(len(prompts)).float(),
        "importance_sampling_ratio": torch.ones(len(prompts), 1),
        "old_per_token_logps": completion_mask * 0.5,
        "num_items_in_batch": completion_mask.sum(),
    }


def test_rows_are_trimmed_to_their_own_longest():
    part = mb.take(batch([3, 7, 2], [4, 9, 6]), [0, 2])
    assert part["prompt_ids"].tolist() == [[1, 1, 1], [0, 3, 3]]
    assert part["completion_ids"].tolist() == [[1, 1, 1, 1, 0, 0], [3] * 6]
    assert part["old_per_token_logps"].shape == (2, 6)
    assert part["importance_sampling_ratio"].shape == (2, 1)
    assert part["advantages"].tolist() == [0, 2]
    assert part.tokens == 10
    assert part["num_items_in_batch"] == 19


def test_weights_of_row_means_add_up_to_one():
    whole = batch([3] * 6, [2, 3, 4, 5, 6, 7])
    parts = [mb.weigh(mb.take(whole, rows), "grpo", rows=6, tokens=27) for rows in ([0, 1, 2], [3, 4], [5])]
    assert sum(p.weight for p in parts) == pytest.approx(1)
    parts = [mb.weigh(mb.take(whole, rows), "bnpo", rows=6, tokens=27) for rows in ([0, 1, 2], [3, 4], [5])]
    assert sum(p.weight for p in parts) == pytest.approx(1)
    assert mb.weigh(mb.take(whole, [0]), "dapo", rows=6, tokens=27).weight == 1


def test_an_empty_part_counts_for_nothing():
    part = mb.empty(batch([3, 4], [2, 5]))
    assert (part.weight, part.tokens, int(part["completion_mask"].sum())) == (0, 0, 0)
    assert float(part["old_per_token_logps"].abs().sum()) == 0


def test_an_unknown_loss_type_is_refused_by_name():
    with pytest.raises(ValueError, match="'new_loss' has no known way of averaging"):
        mb.weigh(mb.take(batch([3], [2]), [0]), "new_loss", 1, 2)
