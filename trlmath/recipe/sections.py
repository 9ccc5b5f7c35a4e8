"""Which sections an algorithm reads: a key that would do nothing is an error, not a surprise."""

from __future__ import annotations

from typing import Any

from trlmath.errors import RecipeError
from trlmath.recipe.schema import BatchSection, Recipe, Section

_SFT_STEPS = "its SFT is set by `batch` and `expert_iteration.epochs`"
_KEPT = "what it goes on from is kept after each phase, and is small"

# algorithm -> sections and keys that it does not read, and why or what to use instead
UNREAD: dict[str, dict[str, str]] = {
    "grpo": {
        "batch": "GRPO's step is set by `rollout`",
        "expert_iteration": "it belongs to recipes/expert_iteration.py",
        "early_stop": "it is read by SFT and expert iteration",
        "averaging": "it is read by SFT and expert iteration",
    },
    "sft": {
        "rollout": "SFT's step is set by `batch`",
        "advantage": "SFT has no advantages",
        "expert_iteration": "it belongs to recipes/expert_iteration.py",
    },
    "expert_iteration": {
        "advantage": "expert iteration has no advantages: traces are kept or dropped",
        "rollout.updates_per_rollout": _SFT_STEPS,
        "rollout.epochs_per_rollout": _SFT_STEPS,
        "rollout.microbatch_tokens": "forwards of its SFT are cut by `batch.microbatch_tokens`",
        "rollout.clip": "its SFT has no probability ratio",
        "rollout.refill": "questions without a kept trace are not replaced",
        "rollout.old_logprobs": "its SFT has no probability ratio",
        "batch.over_long": "a sampled trace that is over batch.max_length is dropped",
        "evaluation.every": "every iteration ends with an evaluation",
        "run.checkpoint_every": _KEPT,
        "run.keep_last": _KEPT,
        "run.keep_best": _KEPT,
    },
}


def check_sections(recipe: Recipe, algorithm: str) -> None:
    """Raise RecipeError naming every section or key set to something that `algorithm` would not read.

    A key that waits for an evaluation which the recipe never makes counts as one.
    A section written out with its defaults, as in a run's own ``recipe.yaml``, is no error.
    """
    plain, with_batch = Recipe(), Recipe(batch=BatchSection())
    errors = []
    for name, why in UNREAD.get(algorithm, {}).items():
        given, what = _value(recipe, name), "key" if "." in name else "section"
        if given is not None and given != _value(with_batch if what == "key" else plain, name):
            errors.append(f"{name}: is not read by {algorithm}: {why}. Remove the {what}.")
    errors += _never(recipe, algorithm)
    if errors:
        raise RecipeError("\n".join(errors))


def _never(recipe: Recipe, algorithm: str) -> list[str]:
    """A sentence for each key that decides by evaluations while training, where there is none."""
    evaluation, each_iteration = recipe.evaluation, algorithm == "expert_iteration"
    if evaluation.enabled and (evaluation.every or each_iteration):
        phase = updates_of_phase(recipe) if algorithm == "grpo" else 1
        if not recipe.run.keep_best or evaluation.every % phase == 0:
            return []
        return [
            f"run.keep_best: evaluation.every={evaluation.every} evaluates within a rollout phase of {phase} "
            f"updates (rollout.updates_per_rollout x epochs_per_rollout), where no checkpoint can be. Set "
            f"it to a multiple of {phase}, or remove run.keep_best."
        ]
    missing = "Set evaluation.enabled=true"
    missing += "" if each_iteration else " and evaluation.every to a number of steps"
    errors = []
    if recipe.early_stop and algorithm in ("sft", "expert_iteration"):
        errors.append(
            f"early_stop: nothing is evaluated while training, so it could never stop. {missing}, or remove "
            "early_stop."
        )
    if recipe.run.keep_best and algorithm in ("grpo", "sft"):
        errors.append(
            f"run.keep_best: nothing is evaluated while training, so no checkpoint is best. {missing}, or "
            "remove run.keep_best."
        )
    return errors


def updates_of_phase(recipe: Recipe) -> int:
    """Optimizer steps that GRPO takes on the rollouts of one phase; checkpoints fall between phases."""
    return recipe.rollout.updates_per_rollout * recipe.rollout.epochs_per_rollout


def _value(recipe: Recipe, name: str) -> Any:
    value: Any = recipe
    for part in name.split("."):
        value = None if value is None else getattr(value, part)
    return value.model_dump() if isinstance(value, Section) else value
