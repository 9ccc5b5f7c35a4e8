"""A recipe's memory, phase by phase, on one process: what each part takes at the phase's widest."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import TrainingArguments

from trlmath.planning.batches import examples_work, rollouts_work
from trlmath.planning.facts import Facts
from trlmath.planning.fakes import activations
from trlmath.planning.generation import decoding, scoring
from trlmath.planning.machine import GIB, Machine
from trlmath.planning.shapes import Shape
from trlmath.recipe import Recipe
from trlmath.sampling.memory_share import (
    MARGIN,
    SEQUENCES,
    WORKSPACE,
    Need,
    kv_bytes_per_token,
    weight_bytes,
)
from trlmath.training.update_memory import state_bytes

GENERATING = ("generate", "evaluate")  # phases that a sleeping engine is awake in
GPU_PROCESS = 0.8 * GIB  # the context of CUDA and the workspaces of its libraries
# what a run loads after its own modules: a model's code, a tokenizer, the data, the trainer
LATER = 0.1 * GIB


@dataclass(frozen=True)
class Phase:
    """One phase.

    Attributes:
        name: of it.
        parts: what takes memory -> bytes.
    """

    name: str
    parts: Mapping[str, int]

    @property
    def total(self) -> int:
        """Bytes."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Setting:
    """What phases are computed from.

    Attributes:
        engine: ``transformers``, ``vllm`` or ``server``.
        processes: of the run.
        process: bytes that a process takes before it has a model.
    """

    recipe: Recipe
    algorithm: str
    shape: Shape
    facts: Facts
    machine: Machine
    engine: str
    processes: int
    process: int


def phases_of(given: Setting) -> list[Phase]:
    """Every phase of a step, in its order."""
    phases = _without_engine(given)
    if given.engine != "vllm":
        return phases
    with_engine = [p.name for p in phases if p.name in GENERATING or not given.recipe.sampling.sleep]
    engine = engine_bytes(given, max(p.total for p in phases if p.name in with_engine))
    return [
        Phase(p.name, dict(p.parts) | {"engine": engine} if p.name in with_engine else p.parts)
        for p in phases
    ]


def _without_engine(given: Setting) -> list[Phase]:
    recipe, shape, algorithm = given.recipe, given.shape, given.algorithm
    held = _held(given)
    phases: list[Phase] = []
    if algorithm in ("grpo", "expert_iteration"):
        rows = recipe.rollout.prompts_per_step * recipe.rollout.group_size // given.processes
        phases.append(Phase("generate", held | _generation(given, rows, recipe.rollout.group_size)))
    elif algorithm == "evaluate":
        phases.append(Phase("generate", held | _evaluation(given)))
    if algorithm == "evaluate":
        return phases
    work, parts = (
        rollouts_work(recipe, shape, given.facts, given.machine, given.processes)
        if algorithm == "grpo"
        else examples_work(recipe, given.facts, given.machine, given.processes)
    )
    if algorithm == "grpo" and (scored := _scored(given)):
        phases.append(Phase(scored, held | {"activations": activations(shape, work, backward=False)}))
    gradients = shape.trained * shape.item
    most = activations(shape, work)
    if parts == 1:
        # gradients come as activations go, and the head's are counted among these
        most = max(0, most - gradients)
    trained = held | {"gradients": gradients}
    if given.processes > 1:
        trained |= {"gradient buckets": gradients}
    phases.append(Phase("update", trained | {"activations": most}))
    phases.append(Phase("optimizer", trained | {"temporary": _temporary(given)}))
    if recipe.evaluation.enabled and recipe.data.eval is not None:
        phases.append(Phase("evaluate", held | _evaluation(given)))
    return phases


def optimizer_of(recipe: Recipe) -> str:
    """The name of the optimizer, transformers' default included."""
    default = next(f.default for f in dataclasses.fields(TrainingArguments) if f.name == "optim")
    return str(recipe.trainer.get("optim", default))


def _held(given: Setting) -> dict[str, int]:
    """What lies there in every phase, from the second step on."""
    recipe, shape, machine = given.recipe, given.shape, given.machine
    weights = shape.parameters * shape.item
    held = {"process": given.process, "weights": weights}
    if given.algorithm == "evaluate":
        if given.engine == "vllm":
            held.pop("weights")  # the engine's own are the only ones
    else:
        held["optimizer"] = int(shape.trained * state_bytes(optimizer_of(recipe), shape.item))
    if given.algorithm == "grpo" and recipe.trainer.get("beta", 0.0) and shape.lora is None:
        held["reference"] = weights
    if recipe.averaging and given.algorithm in ("sft", "expert_iteration"):
        copies = 1 if recipe.averaging.kind == "ema" else recipe.averaging.last
        if recipe.averaging.kind == "ema" or not machine.gpu:
            held["average"] = copies * shape.trained * 4
    return held


