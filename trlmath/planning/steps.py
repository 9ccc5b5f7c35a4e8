"""How much work a recipe is: prompts, rollouts, tokens and updates, a step and in all; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trlmath.planning.facts import Facts
from trlmath.recipe import Recipe
from trlmath.recipe.schema import BatchSection, ExpertIterationSection

EPOCHS = 3.0  # transformers' own default of num_train_epochs


@dataclass(frozen=True)
class Steps:
    """Counts over all processes. None: not known without the data.

    Attributes:
        unit: what a step is: ``step`` or ``iteration``.
        prompts, rollouts: generated for in one.
        tokens: at most generated in one (GRPO, expert iteration) or trained on (SFT).
        updates: optimizer steps in one, at most.
        count: steps (iterations) of the run.
        evaluations: how often the held-out problems are asked.
        evaluated: tokens at most generated in all evaluations.
    """

    unit: str
    prompts: int
    rollouts: int
    tokens: int
    updates: int
    count: int | None
    evaluations: int
    evaluated: int | None

    @property
    def all_updates(self) -> int | None:
        """Optimizer steps of the run, at most."""
        return None if self.count is None else self.count * self.updates

    @property
    def all_tokens(self) -> int | None:
        """Tokens of the run, at most, evaluations aside."""
        return None if self.count is None else self.count * self.tokens


def steps_of(recipe: Recipe, algorithm: str, facts: Facts) -> Steps:
    """Count the work of `recipe`."""
    rollout, batch = recipe.rollout, recipe.batch or BatchSection()
    most = int(recipe.trainer.get("max_steps", -1))
    epochs = float(recipe.trainer.get("num_train_epochs", EPOCHS))
    count: int | None
    if algorithm == "grpo":
        # a step here is a rollout phase and the updates on it
        updates = rollout.updates_per_rollout * rollout.epochs_per_rollout
        rollouts = rollout.prompts_per_step * rollout.group_size
        if most > 0:
            count = math.ceil(most / updates)
        else:
            phases = None if facts.rows is None else facts.rows // rollout.prompts_per_step
            count = None if phases is None else math.ceil(epochs * phases)
        numbers = (rollout.prompts_per_step, rollouts, rollouts * facts.max_tokens, updates)
        return _with_evaluations(recipe, facts, "step", *numbers, count, (count or 0) * updates)
    if algorithm == "sft":
        if most > 0:
            count = most
        else:
            count = None if facts.rows is None else math.ceil(epochs * math.ceil(facts.rows / batch.size))
        return _with_evaluations(recipe, facts, "step", 0, 0, sum(facts.examples), 1, count, count or 0)
    if algorithm == "expert_iteration":
        section = recipe.expert_iteration or ExpertIterationSection()
        asked = section.problems_per_iteration
        rollouts = asked * rollout.group_size
        updates = section.epochs * math.ceil(rollouts / batch.size)
        numbers = (asked, rollouts, rollouts * facts.max_tokens, updates)
        return _with_evaluations(recipe, facts, "iteration", *numbers, section.iterations, 0)
    return _with_evaluations(recipe, facts, "step", 0, 0, 0, 0, 0, 0)


def _with_evaluations(
    recipe: Recipe,
    facts: Facts,
    unit: str,
    prompts: int,
    rollouts: int,
    tokens: int,
    updates: int,
    count: int | None,
    optimizer_steps: int,
) -> Steps:
    evaluation = recipe.evaluation
    times = 0
    if evaluation.enabled and recipe.data.eval is not None:
        if unit == "iteration":
            times = 1 + (count or 0)
        elif not updates:
            times = 1
        else:
            times = 2 + (optimizer_steps // evaluation.every if evaluation.every else 0)
    samples = sum(setting.n for setting in evaluation.settings)
    asked = facts.eval_rows
    evaluated = None if asked is None else times * asked * samples * facts.max_tokens
    return Steps(unit, prompts, rollouts, tokens, updates, count, times, evaluated)
