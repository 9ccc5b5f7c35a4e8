"""Numbers of a training step, computed from gathered rollouts; pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass

import torch

from trlmath.evaluation.categories import category_shares
from trlmath.evaluation.sample import UNCATEGORISED
from trlmath.types import Grade, Rollout


def completion_lengths(lengths: torch.Tensor, truncated: torch.Tensor) -> dict[str, float]:
    """Lengths (tokens) and the share cut off, by the engine's own finish reason.

    Args:
        lengths: [rollouts].
        truncated: [rollouts], True where the completion was cut at ``max_tokens``.
    """
    finished = lengths[~truncated].float()
    if finished.numel() == 0:
        finished = torch.zeros(1)
    return {
        "mean_length": lengths.float().mean().item(),
        "min_length": lengths.min().item(),
        "max_length": lengths.max().item(),
        "clipped_ratio": truncated.float().mean().item(),
        "mean_terminated_length": finished.mean().item(),
        "min_terminated_length": finished.min().item(),
        "max_terminated_length": finished.max().item(),
    }


def rollout_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Mean of each part, share of each category and of distinct completions, length by correctness.

    The shares ``category/...`` add up to 1 over all `rollouts`: one without a category is `UNCATEGORISED`.
    """
    grades = [r.grade for r in rollouts if r.grade is not None]
    numbers: dict[str, float] = {}
    for name in sorted({part for g in grades for part in g.parts}):
        told = [value for g in grades if (value := g.parts.get(name)) is not None]
        if told:
            numbers[name] = sum(told) / len(told)
    counts = Counter(r.grade.category if r.grade and r.grade.category else UNCATEGORISED for r in rollouts)
    numbers |= category_shares(counts)
    if rollouts:
        numbers["rollouts"] = len(rollouts)
        for name, wanted in (("right", True), ("wrong", False)):
            lengths = [len(r.token_ids) for r in rollouts if r.grade and _right(r.grade) is wanted]
            if lengths:
                numbers[f"length/{name}"] = sum(lengths) / len(lengths)
        numbers["distinct"] = len({r.text for r in rollouts}) / len(rollouts)
        # -log p of what was drawn: an unbiased estimate of the sampled distribution's entropy, over all rows
        drawn = [logp for r in rollouts for logp in r.logprobs or ()]
        if drawn:
            numbers["sampled_entropy"] = -sum(drawn) / len(drawn)
        numbers["unscorable"] = sum(g.reward is None for g in grades) / len(rollouts)
    return numbers


def _right(grade: Grade) -> bool | None:
    """Right in format and answer; of a reward without these parts, whether it is 1; None: cannot be told."""
    value = grade.parts.get("both", grade.reward)
    return None if value is None else value >= 1.0


def log(metrics: MutableMapping[str, list], numbers: Mapping[str, float]) -> None:
    """Append a step's numbers to what TRL averages when it logs.

    It averages over the steps that told a number. A category that some steps did not see counts 0 there,
    so that the shares of several steps together still add up to 1.
    """
    steps = len(metrics.get("rollouts", ()))
    shares = {name for name in (*metrics, *numbers) if name.startswith("category/")}
    for name in shares:
        metrics.setdefault(name, []).extend([0.0] * (steps - len(metrics.get(name, ()))))
    for name, value in {**dict.fromkeys(shares, 0.0), **numbers}.items():
        metrics.setdefault(name, []).append(value)


@dataclass(frozen=True)
class Mean:
    """How one number a micro-batch becomes one number a step.

    Attributes:
        weights: what each micro-batch counts for.
        total: what the weights add up to with what was not computed, which then counts as 0; None: nothing
            is known of that, and the number is of what was computed.
    """

    weights: Sequence[float]
    total: float | None = None


# running totals, not numbers of one micro-batch
_TOTALS = frozenset({"num_tokens"})


def collapse(
    metrics: MutableMapping[str, list],
    before: Mapping[str, int],
    tokens: Sequence[float],
    means: Mapping[str, Mean] | None = None,
) -> None:
    """Merge what each micro-batch logged into one value a step; NaN where nothing was computed.

    TRL logs once a forward and averages plainly; micro-batches differ in size, so means are weighed, and
    names that end in min or max take the extreme.

    Args:
        metrics: name -> values, of which those from `before` on are the step's.
        tokens: of each micro-batch, over all processes: the weights of a name that `means` does not hold.
        means: name, or its part before the first ``/`` -> how it is averaged.
    """
    for name, values in metrics.items():
        new = values[before.get(name, 0) :]
        if len(new) != len(tokens) or name in _TOTALS:
            continue
        how = (means or {}).get(name) or (means or {}).get(name.partition("/")[0]) or Mean(tokens)
        told = [(v, w) for v, w in zip(new, how.weights, strict=True) if w and not math.isnan(v)]
        computed = sum(w for _, w in told)
        whole = computed if how.total is None else how.total
        rest = [0.0] if whole > computed else []
        if not whole:
            value = math.nan
        elif name.endswith("min"):
            value = min([v for v, _ in told] + rest)
        elif name.endswith("max"):
            value = max([v for v, _ in told] + rest)
        else:
            value = sum(v * w for v, w in told) / whole
        values[before.get(name, 0) :] = [value]
