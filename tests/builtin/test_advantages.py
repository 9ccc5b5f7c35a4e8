"""The built-in advantages: their formulas, NaN, ties, and TRL's own numbers."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trl.trainer.utils import nanstd as trl_nanstd

from trlmath.builtin.advantages import BatchAdvantage, GroupAdvantage, NoBaseline, RlooAdvantage
from trlmath.errors import PluginError

ALL = [GroupAdvantage(), GroupAdvantage(std=False), BatchAdvantage(), BatchAdvantage("batch")]
ALL += [RlooAdvantage(), NoBaseline()]
NAN = float("nan")


def trl_advantages(rewards, scale):
    """What GRPOTrainer does inline for `scale_rewards` (trl 1.16, sum_then_normalize), on [groups, size]."""
    flat, size = rewards.flatten(), rewards.shape[1]
    mean = torch.nanmean(flat.view(-1, size), dim=1).repeat_interleave(size)
    advantages = flat - mean
    if scale == "group":
        advantages = advantages / (trl_nanstd(flat.view(-1, size), dim=1).repeat_interleave(size) + 1e-4)
    if scale == "batch":
        advantages = advantages / (trl_nanstd(flat).expand_as(flat) + 1e-4)
    return torch.nan_to_num(advantages, nan=0.0).view_as(rewards)


def random_rewards(seed, kind, missing):
    generator = torch.Generator().manual_seed(seed)
    rewards = torch.rand((6, 8), generator=generator)
    if kind == "binary":
        rewards = (rewards > 0.6).float()
    if missing:
        rewards[torch.rand((6, 8), generator=generator) < 0.2] = NAN
    return rewards


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", ["real", "binary"])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("ours", "scale"),
    [
        (GroupAdvantage(std=True, eps=1e-4), "group"),
        (GroupAdvantage(std=False), "none"),
        (BatchAdvantage("group", eps=1e-4), "batch"),
    ],
)
def test_equals_trl(ours, scale, seed, kind, missing):
    rewards = random_rewards(seed, kind, missing)
    torch.testing.assert_close(ours(rewards), trl_advantages(rewards, scale), rtol=0, atol=1e-6)


def test_group_by_hand():
    rewards = torch.tensor([[1.0, 0, 0, 0], [2.0, 2, 0, 0]])
    # means 1/4 and 1; sample stds 1/2 and sqrt(4/3)
    expected = torch.tensor([[1.5, -0.5, -0.5, -0.5], [1.0, 1, -1, -1]])
    expected[1] /= (4 / 3) ** 0.5
    torch.testing.assert_close(GroupAdvantage(eps=0.0)(rewards), expected)
    torch.testing.assert_close(GroupAdvantage(std=False)(rewards), rewards - torch.tensor([[0.25], [1.0]]))


def test_eps_is_added_to_the_std():
    rewards = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    assert GroupAdvantage(eps=1.0)(rewards)[0, 0] == pytest.approx(1 / (2**0.5 + 1))


def test_rloo_by_hand():
    rewards = torch.tensor([[3.0, 0.0, 6.0]])
    torch.testing.assert_close(RlooAdvantage()(rewards), torch.tensor([[0.0, -4.5, 4.5]]))
    with_gap = torch.tensor([[3.0, NAN, 6.0]])
    torch.testing.assert_close(RlooAdvantage()(with_gap), torch.tensor([[-3.0, 0.0, 3.0]]))


def test_batch_by_hand():
    rewards = torch.tensor([[1.0, 0.0], [5.0, 2.0]], dtype=torch.float64)
    std = rewards.std()
    torch.testing.assert_close(BatchAdvantage("batch", eps=0.0)(rewards), (rewards - 2.0) / std)
    group = rewards - rewards.mean(1, keepdim=True)
    torch.testing.assert_close(BatchAdvantage("group", eps=0.0)(rewards), group / std)


def test_none_is_the_reward():
    rewards = torch.tensor([[1.0, NAN], [0.5, -2.0]])
    assert NoBaseline()(rewards).tolist() == [[1.0, 0.0], [0.5, -2.0]]


@pytest.mark.parametrize("advantage", ALL, ids=str)
def test_nan_is_exactly_zero_and_others_do_not_see_it(advantage):
    rewards = torch.tensor([[1.0, NAN, 0.0, 1.0], [NAN, NAN, NAN, NAN], [0.0, 1.0, NAN, 5.0]])
    out = advantage(rewards)
    assert out.shape == rewards.shape
    assert out.isfinite().all()
    assert (out[rewards.isnan()] == 0).all()
    if isinstance(advantage, (GroupAdvantage, RlooAdvantage)):
        torch.testing.assert_close(out[0, [0, 2, 3]], advantage(torch.tensor([[1.0, 0.0, 1.0]]))[0])


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1 / 3, -7.3, 1e-8, 1e8])
@pytest.mark.parametrize("advantage", ALL[:-1], ids=str)
def test_a_constant_group_is_exactly_zero(advantage, value):
    for size in (2, 3, 7, 8):
        rewards = torch.full((1, size), value)
        assert (advantage(rewards) == 0).all()


@pytest.mark.parametrize("advantage", ALL, ids=str)
def test_a_lonely_scorable_rollout_is_finite(advantage):
    out = advantage(torch.tensor([[NAN, 2.0, NAN]]))
    assert out.isfinite().all()
    assert out[0, 1] == (2.0 if isinstance(advantage, NoBaseline) else 0.0)


@pytest.mark.parametrize("advantage", ALL, ids=str)
def test_the_rewards_given_are_not_changed(advantage):
    rewards = torch.tensor([[1.0, NAN, 0.0]])
    before = rewards.clone()
    advantage(rewards)
    torch.testing.assert_close(rewards, before, equal_nan=True)


@pytest.mark.parametrize("advantage", ALL, ids=str)
def test_a_flat_tensor_is_refused(advantage):
    with pytest.raises(PluginError, match=r"\[groups, size\]"):
        advantage(torch.zeros(8))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=4, max_size=4), min_size=1, max_size=4),
    st.floats(-3, 3),
    st.permutations(range(4)),
)
def test_group_baselines_ignore_a_shift_and_follow_a_permutation(rows, shift, order):
    rewards = torch.tensor(rows, dtype=torch.float64)
    for advantage in (GroupAdvantage(), GroupAdvantage(std=False), RlooAdvantage()):
        out = advantage(rewards)
        torch.testing.assert_close(advantage(rewards + shift), out, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(advantage(rewards[:, order]), out[:, order])
        torch.testing.assert_close(out.sum(1), torch.zeros(len(rows), dtype=torch.float64), atol=1e-9, rtol=0)


def test_the_module_imports_no_torch():
    code = "import sys, trlmath.builtin; print('torch' in sys.modules, 'sympy' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
        == ["False"] * 2
    )
