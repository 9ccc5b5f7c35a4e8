"""The adapter a recipe asks for."""

from __future__ import annotations

from typing import Any

from trlmath.errors import RecipeError, nearest
from trlmath.recipe import Recipe


def lora_config(recipe: Recipe) -> Any:
    """The peft LoraConfig of `model.lora`, or None. Raises RecipeError for what peft does not know."""
    if recipe.model.lora is None:
        return None
    import dataclasses

    from peft import LoraConfig

    known = [f.name for f in dataclasses.fields(LoraConfig) if f.init]
    for key in recipe.model.lora:
        if key not in known:
            raise RecipeError(
                f"model.lora.{key}: is no field of peft's LoraConfig.{nearest(key, known)} Usual ones: r, "
                "lora_alpha, lora_dropout, target_modules."
            )
    rank = recipe.model.lora.get("r", 8)
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise RecipeError(f"model.lora.r: got {rank!r}; allowed: a whole number of at least 1.")
    try:
        return LoraConfig(**{"task_type": "CAUSAL_LM", **recipe.model.lora})
    except (TypeError, ValueError) as error:
        raise RecipeError(f"model.lora: peft refuses {recipe.model.lora}: {error}") from error
