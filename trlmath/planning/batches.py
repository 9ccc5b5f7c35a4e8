"""The worst micro-batch of a recipe: every completion as long as it may be; pure."""

from __future__ import annotations

from typing import Any

from trlmath.errors import RecipeError
from trlmath.planning.facts import Facts
from trlmath.planning.fakes import Work
from trlmath.planning.machine import Machine
from trlmath.planning.shapes import Shape, build
from trlmath.recipe import Recipe
from trlmath.recipe.schema import BatchSection
from trlmath.training.microbatches import plan, plan_shared
from trlmath.training.sft_batches import pack
from trlmath.training.shared_prompts import reason_against

MOST_ROLLOUTS = 100_000
"""Of one update on one process; more are a slip of the pen, and take minutes and gigabytes to cut."""


def rollouts_work(
    recipe: Recipe, shape: Shape, facts: Facts, machine: Machine, processes: int
) -> tuple[Work, int]:
    """(the widest micro-batch of GRPO's update, micro-batches of a process's step).

    Raises:
        RecipeError: there are more rollouts in it than can be cut.
    """
    rollout = recipe.rollout
    prompts = max(1, rollout.prompts_per_step // (processes * rollout.updates_per_rollout))
    if prompts * rollout.group_size > MOST_ROLLOUTS:
        raise RecipeError(
            f"rollout: {prompts:,} prompts x {rollout.group_size:,} completions in one update on one "
            f"process; a plan goes up to {MOST_ROLLOUTS:,}. Lower rollout.group_size or "
            "rollout.prompts_per_step."
        )
    keys = [number for number in range(prompts) for _ in range(rollout.group_size)]
    before, behind = [facts.longest_prompt] * len(keys), [facts.max_tokens] * len(keys)
    how = _rows_of_grpo(recipe, shape)
    if how == "shared":
        chosen = plan_shared(keys, before, behind, rollout.microbatch_tokens)
    else:
        chosen = plan(before, behind, rollout.microbatch_tokens)
    first = chosen[0]
    work = Work(
        tuple(before[i] for i in first),
        tuple(behind[i] for i in first),
        tuple(keys[i] for i in first),
        how,
        ("log_probs", "entropy"),
        **_compute(recipe, machine),
    )
    return work, len(chosen)


def examples_work(recipe: Recipe, facts: Facts, machine: Machine, processes: int) -> tuple[Work, int]:
    """(the widest micro-batch of SFT's update, micro-batches of a process's step)."""
    batch = recipe.batch or BatchSection()
    lengths = list(facts.examples[::processes])
    flash = "flash" in recipe.model.attention
    outputs = ("log_probs", "entropy", "is_top1")
    if batch.packing:
        chosen = pack(lengths, batch.microbatch_tokens)
        width = max(sum(lengths[i] for i in chunk) for chunk in chosen)
        work = Work(
            (0,), (width,), (0,), "flash" if flash else "padded", outputs, **_compute(recipe, machine)
        )
        return work, len(chosen)
    chosen = plan([0] * len(lengths), lengths, batch.microbatch_tokens)
    widest = max(chosen, key=lambda chunk: len(chunk) * max(lengths[i] for i in chunk))
    own = tuple(lengths[i] for i in widest)
    # transformers leaves the mask out where no row is padded
    how = "flash" if flash or len(set(own)) == 1 else "padded"
    work = Work((0,) * len(own), own, tuple(range(len(own))), how, outputs, **_compute(recipe, machine))
    return work, len(chosen)


def _rows_of_grpo(recipe: Recipe, shape: Shape) -> str:
    if "flash" in recipe.model.attention:
        return "flash"
    model: Any = build(shape.config, None, shape.dtype, "sdpa")
    return "shared" if recipe.model.attention == "sdpa" and reason_against(model) is None else "padded"


def _compute(recipe: Recipe, machine: Machine) -> dict[str, bool]:
    half = machine.gpu and recipe.model.dtype == "bfloat16"
    return {
        "checkpointing": bool(recipe.trainer.get("gradient_checkpointing", False)),
        "autocast": bool(recipe.trainer.get("bf16", half)),
        "gpu": machine.gpu,
    }
