"""The reward matrix of a step after the recipe's composition: what TRL's sum and its logs are to see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from trlmath.composition import compose, rule_of
from trlmath.reward_faults import may_fail


def composed_matrix(matrix: torch.Tensor, calls: Sequence[Any], accelerator: Any) -> torch.Tensor:
    """Apply each reward's scale, clip and gate, and that of failures, to `calls`' grades and to the matrix.

    Args:
        matrix: [rows of all processes, rewards], as the rewards returned them; NaN where not scorable.
        calls: with ``reward`` and ``grades`` (of this process's rows); their grades are replaced.
        accelerator: gathers; every process calls it equally often, since the recipe is the same.

    Returns:
        the matrix to train on, same shape.

    Raises:
        RecipeError: an ``only_if`` names no other reward and no part of any.
    """
    if all(rule_of(call.reward).plain and not may_fail(call.reward) for call in calls):
        return matrix
    composed = compose([call.reward for call in calls], [call.grades for call in calls])
    for call, grades in zip(calls, composed, strict=True):
        call.grades = grades
    values = [[torch.nan if g.reward is None else g.reward for g in grades] for grades in composed]
    return accelerator.gather(torch.tensor(values, dtype=matrix.dtype, device=matrix.device).T.contiguous())
