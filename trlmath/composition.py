"""How several rewards make one: scaled, clipped, gated by another, weighted by a schedule; pure.

A reward's value goes through ``scale``, then ``clip``, then ``only_if``; the sum takes ``weight`` times the
schedule's factor of it. None (not scorable) stays None. A rollout that a reward failed on is not scored by
the others either: without the failed reward it would seem worse than its group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trlmath.errors import RecipeError, nearest
from trlmath.reward_faults import failed
from trlmath.types import Grade


@dataclass(frozen=True)
class Rule:
    """What a recipe's entry does to a reward, beside its weight.

    Attributes:
        scale: the reward is multiplied by it.
        clip: lowest and highest value after scaling; None for no bound.
        schedule: optimizer step -> factor on the weight, linear in between, constant outside; empty: 1.
        only_if: a part, or another reward, that must be above 0; else the reward is 0.
    """

    scale: float = 1.0
    clip: tuple[float, float] | None = None
    schedule: Mapping[int, float] = field(default_factory=dict)
    only_if: str | None = None

    def factor(self, step: int | None) -> float:
        """The schedule's factor at an optimizer step; None asks for its end, at which evaluations weigh."""
        if not self.schedule:
            return 1.0
        points = sorted(self.schedule.items())
        if step is None or step >= points[-1][0]:
            return points[-1][1]
        if step <= points[0][0]:
            return points[0][1]
        after = next(i for i, (at, _) in enumerate(points) if at > step)
        (start, low), (end, high) = points[after - 1], points[after]
        return low + (high - low) * (step - start) / (end - start)

    def value(self, reward: float) -> float:
        """`reward` scaled and clipped."""
        scaled = reward * self.scale
        return scaled if self.clip is None else min(max(scaled, self.clip[0]), self.clip[1])

    @property
    def plain(self) -> bool:
        """True when values are left as they are."""
        return self.scale == 1.0 and self.clip is None and self.only_if is None


PLAIN = Rule()


def rule_of(reward: Any) -> Rule:
    """The rule of a reward caller; any other callable has none."""
    return getattr(reward, "rule", PLAIN)


def weights(rewards: Sequence[Any], given: Sequence[float], step: int | None) -> list[float]:
    """Each reward's weight in the sum at an optimizer step (None: at the end of its schedule)."""
    return [w * rule_of(r).factor(step) for r, w in zip(rewards, given, strict=True)]


def compose(rewards: Sequence[Any], by_reward: Sequence[Sequence[Grade]]) -> list[list[Grade]]:
    """Apply each reward's rule to its grades.

    Args:
        rewards: with ``name`` and ``rule`` as `trlmath.rewards.RewardCaller` has them.
        by_reward: [rewards][rollouts], as the rewards returned them.

    Raises:
        RecipeError: an ``only_if`` names no other reward and no part of any.
    """
    composed: list[list[Grade]] = []
    for number, (reward, grades) in enumerate(zip(rewards, by_reward, strict=True)):
        rule = rule_of(reward)
        gates: Sequence[float | None] = [1.0] * len(grades)
        if rule.only_if is not None:
            gates = _gates(rule.only_if, number, rewards, by_reward)
        composed.append([_apply(rule, grade, gate) for grade, gate in zip(grades, gates, strict=True)])
    lost = {number for grades in by_reward for number, grade in enumerate(grades) if failed(grade)}
    return [
        [replace(grade, reward=None) if number in lost else grade for number, grade in enumerate(grades)]
        for grades in composed
    ]


def _apply(rule: Rule, grade: Grade, gate: float | None) -> Grade:
    if rule.plain:
        return grade
    if grade.reward is None or gate is None:
        return replace(grade, reward=None)
    return replace(grade, reward=rule.value(grade.reward) if gate > 0 else 0.0)


def _gates(
    gate: str, own: int, rewards: Sequence[Any], by_reward: Sequence[Sequence[Grade]]
) -> list[float | None]:
    """The number that opens the gate, for each rollout: another reward's value, else a part of any reward."""
    names = [str(getattr(reward, "name", "")) for reward in rewards]
    for number, name in enumerate(names):
        if name == gate and number != own:
            return [grade.reward for grade in by_reward[number]]
    # Its own parts last: `both` of another reward is the more likely meaning.
    order = [n for n in range(len(rewards)) if n != own] + [own]
    for number in order:
        if any(gate in grade.parts for grade in by_reward[number]):
            return [grade.parts.get(gate) for grade in by_reward[number]]
    if not by_reward[own]:
        return []
    parts = dict.fromkeys(part for grades in by_reward for grade in grades for part in grade.parts)
    allowed = [*(name for n, name in enumerate(names) if n != own), *parts]
    raise RecipeError(
        f"rewards.{own}.only_if: no other reward and no part is called {gate!r}.{nearest(gate, allowed)} "
        f"Allowed here: {', '.join(allowed) or 'nothing, since no reward has parts'}."
    )
