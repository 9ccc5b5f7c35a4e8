"""From a recipe to TRL's SFTConfig."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from trl import SFTConfig

from trlmath.errors import RecipeError
from trlmath.recipe import Recipe
from trlmath.recipe.schema import BatchSection
from trlmath.training.checkpointing import checkpoint_arguments
from trlmath.training.trackers import reporters, tracker_arguments

WORKERS_ON_A_GPU = 2


def sft_config(
    recipe: Recipe, output_dir: Path, processes: int, steps: int | None = None, checkpoints: bool = True
) -> SFTConfig:
    """Build the SFTConfig of `recipe` for `processes` processes.

    On a GPU, worker processes collate ahead of the update and memory is pinned; on a CPU a worker would
    take a core from the update, which costs more than collating does.

    Args:
        steps: optimizer steps, in place of ``trainer.max_steps``.
        checkpoints: as `run.checkpoint_every` says; else none.

    Raises:
        RecipeError: TRL refuses the arguments; its own words follow.
    """
    batch, on_gpu = recipe.batch or BatchSection(), torch.cuda.is_available()
    if batch.size < processes:
        raise RecipeError(
            f"batch.size: got {batch.size}; allowed: at least the {processes} processes, or some would have "
            "nothing to train. Raise it, or start fewer processes."
        )
    arguments: dict[str, Any] = {
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # it would log a loss that is NaN as 0
        **checkpoint_arguments(recipe.run.checkpoint_every if checkpoints else 0),
        "gradient_checkpointing": False,
        "bf16": recipe.model.dtype == "bfloat16" and on_gpu,
        "fp16": False,
        "use_cpu": not on_gpu,
        "dataloader_pin_memory": on_gpu,
        "dataloader_num_workers": WORKERS_ON_A_GPU if on_gpu else 0,
        "disable_tqdm": True,
        **tracker_arguments(output_dir.parent),
        **recipe.trainer,
        "output_dir": str(output_dir),
        "per_device_train_batch_size": -(-batch.size // processes),
        "gradient_accumulation_steps": 1,
        "max_length": None,  # the data room has cut or dropped what is longer
        "packing": False,
        "padding_free": batch.packing,
        "dataset_kwargs": {"skip_prepare_dataset": True},
        "seed": recipe.run.seed,
        "report_to": reporters(recipe.run.report_to),
        "remove_unused_columns": False,
    }
    if arguments["dataloader_num_workers"] > 0:
        arguments.setdefault("dataloader_persistent_workers", True)
    if steps is not None:
        arguments["max_steps"] = steps
    try:
        return SFTConfig(**arguments)
    except (TypeError, ValueError, ImportError) as error:
        raise RecipeError(f"TRL refuses the recipe's trainer arguments: {error}") from error
