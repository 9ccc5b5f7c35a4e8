"""The built-in advantages, each with its formula and paper.

Shapes: rewards and the result are ``[groups, size]``. NaN marks an unscorable rollout: its advantage is
exactly 0 and no statistic counts it. Where no rollout differs from its baseline, the result is exactly 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from trlmath.errors import PluginError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class GroupAdvantage:
    """Relative to the group: ``A = (r - mean(r)) / (std(r) + eps)``.

    mean and std (n - 1 in the denominator) run over the rollouts of one prompt. ``std: false`` leaves the
    division out. DeepSeekMath (GRPO), arXiv:2402.03300, eq. 3 of section 4.1.2; without the division,
    Dr. GRPO, arXiv:2503.20783. TRL's ``scale_rewards: group`` is this with eps 1e-4.
    """

    std: bool = True
    eps: float = 1e-6
    conformance: ClassVar = {"centred": True}

    def __call__(self, rewards: Tensor) -> Tensor:
        check_shape(rewards)
        centred = center(rewards, dim=1)
        return finish(centred / (nanstd(rewards, dim=1) + self.eps) if self.std else centred)


@dataclass(frozen=True)
class BatchAdvantage:
    """Normalised by the whole batch: ``A = (r - mean(r)) / (std(batch) + eps)``.

    ``baseline: group`` subtracts each prompt's own mean (Lite PPO, arXiv:2508.08221, section 4;
    TRL's ``scale_rewards: batch``); ``baseline: batch`` subtracts the mean of all rollouts
    (REINFORCE++, arXiv:2501.03262). std has n - 1 in the denominator and runs over the whole batch.
    """

    baseline: Literal["group", "batch"] = "group"
    eps: float = 1e-6
    conformance: ClassVar = {
        "centred": True,
        "waive": {"independent groups": "the standard deviation is that of the whole batch"},
    }

    def __call__(self, rewards: Tensor) -> Tensor:
        check_shape(rewards)
        row = rewards.reshape(1, -1)
        centred = center(rewards, dim=1) if self.baseline == "group" else center(row, dim=1).view_as(rewards)
        return finish(centred / (nanstd(row, dim=1) + self.eps))


@dataclass(frozen=True)
class RlooAdvantage:
    """Leave one out: ``A_i = r_i - mean(r_j, j != i)``, over the rollouts of one prompt.

    An unbiased baseline. Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!";
    Ahmadian et al., arXiv:2402.14740, eq. 10. A rollout without scorable peers gets 0.
    """

    conformance: ClassVar = {"centred": True}

    def __call__(self, rewards: Tensor) -> Tensor:
        check_shape(rewards)
        count = rewards.isfinite().sum(dim=1, keepdim=True)
        # r_i - (sum - r_i) / (n - 1) equals n / (n - 1) * (r_i - mean), which is exactly 0 on ties.
        return finish(center(rewards, dim=1) * (count / (count - 1).clamp(min=1)))


@dataclass(frozen=True)
class NoBaseline:
    """The raw reward: ``A = r``. REINFORCE, Williams 1992, without a baseline."""

    conformance: ClassVar = {"waive": {"constant groups": "without a baseline the raw reward stays"}}

    def __call__(self, rewards: Tensor) -> Tensor:
        check_shape(rewards)
        return finish(rewards)


def center(rewards: Tensor, dim: int) -> Tensor:
    """Subtract the mean of the scorable rewards along `dim`; exactly 0 where they are all equal."""
    low = rewards.nan_to_num(nan=float("inf")).amin(dim, keepdim=True)
    high = rewards.nan_to_num(nan=float("-inf")).amax(dim, keepdim=True)
    # The mean of equal numbers may differ from them in the last bit, and a tiny std would blow that up.
    return (rewards - rewards.nanmean(dim, keepdim=True)).where(low != high, rewards * 0)


def nanstd(rewards: Tensor, dim: int) -> Tensor:
    """Sample standard deviation (n - 1) along `dim`, without NaN; 0 for fewer than two numbers."""
    count = rewards.isfinite().sum(dim, keepdim=True)
    squares = center(rewards, dim).nan_to_num(nan=0.0).square().sum(dim, keepdim=True)
    return (squares / (count - 1).clamp(min=1)).sqrt()


def finish(advantages: Tensor) -> Tensor:
    """Give unscorable rollouts exactly 0."""
    return advantages.nan_to_num(nan=0.0)


def check_shape(rewards: Tensor) -> None:
    """Raise PluginError unless `rewards` is ``[groups, size]``."""
    if rewards.ndim != 2:
        raise PluginError(f"an advantage needs rewards of shape [groups, size], not {list(rewards.shape)}.")
