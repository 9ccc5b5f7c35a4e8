"""From a recipe to TRL's GRPOConfig: the one place where steps become batch sizes."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from trl import GRPOConfig

from trlmath.errors import RecipeError, nearest
from trlmath.recipe import Recipe
from trlmath.recipe.owned import OWNED

# no clipping: wide enough that no ratio ever meets it
_UNCLIPPED = 1e9


def check_trainer(recipe: Recipe) -> None:
    """Check names and types under `trainer:` against GRPOConfig, and convert values to those types.

    Raises:
        RecipeError: naming each wrong key, what is allowed and the nearest match.
    """
    hints = typing.get_type_hints(GRPOConfig)
    names = {f.name for f in dataclasses.fields(GRPOConfig) if f.init} - set(OWNED)
    errors = []
    for key, value in recipe.trainer.items():
        if key not in names:
            errors.append(
                f"trainer.{key}: is no argument of TRL's GRPOConfig.{nearest(key, names)} Remove it, or see "
                "docs/recipes.md for what `trainer` takes."
            )
            continue
        try:
            recipe.trainer[key] = _converted(value, hints[key])
        except ValidationError:
            errors.append(
                f"trainer.{key}: got {value!r} ({type(value).__name__}); allowed: {_type_name(hints[key])}."
            )
    if errors:
        raise RecipeError("the recipe's trainer section is not valid:\n" + "\n".join(errors))


def grpo_config(recipe: Recipe, output_dir: Path, processes: int) -> GRPOConfig:
    """Build the GRPOConfig of `recipe` for `processes` processes.

    An optimizer step takes ``prompts_per_step x group_size / updates_per_rollout`` completions, over all
    processes together; how they are cut into forwards is decided later, by tokens.

    Raises:
        RecipeError: TRL refuses the arguments; its own words follow.
    """
    rollout, sampling = recipe.rollout, recipe.sampling
    rows = rollout.prompts_per_step * rollout.group_size // (rollout.updates_per_rollout * processes)
    bf16 = recipe.model.dtype == "bfloat16" and torch.cuda.is_available()
    arguments: dict[str, Any] = {
        "logging_steps": 1,
        "save_strategy": "no",
        "gradient_checkpointing": False,
        "bf16": bf16,
        "fp16": False,
        "use_cpu": not torch.cuda.is_available(),
        "dataloader_pin_memory": torch.cuda.is_available(),
        "disable_tqdm": True,
        "loss_type": "grpo",
        "beta": 0.0,
        **recipe.trainer,
        "output_dir": str(output_dir),
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": rollout.updates_per_rollout,
        "num_iterations": rollout.epochs_per_rollout,
        "num_generations": rollout.group_size,
        "max_completion_length": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or 0,
        "min_p": sampling.min_p,
        "reward_weights": [entry.weight for entry in recipe.rewards],
        "seed": recipe.run.seed,
        "report_to": recipe.run.report_to,
        "remove_unused_columns": False,
        "use_vllm": False,  # the engine is ours; see MathGRPOTrainer
    }
    if not rollout.clip:
        arguments |= {"epsilon": _UNCLIPPED, "epsilon_high": _UNCLIPPED}
    try:
        return GRPOConfig(**arguments)
    except (TypeError, ValueError, ImportError) as error:
        raise RecipeError(f"TRL refuses the recipe's trainer arguments: {error}") from error


def _converted(value: Any, hint: Any) -> Any:
    """`value` as `hint` wants it (the text "1e-6" is a number). Raises ValidationError."""
    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    if isinstance(value, bool):  # lax conversion would take true for 1
        return adapter.validate_python(value, strict=True)
    return adapter.validate_python(value)


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
