"""Build the generation engine a recipe asks for around the trainer's model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from transformers import Trainer
from trl.models.utils import unwrap_model_for_generation

from trlmath.errors import EngineError
from trlmath.recipe import Recipe
from trlmath.sampling.choose import SERVER
from trlmath.sampling.models import eos_token_ids
from trlmath.sampling.sampler import Sampler
from trlmath.sampling.transformers_engine import TransformersSampler
from trlmath.together import from_first
from trlmath.training.update_memory import update_reserve


def sampler_factory(
    recipe: Recipe, engine: str, context: int, completions: int | None = None, log: Path | None = None
) -> Callable[[Any], tuple[Sampler, Sampler]]:
    """Return what builds (engine, reference) for a trainer (of transformers, and so any of TRL's).

    Args:
        engine: ``vllm``, ``transformers`` or ``server``.
        context: tokens that a prompt and its completion may take together.
        completions: drawn at once over all processes; None: those of a GRPO step.
        log: for the output of a server that is started here.
    """

    def build(trainer: Trainer) -> tuple[Sampler, Sampler]:
        model: Any = trainer.accelerator.unwrap_model(trainer.model)
        reference = TransformersSampler(
            model,
            trainer.processing_class,
            eos_token_ids(model, trainer.processing_class),
            open_model=_gathered(trainer),
            context=context if engine == "transformers" else None,
            **(recipe.sampling.engine_options if engine == "transformers" else {}),
        )
        if engine == "transformers":
            return reference, reference
        if engine == SERVER:
            return _server(recipe, trainer, context, log), reference
        from trlmath.sampling.vllm_engine import VllmSampler

        together = completions or recipe.rollout.prompts_per_step * recipe.rollout.group_size
        return (
            VllmSampler(
                _weights_of(trainer),
                dtype=engine_dtype(trainer),
                context=context,
                max_seqs=max(1, min(256, together // trainer.accelerator.num_processes)),
                seed=recipe.run.seed + trainer.accelerator.process_index,
                world_size=trainer.accelerator.num_processes,
                sleep=recipe.sampling.sleep,
                reserve=_reserve(recipe, trainer, context),
                engine_options=recipe.sampling.engine_options,
            ),
            reference,
        )

    return build


def _server(recipe: Recipe, trainer: Trainer, context: int, log: Path | None) -> Sampler:
    from trlmath.sampling.serving import open_server

    sampler = open_server(
        recipe,
        _weights_of(trainer),
        context,
        engine_dtype(trainer),
        log=log,
        train=True,
        main=trainer.accelerator.is_main_process,
        share=from_first,
        device=trainer.accelerator.device,
    )
    probe = "What is 12 + 30? <think>"
    try:
        sampler.check_tokenizer(probe, trainer.processing_class(text=probe)["input_ids"])
    except EngineError:
        sampler.close()
        raise
    return sampler


def _reserve(recipe: Recipe, trainer: Trainer, context: int) -> int:
    """Bytes that the update will need on this process."""
    arguments = trainer.args
    cut = recipe.batch.microbatch_tokens if recipe.batch else recipe.rollout.microbatch_tokens
    return update_reserve(
        trainer.accelerator.unwrap_model(trainer.model),
        str(getattr(arguments.optim, "value", arguments.optim)),
        cut or arguments.per_device_train_batch_size * context,
        arguments.gradient_checkpointing,
        arguments.bf16,
        recipe.sampling.sleep,
    )


def engine_dtype(trainer: Trainer) -> str:
    """The dtype the engine holds weights in: the trainer's, or bfloat16 where it computes in that."""
    if trainer.args.bf16:
        return "bfloat16"
    model = trainer.accelerator.unwrap_model(trainer.model)
    return str(next(model.parameters()).dtype).removeprefix("torch.")


def _gathered(trainer: Trainer) -> Callable[[], AbstractContextManager[Any]]:
    """TRL's own way to a whole module: unwraps DDP, gathers what DeepSpeed and FSDP have sharded."""

    def open_model() -> AbstractContextManager[Any]:
        return unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=getattr(trainer.args, "ds3_gather_for_generation", True),
            gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
        )

    return open_model


def _weights_of(trainer: Trainer) -> str:
    model = trainer.accelerator.unwrap_model(trainer.model)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    path = base.name_or_path
    return str(Path(path).resolve()) if Path(path).exists() else path
