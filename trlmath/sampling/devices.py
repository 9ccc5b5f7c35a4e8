"""Which devices there are: for an engine in this process, and for a server of the run's own."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trlmath.errors import RecipeError

# with one of these in sampling.engine_options a server knows what of a shared GPU it may take
SHARES = ("gpu_memory_utilization", "kv_cache_memory_bytes")


def on_gpu() -> bool:
    """Whether there is a device of vLLM's kind: CUDA, ROCm or XPU."""
    return torch.cuda.is_available() or torch.xpu.is_available()


def own_device() -> str:
    """What torch calls this machine's devices: ``cuda`` (ROCm too), ``xpu`` or ``cpu``."""
    if torch.cuda.is_available():
        return "cuda"
    return "xpu" if torch.xpu.is_available() else "cpu"


def gpu_count() -> int:
    """GPUs that this process sees."""
    return {"cuda": torch.cuda.device_count, "xpu": torch.xpu.device_count}.get(own_device(), lambda: 0)()


def visible_variable() -> str:
    """The environment variable that says which GPUs a process sees."""
    return "ZE_AFFINITY_MASK" if own_device() == "xpu" else "CUDA_VISIBLE_DEVICES"


def of_visible(devices: Sequence[int], visible: str | None) -> str:
    """The value of `visible_variable` for a child that may see only `devices` of those seen here.

    Args:
        devices: numbers as this process counts: 0 is the first it sees.
        visible: the variable's value here; None: not set, every GPU is seen.

    Raises:
        RecipeError: there is no such one among the visible.
    """
    if visible is None:
        return ",".join(map(str, devices))
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if "-1" in names:
        names = names[: names.index("-1")]  # CUDA's own rule: what follows is not seen
    beyond = [n for n in devices if n >= len(names)]
    if beyond:
        raise RecipeError(
            f"sampling.devices: got {list(devices)}, and {visible_variable()}={visible} leaves "
            f"{len(names)} to see. They are counted among those: allowed: {_listed(range(len(names)))}."
        )
    return ",".join(names[n] for n in devices)


def check_server_devices(
    devices: Sequence[int] | None, count: int, trainers: int, options: Mapping[str, Any]
) -> None:
    """Check where a server of the run's own would start; before a weight is loaded.

    Args:
        devices: the recipe's ``sampling.devices``.
        count: GPUs that this process sees.
        trainers: processes that train on this machine, each on the GPU of its number; 0: none does.
        options: the recipe's ``sampling.engine_options``.

    Raises:
        RecipeError: there is no such GPU, one is named twice, or a trainer is on it and nothing says what of
            it the server may take.
    """
    if devices is not None:
        if count == 0:
            raise RecipeError(f"sampling.devices: got {list(devices)}, and there is no GPU here. Remove it.")
        if max(devices) >= count:
            raise RecipeError(
                f"sampling.devices: got {list(devices)}; allowed: {_listed(range(count))}, the GPUs this "
                f"process sees. The nearest is {count - 1}."
            )
        if len(set(devices)) < len(devices):
            raise RecipeError(f"sampling.devices: got {list(devices)}, which names a GPU twice.")
    # without devices vLLM begins with the first it sees
    meant = range(count and 1) if devices is None else devices
    shared = sorted(n for n in meant if n < trainers)
    if not shared or any(name in options for name in SHARES):
        return
    free = range(min(trainers, count), count)
    here = "is null, and vLLM would take GPU 0," if devices is None else f"got {list(devices)}:"
    raise RecipeError(
        f"sampling.devices: {here} where a trainer is ({_listed(shared)}); a vLLM takes most of a GPU's "
        + (f"memory. Allowed: {_listed(free)}. " if free else "memory, and no other GPU is left. ")
        + "To share one, say how much it may take: sampling.engine_options={gpu_memory_utilization: 0.3}, or "
        "have it in this process: sampling.mode=colocate."
    )


def trainers_here() -> int:
    """Processes of the launcher on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE") or 1)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"
