"""From a recipe to TRL's GRPOConfig: the one place where steps become batch sizes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from trl import GRPOConfig

from trlmath.errors import RecipeError
from trlmath.recipe import Recipe
from trlmath.training.checkpointing import checkpoint_arguments
from trlmath.training.trackers import reporters, tracker_arguments

# no clipping: no ratio ever meets it
_UNCLIPPED = math.inf


def grpo_config(recipe: Recipe, output_dir: Path, processes: int) -> GRPOConfig:
    """Build the GRPOConfig of `recipe` for `processes` processes.

    An optimizer step takes ``prompts_per_step x group_size / updates_per_rollout`` completions, over all
    processes together; how they are cut into forwards is decided later, by tokens.

    Raises:
        RecipeError: TRL refuses the arguments; its own words follow.
    """
    rollout, sampling = recipe.rollout, recipe.sampling
    rows = rollout.prompts_per_step * rollout.group_size // (rollout.updates_per_rollout * processes)
    updates = rollout.updates_per_rollout * rollout.epochs_per_rollout
    bf16 = recipe.model.dtype == "bfloat16" and torch.cuda.is_available()
    arguments: dict[str, Any] = {
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # it would log a loss that is NaN as 0
        **checkpoint_arguments(recipe.run.checkpoint_every, updates),
        "gradient_checkpointing": False,
        "bf16": bf16,
        "fp16": False,
        "use_cpu": not torch.cuda.is_available(),
        "dataloader_pin_memory": torch.cuda.is_available(),
        "disable_tqdm": True,
        "ddp_find_unused_parameters": False,  # a search through the graph at each step, for nothing
        "loss_type": "grpo",
        "beta": 0.0,
        **tracker_arguments(output_dir.parent),
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
        "report_to": reporters(recipe.run.report_to),
        "remove_unused_columns": False,
        "use_vllm": False,  # the engine is ours; see MathGRPOTrainer
    }
    if not rollout.clip:
        arguments |= {"epsilon": _UNCLIPPED, "epsilon_high": _UNCLIPPED}
    try:
        return GRPOConfig(**arguments)
    except (TypeError, ValueError, ImportError) as error:
        raise RecipeError(f"TRL refuses the recipe's trainer arguments: {error}") from error
