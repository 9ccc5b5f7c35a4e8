"""The two regimes of the paper, the quantile itself, and rollouts that could not be scored."""

import pytest
import torch
import trlmath_quantile_advantage
from trlmath_quantile_advantage import Quantile

from trlmath import RecipeError

NAN = float("nan")


def test_it_conforms(check_plugin):
    check_plugin(trlmath_quantile_advantage)


@pytest.mark.parametrize("right", range(1, 8))
def test_the_two_regimes(right):
    size, k = 8, 0.4
    rewards = torch.tensor([[1.0] * right + [0.0] * (size - right)])
    found = Quantile(k=k)(rewards)[0]
    if right / size <= 1 - k:  # hard: what is right is reinforced, what is wrong is left alone
        assert (found[:right] > 0).all()
        assert (found[right:] == 0).all()
    else:  # easy: what is wrong is punished, what is right is left alone
        assert (found[:right] == 0).all()
        assert (found[right:] < 0).all()


@pytest.mark.parametrize(
    ("k", "size", "baseline"),
    [(0.4, 5, 1), (0.41, 5, 2), (0.5, 4, 1), (0.5, 5, 2), (0.99, 4, 3), (0.01, 4, 0)],
)
def test_the_quantile_is_the_smallest_that_covers_the_share(k, size, baseline):
    rewards = torch.arange(float(size)).flip(0).unsqueeze(0)
    assert Quantile(k=k, std=False)(rewards)[0].tolist() == [r - baseline for r in range(size)][::-1]


def test_the_division_is_by_the_groups_own_spread():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    expected = 1.0 / (rewards.std() + 1e-6)
    assert torch.allclose(Quantile()(rewards), rewards * expected)


def test_what_could_not_be_scored_is_no_part_of_the_group():
    with_gap = Quantile()(torch.tensor([[1.0, NAN, 0.0, 0.0]]))[0]
    without = Quantile()(torch.tensor([[1.0, 0.0, 0.0]]))[0]
    assert with_gap[1] == 0
    assert torch.equal(with_gap[[0, 2, 3]], without)


def test_options_that_cannot_be():
    with pytest.raises(RecipeError, match="0 < k < 1"):
        Quantile(k=1.0)
