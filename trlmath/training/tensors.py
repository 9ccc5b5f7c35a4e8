"""Weights and an optimizer's state as safetensors files: exact, and read without running any code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from trlmath.errors import DataError


def trained_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters that training changes (with an adapter: only its own), on the CPU."""
    return {
        name: parameter.detach().cpu().contiguous()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


def write_weights(model: torch.nn.Module, path: Path) -> None:
    """Write the trained parameters of `model`."""
    save_file(trained_weights(model), path)


def read_weights(model: torch.nn.Module, path: Path) -> None:
    """Set the trained parameters of `model` to those in `path`. Raises DataError when they do not fit."""
    saved = load_file(path)
    own = {name: p for name, p in model.named_parameters() if p.requires_grad}
    odd = sorted(saved.keys() ^ own.keys())
    odd += [name for name in sorted(saved.keys() & own.keys()) if saved[name].shape != own[name].shape]
    if odd:
        raise DataError(f"{path} holds the weights of another model: {', '.join(odd[:3])} ... differ.")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(saved[name])


def write_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Write an optimizer's state.

    Raises:
        DataError: it holds something that is neither a tensor nor JSON.
    """
    state = optimizer.state_dict()
    tensors, numbers = {}, {}
    for index, values in state["state"].items():
        for name, value in values.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{index}/{name}"] = value.detach().cpu().contiguous()
            else:
                numbers[f"{index}/{name}"] = value
    try:
        told = json.dumps({"groups": state["param_groups"], "numbers": numbers})
    except TypeError as error:
        raise DataError(
            f"the state of the optimizer {type(optimizer).__name__} cannot be kept: {error}. Set "
            "expert_iteration.optimizer=fresh, or choose another trainer.optim."
        ) from error
    save_file(tensors, path, metadata={"optimizer": told})


def read_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Give `optimizer` the state that `write_optimizer` wrote. Raises DataError when it does not fit."""
    tensors = load_file(path)
    with safe_open(path, framework="pt") as file:
        told: Mapping[str, Any] = json.loads(file.metadata()["optimizer"])
    state: dict[int, dict[str, Any]] = {}
    for key, value in [*tensors.items(), *told["numbers"].items()]:
        index, name = key.split("/", 1)
        state.setdefault(int(index), {})[name] = value
    try:
        optimizer.load_state_dict({"state": state, "param_groups": told["groups"]})
    except (ValueError, KeyError) as error:
        raise DataError(f"{path} holds the state of another optimizer: {error}.") from error
