"""Numbers of an iteration's sampling, under the names that GRPO's steps have; pure."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trlmath.training.expert_iteration import pass_rate
from trlmath.training.metrics import completion_lengths, rollout_metrics
from trlmath.types import Group


def sampling_metrics(groups: Sequence[Group], temperature: float) -> dict[str, float]:
    """Mean reward, parts, lengths, truncation, spread, and what was solved.

    Args:
        groups: with graded rollouts, at least one.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    numbers = {**rollout_metrics(rollouts), **group_metrics(groups), "temperature": temperature}
    rewards = [r.grade.reward for r in rollouts if r.grade is not None and r.grade.reward is not None]
    if rewards:
        numbers["reward"] = sum(rewards) / len(rewards)
    numbers["tokens"] = sum(len(r.token_ids) for r in rollouts)
    lengths = torch.tensor([len(r.token_ids) for r in rollouts])
    truncated = torch.tensor([r.finish_reason == "length" for r in rollouts])
    numbers |= {f"completions/{n}": v for n, v in completion_lengths(lengths, truncated).items()}
    told = [{r.grade.reward for r in group.rollouts if r.grade} - {None} for group in groups]
    numbers["frac_reward_zero_std"] = sum(len(values) < 2 for values in told) / len(groups)
    return numbers


def group_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """How many problems were solved at least once, and always; shares of those that could be scored."""
    rates = [rate for group in groups if (rate := pass_rate(group.rollouts)) is not None]
    if not rates:
        return {}
    return {
        "solved": sum(rate > 0 for rate in rates) / len(rates),
        "always_solved": sum(rate == 1 for rate in rates) / len(rates),
    }
