"""A plan: what a recipe needs in memory, phase by phase, and how much work it is. Loads no weight."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import psutil

from trlmath.planning.facts import Facts, facts_of
from trlmath.planning.machine import Machine
from trlmath.planning.memory import GPU_PROCESS, LATER, Phase, Setting, as_json, need_of, phases_of
from trlmath.planning.shapes import Shape, shape_of
from trlmath.planning.steps import Steps, steps_of
from trlmath.recipe import Recipe, check_trainer
from trlmath.sampling.choose import SERVER, choose_engine
from trlmath.sampling.memory_share import WORKSPACE

# algorithm -> the module that such a run's process begins with
_RUNS = {
    "grpo": "training.grpo_run",
    "sft": "training.sft_run",
    "expert_iteration": "training.expert_iteration_run",
    "evaluate": "evaluation.evaluation_run",
}


@dataclass(frozen=True)
class Plan:
    """What a recipe needs.

    Attributes:
        why: of the engine.
        notes: what was assumed or is not counted.
    """

    algorithm: str
    shape: Shape
    facts: Facts
    machine: Machine
    engine: str
    why: str
    processes: int
    phases: Sequence[Phase]
    steps: Steps
    notes: Sequence[str]

    @property
    def peak(self) -> Phase:
        """The widest phase."""
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def needed(self) -> int:
        """Bytes at the peak: on a GPU of one process, on a CPU of all, which share the memory."""
        return self.peak.total * (1 if self.machine.gpu else self.processes)

    @property
    def fits(self) -> bool:
        """Whether the machine has that much."""
        return self.needed <= self.machine.memory

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "algorithm": self.algorithm,
            "machine": {"gpu": self.machine.gpu, "bytes": self.machine.memory, "said": self.machine.said},
            "model": {
                "parameters": self.shape.parameters,
                "trained": self.shape.trained,
                "dtype": self.shape.dtype,
            },
            "engine": self.engine,
            "processes": self.processes,
            "longest_prompt": self.facts.longest_prompt,
            "phases": as_json(list(self.phases)),
            "peak_phase": self.peak.name,
            "peak_bytes": self.peak.total,
            "fits": self.fits,
            "steps": {
                "unit": self.steps.unit,
                "prompts": self.steps.prompts,
                "rollouts": self.steps.rollouts,
                "tokens": self.steps.tokens,
                "updates": self.steps.updates,
                "count": self.steps.count,
                "all_updates": self.steps.all_updates,
                "all_tokens": self.steps.all_tokens,
                "evaluations": self.steps.evaluations,
                "evaluated_tokens": self.steps.evaluated,
            },
            "notes": list(self.notes),
        }


def plan_of(
    recipe: Recipe,
    algorithm: str,
    machine: Machine,
    processes: int = 1,
    longest_prompt: int | None = None,
    resident: int | None = None,
) -> Plan:
    """Plan `recipe` as `recipes/<algorithm>.py` would run it.

    Args:
        processes: of the run, over all machines.
        longest_prompt: tokens; None: as the data says.
        resident: bytes that a process has taken before it has a model; None: what this one has.

    Raises:
        RecipeError, PluginError, DataError: the recipe is wrong, or its model's shape is not here.
    """
    if algorithm != "evaluate":
        check_trainer(recipe, algorithm)
    own = _imported(algorithm) if resident is None else resident
    shape = shape_of(recipe)
    facts = facts_of(recipe, algorithm, shape, longest_prompt)
    engine, why = _engine(recipe, shape, machine)
    process = int(GPU_PROCESS if machine.gpu else own + LATER)
    given = Setting(recipe, algorithm, shape, facts, machine, engine, processes, process)
    phases = phases_of(given)
    return Plan(
        algorithm,
        shape,
        facts,
        machine,
        engine,
        why,
        processes,
        phases,
        steps_of(recipe, algorithm, facts),
        [*facts.notes, *_notes(given, phases)],
    )


def replanned(plan: Plan, recipe: Recipe, algorithm: str, process: int) -> Plan:
    """`plan` with another recipe that reads the same data."""
    shape = shape_of(recipe)
    engine, why = _engine(recipe, shape, plan.machine)
    given = Setting(recipe, algorithm, shape, plan.facts, plan.machine, engine, plan.processes, process)
    return replace(plan, shape=shape, engine=engine, why=why, phases=phases_of(given))


def _imported(algorithm: str) -> int:
    """Bytes that a process of such a run has after its imports: those are made here too."""
    import_module(f"trlmath.{_RUNS[algorithm]}")
    return int(psutil.Process(os.getpid()).memory_info().rss)


def _engine(recipe: Recipe, shape: Shape, machine: Machine) -> tuple[str, str]:
    if recipe.sampling.mode == "server":
        return SERVER, "a server; its memory is another machine's, or another GPU's"
    # a GPU that is only planned for is taken to have what it needs
    installed = machine.gpu or importlib.util.find_spec("vllm") is not None
    return choose_engine(recipe.sampling.engine, shape.parameters, machine.gpu, installed)


def _notes(given: Setting, phases: Sequence[Phase]) -> list[str]:
    notes = []
    if given.shape.known:
        notes.append("the model's shape is the one known here; its config.json was not on this machine")
    if given.engine == "vllm":
        need = need_of(given)
        left = phases[0].parts["engine"] - need.weights - (WORKSPACE if given.machine.gpu else 0)
        whole = max(0, left // need.one_sequence)
        notes.append(f"vLLM's share leaves a cache for {whole:,} completions of full length at once")
    if given.machine.gpu:
        notes.append("estimates for GPUs have not been compared with measured runs")
    return notes
