"""Load the policy a recipe names."""

from __future__ import annotations

from typing import Any

from transformers import AutoModelForCausalLM

from trlmath.errors import RecipeError, nearest
from trlmath.recipe import Recipe


def load_policy(recipe: Recipe, path: str) -> Any:
    """Load the weights of `path` in the recipe's dtype and attention.

    Raises:
        RecipeError: the weights cannot be loaded so; transformers' own words follow.
    """
    try:
        return AutoModelForCausalLM.from_pretrained(
            path, dtype=recipe.model.dtype, attn_implementation=recipe.model.attention
        )
    except (OSError, ValueError, ImportError) as error:
        raise RecipeError(
            f"the weights of {path!r} cannot be loaded with model.dtype={recipe.model.dtype} and "
            f"model.attention={recipe.model.attention}: {error} sdpa works everywhere; flash_attention_2 "
            "needs a GPU and the extra 'flash'."
        ) from error


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
    try:
        return LoraConfig(**{"task_type": "CAUSAL_LM", **recipe.model.lora})
    except (TypeError, ValueError) as error:
        raise RecipeError(f"model.lora: peft refuses {recipe.model.lora}: {error}") from error