def engine_bytes(given: Setting, beside: int) -> int:
    """What a colocated vLLM takes, as a run decides it: as told, or what is of use and there is room for.

    Args:
        beside: bytes that the widest phase with the engine takes without it.
    """
    machine, options = given.machine, given.recipe.sampling.engine_options
    need = need_of(given)
    if machine.gpu and "gpu_memory_utilization" in options:
        return int(float(options["gpu_memory_utilization"]) * machine.memory)
    workspace = WORKSPACE if machine.gpu else 0
    if "kv_cache_memory_bytes" in options:
        return int(need.weights + workspace + float(options["kv_cache_memory_bytes"]))
    if not machine.gpu and (told := os.environ.get("VLLM_CPU_KVCACHE_SPACE")):
        return int(need.weights + float(told) * GIB)
    least = need.weights + workspace + need.least_cache
    room = machine.memory // (1 if machine.gpu else given.processes) - beside - MARGIN
    return max(least, min(room, need.weights + workspace + need.cache))


def need_of(given: Setting) -> Need:
    """What the engine needs of memory."""
    recipe, shape, facts = given.recipe, given.shape, given.facts
    evaluation, options = recipe.evaluation, recipe.sampling.engine_options
    if given.algorithm in ("sft", "evaluate"):
        together = evaluation.chunk * max(setting.n for setting in evaluation.settings)
    else:
        together = recipe.rollout.prompts_per_step * recipe.rollout.group_size // given.processes
    # a trainer that computes in bfloat16 has its engine hold the weights in that
    half = given.algorithm != "evaluate" and recipe.trainer.get("bf16", False)
    dtype = "bfloat16" if half else shape.dtype
    told = options.get("max_num_seqs")
    return Need(
        weight_bytes(shape.parameters, dtype),
        kv_bytes_per_token(shape.config, dtype, options.get("kv_cache_dtype") or "auto"),
        facts.longest_prompt + facts.max_tokens,
        told if isinstance(told, int) else max(1, min(SEQUENCES, together)),
    )


def _generation(given: Setting, rows: int, together: int) -> dict[str, int]:
    if given.engine != "transformers":
        return {}
    return decoding(given.shape, given.facts, rows, together, given.recipe.sampling.engine_options)


def _evaluation(given: Setting) -> dict[str, int]:
    evaluation = given.recipe.evaluation
    if given.engine != "transformers":
        return {}
    most = max(setting.n for setting in evaluation.settings)
    asked = min(evaluation.chunk, given.facts.eval_rows or evaluation.chunk)
    parts = _generation(given, asked * most, most)
    # a completion's entropies are taken one by one, when the cache is gone
    entropies = scoring(given.shape, given.facts)
    return parts if sum(parts.values()) > entropies else {"logits": entropies}


def _scored(given: Setting) -> str:
    """What is scored before the update: the phase's name, or nothing."""
    recipe, trainer = given.recipe, given.recipe.trainer
    several = recipe.rollout.updates_per_rollout * recipe.rollout.epochs_per_rollout > 1
    corrected = given.engine != "transformers" and bool(
        trainer.get("vllm_importance_sampling_correction", True)
    )
    old = recipe.rollout.old_logprobs == "recompute" and (several or corrected)
    if old:
        return "old log-probabilities"
    return "reference" if trainer.get("beta", 0.0) else ""


def _temporary(given: Setting) -> int:
    """What the optimizer makes for a moment: nothing when fused, two tensors at a time on a CPU."""
    name, shape = optimizer_of(given.recipe), given.shape
    if "fused" in name or name not in ("adamw_torch",):
        return 0
    if given.machine.gpu:
        return shape.trained * shape.item  # all parameters' square roots at once
    return 2 * max(shape.tensors, default=0) * shape.item


def as_json(phases: list[Phase]) -> list[dict[str, Any]]:
    """Plain data."""
    return [{"phase": p.name, "bytes": p.total, "parts": dict(p.parts)} for p in phases]
