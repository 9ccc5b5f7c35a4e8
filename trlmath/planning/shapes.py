"""The shape of a recipe's model without its weights: from its small files, or as it is known here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.qwen2 import Qwen2Config

from trlmath.errors import RecipeError
from trlmath.recipe import Recipe
from trlmath.sampling.memory_share import kv_bytes_per_token
from trlmath.sampling.models import located
from trlmath.training.model import lora_config

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

# models of shipped recipes, for a machine that has not downloaded them: as their config.json has it
KNOWN: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-Math-1.5B": {
        "vocab_size": 151_936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    },
}


@dataclass(frozen=True)
class Shape:
    """What memory depends on.

    Attributes:
        config: transformers' config.
        lora: peft's config, or None.
        dtype: of the weights, as torch names it.
        parameters, trained: how many there are; how many of them are trained.
        tensors: sizes of the trained parameters, in numbers of elements.
        known: whether the shape is this package's own knowledge, no file having been there.
    """

    config: Any
    lora: Any
    dtype: str
    parameters: int
    trained: int
    tensors: tuple[int, ...]
    known: bool = False

    @property
    def item(self) -> int:
        """Bytes of a weight."""
        return BYTES[self.dtype]

    @property
    def text(self) -> Any:
        """The config of the language model."""
        return self.config.get_text_config()

    @property
    def context(self) -> int | None:
        """In tokens; None when the config does not say."""
        return getattr(self.text, "max_position_embeddings", None)

    @property
    def cache_of_token(self) -> int:
        """Bytes of a token's keys and values over all layers, in the weights' dtype."""
        return kv_bytes_per_token(self.config, self.dtype)


def shape_of(recipe: Recipe) -> Shape:
    """Return the shape of the recipe's model. Nothing is downloaded, and no weight is read.

    Raises:
        RecipeError: the config is not on this machine, or is of no model that generates.
    """
    path, lora = located(recipe.model.path), lora_config(recipe)
    config, known = _config(path)
    wanted = recipe.model.dtype
    dtype = str(getattr(config, "dtype", None) or "float32") if wanted == "auto" else wanted
    dtype = dtype.removeprefix("torch.")
    try:
        model = build(config, lora, dtype)
    except (ValueError, AttributeError, KeyError) as error:
        raise RecipeError(f"model.path: {path!r} is of no model that can be planned for: {error}") from error
    trained = tuple(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    return Shape(config, lora, dtype, total, sum(trained), trained, known)


def build(config: Any, lora: Any, dtype: str, attention: str = "sdpa") -> nn.Module:
    """The module, adapter included, on the meta device: shapes without memory."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, dtype), attn_implementation=attention
        )
    model.tie_weights()  # building on the meta device unties what the config ties
    if lora is None:
        return model
    from peft import get_peft_model

    return get_peft_model(model, lora)


def _config(path: str) -> tuple[Any, bool]:
    try:
        return AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False), False
    except (OSError, ValueError, KeyError) as error:
        if path in KNOWN:
            return Qwen2Config(**KNOWN[path]), True
        raise RecipeError(
            f"model.path: the shape of {path!r} is not on this machine, and a plan asks no network. "
            f"Fetch its config.json alone (hf download {path} config.json), or name a folder that holds one: "
            "model.path=FOLDER."
        ) from error
