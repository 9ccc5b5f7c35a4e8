"""EvaluationReport: counts, rates and intervals of one evaluation; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trlmath.evaluation.intervals import wilson
from trlmath.types import Group


@dataclass(frozen=True)
class Rate:
    """A share of completions with its 95 % interval (Wilson; exact in spirit for one sample a problem)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class EvaluationReport:
    """What one evaluation found.

    Attributes:
        name: of its sampling setting, e.g. ``sampled`` or ``greedy``.
        problems, completions: how many of each.
        rates: each part of the reward (``format``, ``answer``, ``both``, ...); a part that could not be
            told counts as not reached, so all rates are shares of the same completions.
        categories: completions of each category; they add up to `completions`.
        mean_tokens: mean completion length.
        truncated: share of completions cut off at ``max_tokens``.
        unscorable: completions whose gold cannot be read.
        tokens_per_second: generation speed.
    """

    name: str
    problems: int
    completions: int
    rates: Mapping[str, Rate]
    categories: Mapping[str, int]
    mean_tokens: float
    truncated: float
    unscorable: int
    tokens_per_second: float

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return asdict(self)


def summarise(name: str, groups: Sequence[Group], seconds: float) -> EvaluationReport:
    """Count graded `groups`, generated in `seconds`."""
    rollouts = [r for g in groups for r in g.rollouts]
    grades = [r.grade for r in rollouts if r.grade is not None]
    total = len(rollouts)
    rates = {}
    for part in sorted({p for g in grades for p in g.parts}):
        reached = sum(g.parts.get(part) or 0.0 for g in grades)
        rates[part] = Rate(reached / max(total, 1), *wilson(reached, total))
    tokens = sum(len(r.token_ids) for r in rollouts)
    return EvaluationReport(
        name=name,
        problems=len(groups),
        completions=total,
        rates=rates,
        categories=dict(Counter(g.category or "uncategorised" for g in grades).most_common()),
        mean_tokens=tokens / max(total, 1),
        truncated=sum(r.finish_reason == "length" for r in rollouts) / max(total, 1),
        unscorable=sum(g.reward is None for g in grades),
        tokens_per_second=tokens / seconds if seconds > 0 else 0.0,
    )
