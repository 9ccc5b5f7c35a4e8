"""Call an advantage component with what it asks for, and check what comes back."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from trlmath.errors import PluginError
from trlmath.reward_faults import file_of, place_in
from trlmath.time_limit import Overrun, call_within


def combine_rewards(matrix: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Weighted sum over reward functions, TRL's way.

    Args:
        matrix: [rows, functions]; NaN where a function could not score a row.
        weights: [functions].

    Returns:
        [rows]; NaN only where no function could score the row.
    """
    total = (matrix * weights.to(matrix)).nansum(dim=1)
    total[torch.isnan(matrix).all(dim=1)] = torch.nan
    return total


def compute_advantages(
    component: Callable[..., torch.Tensor],
    label: str,
    rewards: torch.Tensor,
    limit: float | None = None,
    **available: Any,
) -> torch.Tensor:
    """Run `component` on `rewards` [groups, size] with those of `available` that it names.

    Args:
        component: see `trlmath.hookspecs.register_advantages`.
        label: how to name it in an error (name and distribution).
        rewards: [groups, size], NaN for unscorable rollouts.
        limit: seconds it may take; None: no limit.
        available: ``lengths`` [groups, size], ``parts`` [groups, size, functions], ``mask`` [groups, size].

    Returns:
        [groups, size], exactly 0 where the reward is NaN.

    Raises:
        PluginError: it raised, took longer, or returned another shape or something that is not finite.
    """
    parameters = inspect.signature(component).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    # copies: the trainer goes on to use its own
    wanted = {k: v.clone() for k, v in available.items() if takes_all or k in parameters}
    try:
        advantages = call_within(limit, f"advantage {label}", lambda: component(rewards.clone(), **wanted))
    except Overrun as error:
        raise PluginError(
            f"advantage {label} gave no answer for {len(rewards)} groups within {error.seconds:g} s "
            f"(checks.reward_timeout).{place_in(error.frames, file_of(component))}"
        ) from None
    except (Exception, SystemExit) as error:
        raise PluginError(f"advantage {label} raised {type(error).__name__}: {error}") from error
    if not isinstance(advantages, torch.Tensor) or advantages.shape != rewards.shape:
        got = tuple(advantages.shape) if isinstance(advantages, torch.Tensor) else type(advantages).__name__
        raise PluginError(
            f"advantage {label} returned {got}; expected a tensor of shape {tuple(rewards.shape)}."
        )
    advantages = advantages.to(rewards)
    scored = ~torch.isnan(rewards)
    wrong = scored & ~torch.isfinite(advantages)
    if bool(wrong.any()):
        group, rollout = (int(i) for i in wrong.nonzero()[0])
        raise PluginError(
            f"advantage {label} returned {advantages[group, rollout].item()} for group {group}, rollout "
            f"{rollout}, whose rewards are {rewards[group].tolist()}; every advantage must be finite."
        )
    return torch.where(scored, advantages, torch.zeros_like(advantages))
