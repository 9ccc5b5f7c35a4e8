"""Out of memory, told as what a person can do about it: the allocator's words say neither where nor why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

import torch

from trlmath.errors import TrainingError
from trlmath.recipe import Recipe
from trlmath.recipe.schema import BatchSection

# how torch's and C++'s allocators say it where they raise a plain RuntimeError
_WORDS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "bad_alloc",
    "cannot allocate memory",
)
_ENGINES = ("trlmath/sampling/", "/vllm/")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether `error` is an allocator's, of the CPU or a GPU."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _WORDS)


@contextmanager
def explained(recipe: Recipe, algorithm: str, when: Callable[[], str]) -> Iterator[None]:
    """Within, an allocator's error becomes one that names the knobs.

    Args:
        when: says when it was, e.g. ``after 139 steps``.

    Raises:
        TrainingError: memory ran out.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        generating = _within(error.__traceback__, _ENGINES)
        knobs = generation_knobs(recipe) if generating else update_knobs(recipe, algorithm)
        what = " while generating" if generating else ""
        raise TrainingError(f"out of memory {when()}{what}: {first_line(error)}. {knobs}") from error


def update_knobs(recipe: Recipe, algorithm: str) -> str:
    """What makes the update narrower, in sentences."""
    section, budget = (
        ("rollout", recipe.rollout.microbatch_tokens)
        if algorithm == "grpo"
        else ("batch", (recipe.batch or BatchSection()).microbatch_tokens)
    )
    key = f"{section}.microbatch_tokens"
    told = f"Lower {key} (now {budget})" if budget else f"Set {key} (now null: a step is one forward)"
    ways = [told]
    if not recipe.trainer.get("gradient_checkpointing", False):
        ways.append("set trainer.gradient_checkpointing=true")
    if recipe.model.lora is None:
        ways.append("train an adapter (model.lora)")
    if recipe.model.dtype == "float32":
        ways.append("use model.dtype=bfloat16")
    return f"{', or '.join(ways)}. `trlmath plan` tells what takes the memory."


def generation_knobs(recipe: Recipe) -> str:
    """What makes generation narrower, in a sentence."""
    return (
        "Lower sampling.engine_options.max_rows (transformers: completions at once) or "
        "sampling.engine_options.gpu_memory_utilization (vLLM's share), or sampling.max_tokens "
        f"(now {recipe.sampling.max_tokens}). `trlmath plan` tells what takes the memory."
    )


def first_line(error: BaseException) -> str:
    """The allocator's own words, or the error's name."""
    lines = str(error).strip().splitlines()
    return (
        re.sub(r"^\[enforce fail[^]]*] .*?== 0\. ", "", lines[0]).rstrip(". ")
        if lines
        else type(error).__name__
    )


def _within(trace: TracebackType | None, folders: tuple[str, ...]) -> bool:
    while trace is not None:
        if any(folder in trace.tb_frame.f_code.co_filename for folder in folders):
            return True
        trace = trace.tb_next
    return False
