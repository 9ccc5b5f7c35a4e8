"""What trlmath adds to each worker of a vLLM server: weights that can be loaded, and are known by version.

vLLM imports this by name (``--worker-extension-cls``) in every worker before it builds the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from trlmath.sampling.devices import on_gpu
from trlmath.sampling.vllm_engine import keep_weights_loadable
from trlmath.sampling.vllm_load import load_into

if not on_gpu():
    keep_weights_loadable()


class WorkerExtension:
    """Methods that ``/collective_rpc`` can call by name; vLLM mixes this class into its worker."""

    model_runner: Any
    trlmath_version = ""

    def trlmath_load_weights(self, folder: str, version: str) -> dict[str, Any]:
        """Load every tensor of the safetensors files in `folder`.

        Args:
            folder: readable by this worker; on a shared file system or /dev/shm.
            version: names the weights, and the run they are of.

        Returns:
            ``version``, now served, and what `load_into` tells.

        Raises:
            FileNotFoundError: there is no safetensors file in `folder`.
        """
        files = sorted(Path(folder).glob("*.safetensors"))
        if not files:
            raise FileNotFoundError(f"no safetensors file in {folder}")
        # weights that are a part of each have no name
        self.trlmath_version = "weights that are not whole"
        told = load_into(self.model_runner.model, _tensors(files))
        self.trlmath_version = version
        return {"version": self.trlmath_version, **told}

    def trlmath_set_version(self, version: str) -> dict[str, str]:
        """Note the version of weights that came another way (NCCL)."""
        self.trlmath_version = version
        return {"version": self.trlmath_version}

    def trlmath_weights_version(self) -> dict[str, str]:
        """The version last loaded; "" for the weights that the server was started with."""
        return {"version": self.trlmath_version}


def _tensors(files: Sequence[Path]) -> Iterator[tuple[str, torch.Tensor]]:
    from safetensors import safe_open

    for path in files:
        with safe_open(path, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 (it is no dict)
                yield name, tensors.get_tensor(name)
