"""An advantage for trlmath: Quantile Advantage Estimation, the group's quantile as the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trlmath import RecipeError, hookimpl

if TYPE_CHECKING:
    from torch import Tensor

trlmath_api = 1


@dataclass(frozen=True)
class Quantile:
    """Relative to the group's quantile: ``A = (r - Q_k(r)) / (std(r) + eps)``.

    Q_k is the smallest reward that at least the share `k` of the group does not exceed. `std: false` leaves
    the division out. Wu et al., Quantile Advantage Estimation, arXiv:2509.22611: with rewards of 0 and 1,
    hard prompts (share right <= 1 - k) reinforce what is right, easy ones punish what is wrong.
    """

    k: float = 0.4
    std: bool = True
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if not 0 < self.k < 1:
            raise RecipeError(f"quantile needs 0 < k < 1; got {self.k}.")

    def __call__(self, rewards: Tensor) -> Tensor:
        """[groups, size] in and out; NaN is not counted and gets exactly 0."""
        scorable = ~rewards.isnan()
        centred = rewards - self._baseline(rewards, scorable)
        if self.std:
            centred = centred / (_std(rewards, scorable) + self.eps)
        return centred.where(scorable, rewards.new_zeros(()))

    def _baseline(self, rewards: Tensor, scorable: Tensor) -> Tensor:
        count = scorable.sum(dim=1, keepdim=True)
        ordered = rewards.nan_to_num(nan=float("inf")).sort(dim=1).values
        # rounded first: 0.4 * 5 is 2.0000000000000004 in floating point, and must not ask for the third
        place = (count * self.k).double().round(decimals=9).ceil().long() - 1
        return ordered.gather(1, place.clamp(min=0))


def _std(rewards: Tensor, scorable: Tensor) -> Tensor:
    """Sample standard deviation (n - 1) of each group's scorable rewards; 0 for fewer than two."""
    count = scorable.sum(dim=1, keepdim=True)
    known = rewards.where(scorable, rewards.new_zeros(()))
    mean = known.sum(dim=1, keepdim=True) / count.clamp(min=1)
    squares = (known - mean).square().where(scorable, rewards.new_zeros(())).sum(dim=1, keepdim=True)
    return (squares / (count - 1).clamp(min=1)).sqrt()


@hookimpl
def register_advantages(register):
    """Offer the advantage under the name that recipes write."""
    register("quantile", Quantile)
