"""Weights into a vLLM model, with proof that every tensor was taken and every parameter given one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from trlmath.errors import EngineError

# of a model whose embeddings are tied: vLLM drops it, as it is the embeddings
_TIED = "lm_head.weight"
# parameters of vLLM's that are buffers in transformers' modules: not trained, so never sent
_BUFFERS = ("e_score_correction_bias",)


def load_into(model: Any, named_tensors: Iterable[tuple[str, torch.Tensor]]) -> dict[str, list[str]]:
    """Load the tensors into vLLM's `model` one by one; with a sharded trainer one is gathered at a time.

    Returns:
        ``refused``: names that the model did not take; where it is cut over workers, another may have.
        ``missing``: parameters of the model that none of the tensors went to.
    """
    given, refused, traced = set[str](), list[str](), True
    for name, tensor in named_tensors:
        taken = model.load_weights([(name, tensor)])
        if taken is None:  # an older kind of model, which does not say
            traced = False
        elif taken:
            given |= taken
        elif not (name.endswith(_TIED) and _is_tied(model)):
            refused.append(name)
    missing = sorted(_expected(model) - given) if traced else []
    return {"refused": refused, "missing": missing}


def _is_tied(model: Any) -> bool:
    return bool(getattr(getattr(model, "config", None), "tie_word_embeddings", False))


def _expected(model: Any) -> set[str]:
    """Parameters that loading gives values to; a quantized module's are made of them, as in vLLM's loader."""
    made = [
        name
        for name, module in model.named_modules()
        if not type(getattr(module, "quant_method", None)).__name__.startswith(("Unquantized", "NoneType"))
    ]
    return {
        name
        for name, _ in model.named_parameters()
        if not name.endswith(_BUFFERS) and not any(name.startswith(f"{module}.") for module in made)
    }


def not_whole(loaded: Iterable[dict[str, Any]]) -> str:
    """What of the weights did not arrive, in words; "" when all did.

    Args:
        loaded: what `load_into` returned on each worker of one engine.
    """
    told = list(loaded)
    if not told:
        return ""
    refused = set.intersection(*(set(one.get("refused", ())) for one in told))
    missing = set().union(*(one.get("missing", ()) for one in told))
    said = []
    if refused:
        said.append(f"{len(refused)} tensors sent were not taken ({', '.join(sorted(refused)[:3])})")
    if missing:
        said.append(f"{len(missing)} of its parameters were given none ({', '.join(sorted(missing)[:3])})")
    return " and ".join(said)


def drop_prefixes(llm: Any) -> None:
    """Empty the prefix cache of a `vllm.LLM`, which holds keys and values of the old weights.

    Raises:
        EngineError: it cannot be emptied.
    """
    # False while a request holds blocks: one that an interrupted call has left, or somebody else's. It then
    # waits, and is read again with the new weights.
    if llm.reset_prefix_cache():
        return
    try:
        emptied = llm.reset_prefix_cache(reset_running_requests=True)
    except RuntimeError as error:
        raise EngineError(f"{_KEPT} ({error}).") from error
    if not emptied:
        raise EngineError(f"{_KEPT}.")


_KEPT = "vLLM keeps cached prefixes of the old weights: rollouts would come from an old policy in part"
