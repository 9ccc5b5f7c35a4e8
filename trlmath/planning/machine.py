"""What memory a run has: a GPU of some size, or this machine's."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from trlmath.errors import RecipeError
from trlmath.sampling.host_memory import GIB, host_memory

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True)
class Machine:
    """Where a run would be.

    Attributes:
        gpu: whether a GPU's memory is planned.
        memory: bytes that there are.
        said: in words.
    """

    gpu: bool
    memory: int
    said: str


def machine(gpu: str | None = None) -> Machine:
    """A GPU with so much memory (``80GB``), or, when not given, this machine: its first GPU, or its memory.

    Raises:
        RecipeError: `gpu` is no size.
    """
    if gpu is not None:
        return Machine(True, size(gpu), f"a GPU of {size(gpu) / GIB:,.0f} GiB")
    if torch.cuda.is_available():
        total = torch.cuda.mem_get_info(0)[1]
        return Machine(True, total, f"{torch.cuda.get_device_name(0)}, {total / GIB:,.0f} GiB")
    total = host_memory()[1]
    return Machine(False, total, f"this machine, no GPU, {total / GIB:,.0f} GiB")


def size(given: str) -> int:
    """Bytes of ``80GB``, ``80G``, ``80 GiB``; a unit is a power of 1,024, as makers of GPUs count."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?\s*", given, re.IGNORECASE)
    bytes_ = int(float(found[1]) * _UNITS[found[2].upper()]) if found else 0
    if bytes_ < _UNITS["M"]:  # `24` is no GPU of 24 bytes
        raise RecipeError(f"--gpu: got {given!r}; allowed: a size with its unit: 80GB, 24G, 40960MB.")
    return bytes_
