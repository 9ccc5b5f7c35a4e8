"""Build an engine around a model that is not being trained; an adapter is merged into its base."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from trlmath.recipe import Recipe
from trlmath.sampling.choose import SERVER, check_engine
from trlmath.sampling.models import ModelFiles, eos_token_ids, load_whole, save_whole
from trlmath.sampling.sampler import Sampler
from trlmath.together import from_first


def build_sampler(
    recipe: Recipe,
    files: ModelFiles,
    engine: str,
    context: int | None,
    held: ExitStack,
    max_seqs: int = 256,
    device: Any = "cpu",
    processes: int = 1,
    number: int = 0,
    log: Path | None = None,
    probe: str = "What is 12 + 30? <think>",
) -> Sampler:
    """Load the weights into an engine on this process, which `held` closes.

    Args:
        engine: ``transformers``, ``vllm`` or ``server``, as `engine_of` returned it.
        context: tokens that a prompt and its completion take together; None: a running server's own.
        max_seqs: completions that vLLM decodes at once.
        device: torch device for the transformers engine.
        processes, number: of the run, and which one this is.
        log: for the output of a server that is started here.
        probe: a text that a server must read as our tokenizer does.

    Raises:
        RecipeError, EngineError: the weights cannot be loaded, the engine cannot start.
    """
    check_engine(recipe, engine)
    sampler: Sampler
    if engine == SERVER:
        from trlmath.sampling.serving import open_server

        own = recipe.sampling.url is None
        server = open_server(
            recipe,
            _whole_directory(recipe, files, held) if own and number == 0 else files.path,
            context,
            recipe.model.dtype,
            log=log,
            main=number == 0,
            share=from_first if processes > 1 else lambda value: value,
        )
        held.callback(server.close)
        server.check_tokenizer(probe, files.tokenizer(text=probe)["input_ids"])
        return server
    if engine == "transformers":
        from trlmath.sampling.transformers_engine import TransformersSampler

        model = load_whole(recipe, files).to(device)
        sampler = TransformersSampler(
            model,
            files.tokenizer,
            eos_token_ids(model, files.tokenizer),
            context=context,
            **recipe.sampling.engine_options,
        )
    else:
        from trlmath.sampling.vllm_engine import VllmSampler

        sampler = VllmSampler(
            _whole_directory(recipe, files, held),
            dtype=recipe.model.dtype,
            context=context,
            max_seqs=max_seqs,
            seed=recipe.run.seed + number,
            world_size=processes,
            engine_options=recipe.sampling.engine_options,
        )
    held.callback(sampler.close)
    return sampler


def _whole_directory(recipe: Recipe, files: ModelFiles, held: ExitStack) -> str:
    if files.base is None:
        return str(Path(files.path).resolve()) if Path(files.path).exists() else files.path
    folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="trlmath-merged-")))
    return str(save_whole(load_whole(recipe, files), files.tokenizer, folder))
