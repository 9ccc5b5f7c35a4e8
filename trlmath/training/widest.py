"""The widest micro-batch and generation that a trainer can come to: made up, all rows as long as may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from trlmath.data.examples import Example
from trlmath.sampling.rehearsal import rehearse
from trlmath.sampling.transformers_engine import TransformersSampler
from trlmath.training.grpo import MathGRPOTrainer
from trlmath.training.microbatches import MicroBatch
from trlmath.training.sft import MathSFTTrainer


@dataclass(frozen=True)
class Widest:
    """A forward and backward to try.

    Attributes:
        inputs: as the trainer's loss takes them.
        items: what the loss is divided by; None: nothing.
        rows, tokens: of the forward; a prompt that rows share counts once.
        longest: tokens of its longest row.
        several: whether a step has further ones, whose gradients are there by then.
    """

    inputs: Any
    items: torch.Tensor | None
    rows: int
    tokens: int
    longest: int
    several: bool


@dataclass(frozen=True)
class FullGeneration:
    """The end of generation when every completion is as long as it may be.

    Attributes:
        rows: completions decoded at once.
        prompt, completion: tokens of each.
        try_it: does it.
    """

    rows: int
    prompt: int
    completion: int
    try_it: Callable[[], None]


def full_generation(trainer: MathGRPOTrainer, prompt: int, completion: int) -> FullGeneration | None:
    """Of GRPO's rollouts; None where another process or vLLM generates, which takes its memory beforehand."""
    sampler, size = trainer.sampler, trainer.num_generations
    if not isinstance(sampler, TransformersSampler):
        return None
    asked = trainer.args.generation_batch_size // trainer.accelerator.num_processes // size
    prompts = max(1, min(asked, sampler.max_rows // size))
    do = partial(rehearse, sampler, prompts, size, prompt, completion, trainer.settings)
    return FullGeneration(prompts * size, prompt, completion, do)


def widest_rollouts(trainer: MathGRPOTrainer, prompt: int, completion: int) -> Widest:
    """Of GRPO's update, when all prompts and completions have so many tokens."""
    size, count = trainer.num_generations, trainer.args.per_device_train_batch_size
    keys = [row // size for row in range(count)]
    chosen = trainer._plan(keys, [prompt] * count, [completion] * count)
    groups = [keys[row] for row in chosen[0]]
    device, rows = trainer.accelerator.device, len(groups)
    part = MicroBatch()
    ids = torch.tensor(groups, device=device)
    vocabulary = trainer.accelerator.unwrap_model(trainer.model).get_input_embeddings().num_embeddings
    # prompts of different groups differ, or they would be shared
    digits = [(ids // vocabulary**place) % vocabulary for place in range(min(prompt, 4))]
    zeros = torch.zeros(rows, prompt - len(digits), dtype=torch.long, device=device)
    part["prompt_ids"] = torch.cat([zeros, torch.stack(digits, 1)], 1)
    part["prompt_mask"] = torch.ones_like(part["prompt_ids"])
    part["completion_ids"] = torch.zeros(rows, completion, dtype=torch.long, device=device)
    part["completion_mask"] = torch.ones_like(part["completion_ids"])
    part["advantages"] = torch.ones(rows, device=device)
    part["num_items_in_batch"] = part["completion_mask"].sum()
    part.tokens = rows * completion
    # TRL computes each of these before the update; here any number will do
    unknown = torch.zeros(rows, completion, device=device)
    part["old_per_token_logps"] = unknown
    if trainer.beta != 0.0:
        part["ref_per_token_logps"] = unknown
    if trainer.use_vllm:
        part["sampling_per_token_logps"] = unknown
        part["importance_sampling_ratio"] = torch.ones_like(unknown)
    shared = len(set(groups)) if trainer.padded_because is None else rows
    return Widest(part, None, rows, shared * prompt + rows * completion, prompt + completion, len(chosen) > 1)


def widest_examples(trainer: MathSFTTrainer, examples: Sequence[Example]) -> Widest:
    """Of SFT's update, when a step has the longest of `examples`."""
    state = trainer.accelerator
    longest = sorted(examples, key=len, reverse=True)[: trainer.batch.size]
    own = longest[state.process_index :: state.num_processes] or longest[-1:]
    step = trainer._collator(own)
    parts, supervised = step["parts"], step["supervised"]
    sizes = [int(part["input_ids"].numel()) for part in parts]
    at = max(range(len(parts)), key=sizes.__getitem__)
    rows = int(parts[at]["labels"].size(0)) if not trainer.batch.packing else len(own)
    return Widest(
        parts[at],
        torch.tensor(max(1, supervised[at]), device=trainer.accelerator.device),
        rows,
        sizes[at],
        max(map(len, own)),
        len(parts) > 1,
    )
