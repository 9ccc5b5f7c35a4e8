"""What trainer arguments need of this machine: packages, a GPU, the Hub. Asked before any weight loads."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from trlmath.errors import RecipeError

# argument -> (package, how to install it)
PACKAGES = {"use_liger_kernel": ("liger_kernel", "liger-kernel"), "deepspeed": ("deepspeed", "deepspeed")}


def check_machine(trainer: Mapping[str, Any]) -> None:
    """Raise RecipeError naming every argument that cannot work here: else transformers would, later.

    Args:
        trainer: the recipe's section, values converted.
    """
    errors = []
    for name, (module, package) in PACKAGES.items():
        if trainer.get(name) and importlib.util.find_spec(module) is None:
            errors.append(
                f"trainer.{name}: the package {package} is not installed. Install it (pip install {package}) "
                "or remove the key."
            )
    if trainer.get("fp16") and not _cuda():
        errors.append(
            "trainer.fp16: needs a GPU, and there is none. Remove it; trainer.bf16=true works on a CPU too."
        )
    if trainer.get("push_to_hub"):
        errors += _hub()
    if errors:
        raise RecipeError("\n".join(errors))


def _cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _hub() -> list[str]:
    from huggingface_hub import whoami

    try:
        whoami()
    except Exception as error:  # noqa: BLE001  (no token, no network, no permission: each has its own tree)
        told = str(error).strip().splitlines() or [type(error).__name__]
        return [
            f"trainer.push_to_hub: the Hub does not take this login: {told[0]} Log in with `hf auth "
            "login` (or HF_TOKEN), or remove the key: the run's checkpoints can be uploaded later."
        ]
    return []
