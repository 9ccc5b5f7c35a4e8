"""Build the generation engine of an evaluation: no trainer around it, an adapter merged into its base."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list

from trlmath.evaluation.prepare import PreparedEvaluation
from trlmath.sampling.choose import SERVER, check_engine_options, engine_of
from trlmath.sampling.models import count_parameters, eos_token_ids, load_whole, save_whole
from trlmath.sampling.sampler import Sampler


def choose(prepared: PreparedEvaluation) -> tuple[str, str]:
    """Return (engine, why): ``transformers``, ``vllm`` or ``server``. Raises EngineError."""
    return engine_of(prepared.recipe, count_parameters(prepared.files.config))


def build(
    prepared: PreparedEvaluation,
    engine: str,
    device: Any,
    processes: int,
    number: int,
    held: ExitStack,
    log: Path | None = None,
) -> Sampler:
    """Load the weights into an engine on this process, which `held` closes.

    Args:
        engine: as `choose` returned it.
        device: torch device for the transformers engine.
        processes, number: of the run, and which one this is.
        log: for the output of a server that is started here.

    Raises:
        RecipeError, EngineError: the weights cannot be loaded, the engine cannot start.
    """
    recipe, files = prepared.recipe, prepared.files
    sampler: Sampler
    if engine == SERVER:
        from trlmath.sampling.serving import open_server

        own = recipe.sampling.url is None
        server = open_server(
            recipe,
            _whole_directory(prepared, held) if own and number == 0 else files.path,
            prepared.context,
            recipe.model.dtype,
            log=log,
            main=number == 0,
            share=_from_first,
        )
        held.callback(server.close)
        server.check_tokenizer(prepared.data.prompts[0], prepared.data.prompt_ids[0])
        return server
    check_engine_options(engine, recipe.sampling.engine_options)
    if engine == "transformers":
        from trlmath.sampling.transformers_engine import TransformersSampler

        model = load_whole(recipe, files).to(device)
        sampler = TransformersSampler(
            model, files.tokenizer, eos_token_ids(model, files.tokenizer), **recipe.sampling.engine_options
        )
    else:
        from trlmath.sampling.vllm_engine import VllmSampler

        sampler = VllmSampler(
            _whole_directory(prepared, held),
            dtype=recipe.model.dtype,
            context=prepared.context,
            max_seqs=min(256, recipe.evaluation.chunk * max(s.n for s in recipe.evaluation.settings)),
            seed=recipe.run.seed + number,
            world_size=processes,
            engine_options=recipe.sampling.engine_options,
        )
    held.callback(sampler.close)
    return sampler


def _whole_directory(prepared: PreparedEvaluation, held: ExitStack) -> str:
    files = prepared.files
    if files.base is None:
        return str(Path(files.path).resolve()) if Path(files.path).exists() else files.path
    folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="trlmath-merged-")))
    return str(save_whole(load_whole(prepared.recipe, files), files.tokenizer, folder))


def _from_first(value: Any) -> Any:
    told = [value]
    broadcast_object_list(told)
    return told[0]
