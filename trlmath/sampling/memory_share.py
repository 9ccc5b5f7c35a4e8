"""How much memory a colocated vLLM may take, from what is free once the trainer's model is loaded.

vLLM takes its whole share at the start, so what the update still needs has to be left free by then. All
sizes are bytes; the functions that decide see numbers only, others fetch them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig

from trlmath.errors import EngineError
from trlmath.sampling.host_memory import GIB, host_memory
from trlmath.sampling.models import count_parameters

# what vLLM takes beside weights and cache: workspace of its largest batch, sampling, CUDA graphs
WORKSPACE = 2 * GIB
# left to the driver, other libraries and pieces too small to use
MARGIN = GIB // 2
# the cache is handed out in blocks of at most so many tokens
BLOCK = 128
# vLLM's own defaults: the most of a device, and completions decoded at once
MOST = 0.92
SEQUENCES = 256


@dataclass(frozen=True)
class Need:
    """What an engine needs, and what must stay free for others.

    Attributes:
        weights: of the engine's own copy.
        kv_per_token: keys and values of one token, all layers.
        context: tokens of the longest prompt and completion.
        sequences: decoded at once.
        reserve: the update allocates beside the engine: gradients, optimizer state, activations.
    """

    weights: int
    kv_per_token: int
    context: int
    sequences: int
    reserve: int = 0

    @property
    def one_sequence(self) -> int:
        """Cache of one sequence of full length, in whole blocks."""
        return math.ceil(self.context / BLOCK) * BLOCK * self.kv_per_token

    @property
    def cache(self) -> int:
        """Cache for all sequences at full length, and one block that vLLM keeps for itself."""
        return self.sequences * self.one_sequence + BLOCK * self.kv_per_token

    @property
    def least_cache(self) -> int:
        """Cache with which the longest sequence can be decoded at all."""
        return self.one_sequence + BLOCK * self.kv_per_token


def gpu_share(free: int, total: int, need: Need) -> float:
    """vLLM's ``gpu_memory_utilization``: the share of the device it takes, as much as is of use.

    Args:
        free: on the device, with the trainer's model loaded.
        total: of the device.

    Raises:
        EngineError: not even one sequence of full length fits; with the numbers.
    """
    room = min(free - need.reserve - MARGIN, math.floor(MOST * total))
    least = need.weights + WORKSPACE + need.least_cache
    if room < least:
        raise _does_not_fit(f"the GPU's {_gib(total)}", free, need, WORKSPACE, "gpu_memory_utilization")
    wanted = min(room, need.weights + WORKSPACE + need.cache)
    return math.floor(wanted / total * 10_000) / 10_000


def cpu_cache(free: int, total: int, need: Need) -> int:
    """vLLM's ``kv_cache_memory_bytes`` on a CPU: for all sequences at full length, or what there is room for.

    Raises:
        EngineError: not even one sequence of full length fits; with the numbers.
    """
    room = free - need.reserve - MARGIN - need.weights
    if room < need.least_cache:
        raise _does_not_fit(f"this machine's {_gib(total)}", free, need, 0, "kv_cache_memory_bytes")
    return min(room, need.cache)


def kv_bytes_per_token(config: Any, dtype: str, kv_cache_dtype: str = "auto") -> int:
    """Keys and values of one token in all layers, of a model of this (transformers) config.

    Args:
        dtype: of the engine, e.g. ``bfloat16``.
        kv_cache_dtype: vLLM's own; ``auto`` is `dtype`.
    """
    text = config.get_text_config()
    heads = text.num_attention_heads
    size = getattr(text, "head_dim", None) or text.hidden_size // heads
    groups = getattr(text, "num_key_value_heads", None) or heads
    return (
        2
        * text.num_hidden_layers
        * groups
        * size
        * _bytes(dtype if kv_cache_dtype == "auto" else kv_cache_dtype)
    )


def cache_size(model: str, options: Mapping[str, Any], on_cpu: bool, reserve: int = 0) -> dict[str, Any]:
    """The engine's memory in vLLM's own arguments; nothing where the user has set it.

    Args:
        model: a model directory or Hub id.
        options: of the engine, as vLLM names them.
        on_cpu: there is no GPU that vLLM would run on.
        reserve: see `Need`.

    Raises:
        EngineError: see `gpu_share` and `cpu_cache`.
    """
    given = {"gpu_memory_utilization", "kv_cache_memory_bytes"} & set(options)
    if given or (on_cpu and os.environ.get("VLLM_CPU_KVCACHE_SPACE")):
        return {}
    config = AutoConfig.from_pretrained(model, trust_remote_code=False)
    stored = str(config.dtype or "float32").removeprefix("torch.")
    dtype = stored if options["dtype"] == "auto" else options["dtype"]
    context = options.get("max_model_len") or config.get_text_config().max_position_embeddings
    sequences = options.get("max_num_seqs")
    need = Need(
        weight_bytes(count_parameters(config), dtype),
        kv_bytes_per_token(config, dtype, options.get("kv_cache_dtype") or "auto"),
        context,
        sequences if isinstance(sequences, int) else SEQUENCES,  # what is no number the engine refuses itself
        reserve,
    )
    free, total = free_memory(on_cpu)
    if on_cpu:
        return {"kv_cache_memory_bytes": cpu_cache(free, total, need)}
    return {"gpu_memory_utilization": gpu_share(free, total, need)}


def weight_bytes(parameters: int, dtype: str) -> int:
    """Bytes of a model's weights in `dtype`."""
    return parameters * _bytes(dtype)


def free_memory(on_cpu: bool) -> tuple[int, int]:
    """(free, total) of this process's GPU, or its share of the machine's memory."""
    if not on_cpu:
        torch.accelerator.empty_cache()  # what torch holds without using it is free
        return torch.accelerator.get_memory_info()
    free, total = host_memory()
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # every process of the run builds an engine now
    return free // here, total


def _bytes(dtype: str) -> int:
    known = getattr(torch, dtype, None)
    if isinstance(known, torch.dtype):
        return known.itemsize
    return 1 if "8" in dtype or "4" in dtype else 2


def _does_not_fit(where: str, free: int, need: Need, workspace: int, option: str) -> EngineError:
    parts = [f"weights {_gib(need.weights)}"]
    parts += [f"vLLM's workspace {_gib(workspace)}"] if workspace else []
    parts += [f"KV cache of one sequence of {need.context} tokens {_gib(need.least_cache)}"]
    parts += (
        [f"the update's gradients, optimizer state and activations {_gib(need.reserve)}"]
        if need.reserve
        else []
    )
    needed = need.weights + workspace + need.least_cache + need.reserve + MARGIN
    return EngineError(
        f"vLLM does not fit in this process: {_gib(free)} of {where} are free, and {_gib(needed)} are needed "
        f"({', '.join(parts)}, margin {_gib(MARGIN)}). Lower sampling.max_tokens"
        + (" or the microbatch_tokens of the update, " if need.reserve else ", ")
        + (
            "set sampling.sleep=true (frees vLLM's memory during the update), "
            if need.reserve and workspace
            else ""
        )
        + "use sampling.mode=server with devices of its own, or, if you know better, set "
        f"sampling.engine_options.{option}."
    )


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
