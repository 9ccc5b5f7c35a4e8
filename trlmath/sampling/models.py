"""Model directories: what can be read before a weight is loaded, the weights, and LoRA adapters."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from trlmath.data.nano import MODEL_DIR
from trlmath.errors import RecipeError
from trlmath.recipe import Recipe

ADAPTER = "adapter_config.json"
WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
_ENDS = 1 << 20
# what reading a file of weights raises that is no such file
DAMAGED = (SafetensorError, UnpicklingError, struct.error, EOFError)


@dataclass(frozen=True)
class ModelFiles:
    """What a model's small files say.

    Attributes:
        path: directory or Hub id, of the adapter when it is one.
        base: the model that an adapter was trained on; None when `path` is a whole model.
        tokenizer: with left padding; its pad token is the end-of-text token where it has none.
        context: in tokens; None when the config does not say.
        config: transformers' config of the (base) model.
    """

    path: str
    base: str | None
    tokenizer: Any
    context: int | None
    config: Any


def located(path: str) -> str:
    """A recipe's `model.path` as a directory or Hub id: ``nano`` is the embedded model."""
    return str(MODEL_DIR) if path == "nano" else path


def read_model_files(path: str) -> ModelFiles:
    """Read a model's or a LoRA adapter's small files.

    Raises:
        RecipeError: there is no such model, or it cannot generate.
    """
    if ("/" not in path or path.startswith((".", "/", "~"))) and not Path(path).expanduser().is_dir():
        raise RecipeError(
            f"model.path: there is no folder {path!r}. Give `nano` (the embedded model), a folder with "
            "config.json, or a Hub id owner/name."
        )
    where = str(Path(path).expanduser()) if Path(path).expanduser().is_dir() else path
    base = _base_of_adapter(where)
    tokens = where if base is None or (Path(where) / "tokenizer_config.json").exists() else base
    try:
        config = AutoConfig.from_pretrained(base or where, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(
            tokens, padding_side="left", truncation_side="left", trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        adapter = f" (base model of the adapter {path!r})" if base else ""
        raise RecipeError(
            f"model.path: {base or path!r}{adapter} cannot be read as a model: {error} Give a folder with "
            "config.json and a tokenizer, or check the Hub id and the network."
        ) from error
    # without its files transformers makes an empty one and says nothing
    if not tokenizer(text="1 + 1")["input_ids"]:
        raise RecipeError(
            f"model.path: {tokens!r} has no usable tokenizer: it reads '1 + 1' as no token. Put the "
            "tokenizer's files (tokenizer.json, tokenizer_config.json) beside config.json."
        )
    if tokenizer.eos_token_id is None:
        raise RecipeError(
            f"model.path: the tokenizer of {path!r} has no end-of-text token, so no completion could end. "
            "Set eos_token in its tokenizer_config.json."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    context = getattr(config.get_text_config(), "max_position_embeddings", None)
    return ModelFiles(where, base, tokenizer, context, config)


def read_model_directory(path: str) -> tuple[Any, int | None]:
    """Return (tokenizer, context in tokens or None) of a model. Raises RecipeError as `read_model_files`."""
    files = read_model_files(path)
    return files.tokenizer, files.context


def load_policy(recipe: Recipe, path: str) -> Any:
    """Load the weights of `path` in the recipe's dtype and attention.

    Raises:
        RecipeError: the weights cannot be loaded so; transformers' own words follow.
    """
    try:
        return AutoModelForCausalLM.from_pretrained(
            path,
            dtype=recipe.model.dtype,
            attn_implementation=recipe.model.attention,
            trust_remote_code=False,
        )
    except (OSError, ValueError, ImportError, RuntimeError, *DAMAGED) as error:
        told, attention = str(error).rstrip(". \n"), recipe.model.attention
        if isinstance(error, DAMAGED):
            todo = "A file of weights is damaged or cut off: copy or download it again."
        elif attention != "sdpa" and attention.split("_")[0] in told.lower().replace(" ", ""):
            todo = "sdpa works everywhere; flash_attention_2 needs a GPU and the extra 'flash'."
        else:
            todo = "Check that the folder holds the whole model: config.json and its *.safetensors."
        raise RecipeError(
            f"the weights of {path!r} cannot be loaded with model.dtype={recipe.model.dtype} and "
            f"model.attention={attention}: {told}. {todo}"
        ) from error


def load_whole(recipe: Recipe, files: ModelFiles) -> Any:
    """Load a model; an adapter is merged into its base. Raises RecipeError."""
    if files.base is None:
        return load_policy(recipe, files.path)
    from peft import PeftModel

    model = load_policy(recipe, files.base)
    try:
        return PeftModel.from_pretrained(model, files.path).merge_and_unload()
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise RecipeError(
            f"model.path: the adapter {files.path!r} does not fit its base model {files.base!r}: {error} "
            "Correct base_model_name_or_path in its adapter_config.json."
        ) from error


def save_whole(model: Any, tokenizer: Any, folder: Path) -> Path:
    """Write a merged model as a directory that every engine reads."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def count_parameters(config: Any) -> int:
    """Parameters of a model of this config, without allocating one."""
    from accelerate import init_empty_weights

    with init_empty_weights():
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()  # building on the meta device unties what the config ties
    return model.num_parameters()


def parameters_of(path: str) -> int:
    """Parameters of the model in a directory or on the Hub, read off its config. Raises RecipeError."""
    return count_parameters(read_model_files(path).config)


def eos_token_ids(model: Any, tokenizer: Any) -> list[int]:
    """Tokens that end a completion: the tokenizer's, and those of the model's generation config."""
    own = getattr(model.generation_config, "eos_token_id", None)
    more = [] if own is None else [own] if isinstance(own, int) else list(own)
    return list(dict.fromkeys([tokenizer.eos_token_id, *more]))


def weights_fingerprint(path: str) -> str:
    """Short hash that changes when the weights in a folder do; of a Hub id, the hash of its name.

    Reads the size and both ends of each file: after any training step, both differ.
    """
    digest = hashlib.sha256()
    folder = Path(path)
    files = sorted({f for pattern in WEIGHTS for f in folder.glob(pattern)}) if folder.is_dir() else []
    for file in files:
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with file.open("rb") as stream:
            digest.update(stream.read(_ENDS))
            stream.seek(max(0, size - _ENDS))
            digest.update(stream.read())
    if not files:
        digest.update(path.encode())
    return digest.hexdigest()[:16]


def _base_of_adapter(path: str) -> str | None:
    file = Path(path) / ADAPTER
    if not file.is_file():
        return None
    try:
        base = json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path")
    except ValueError as error:
        raise RecipeError(f"model.path: {file} is not valid JSON: {error}.") from error
    if not base:
        raise RecipeError(
            f"model.path: {file} names no base model. Write the folder or Hub id of the model that the "
            "adapter was trained on as base_model_name_or_path."
        )
    return located(base)
