"""The generation engine of an evaluation: no trainer around it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from trlmath.evaluation.prepare import PreparedEvaluation
from trlmath.sampling.build import build_sampler
from trlmath.sampling.choose import engine_of
from trlmath.sampling.models import count_parameters
from trlmath.sampling.sampler import Sampler


def choose(prepared: PreparedEvaluation) -> tuple[str, str]:
    """Return (engine, why): ``transformers``, ``vllm`` or ``server``. Raises EngineError."""
    each = sum(setting.n for setting in prepared.recipe.evaluation.settings)
    completions = each * len(prepared.data.problems)
    return engine_of(prepared.recipe, count_parameters(prepared.files.config), completions)


def build(
    prepared: PreparedEvaluation,
    engine: str,
    device: Any,
    processes: int,
    number: int,
    held: ExitStack,
    log: Path | None = None,
) -> Sampler:
    """Load the weights into an engine on this process, which `held` closes; see `build_sampler`."""
    evaluation = prepared.recipe.evaluation
    return build_sampler(
        prepared.recipe,
        prepared.files,
        engine,
        prepared.context,
        held,
        max_seqs=min(256, evaluation.chunk * max(s.n for s in evaluation.settings)),
        device=device,
        processes=processes,
        number=number,
        log=log,
        probe=prepared.data.prompts[0],
    )
