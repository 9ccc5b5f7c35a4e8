"""Which knob makes a recipe fit, and how far it has to be turned: each is tried by planning again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trlmath.planning.memory import optimizer_of
from trlmath.planning.plan import Plan, replanned
from trlmath.recipe import Recipe
from trlmath.recipe.load import parse_recipe
from trlmath.recipe.overrides import apply_overrides
from trlmath.recipe.schema import BatchSection

_STEP = 256  # budgets that are suggested are multiples of it


@dataclass(frozen=True)
class Knob:
    """A change, and what it makes of the peak.

    Attributes:
        changes: overrides as a person types them.
        peak: bytes afterwards, of all that share the memory.
        phase: of that peak.
        fits: whether it is enough.
        cost: what it costs, in words.
    """

    changes: tuple[str, ...]
    peak: int
    phase: str
    fits: bool
    cost: str


def knobs(plan: Plan, recipe: Recipe) -> list[Knob]:
    """Changes that lower the peak, one at a time; when none is enough, all of them together come last."""
    found, together = [], list[str]()
    for changes, cost in _candidates(plan, recipe):
        tried = _try(plan, recipe, changes, cost)
        if tried.peak < 0.99 * plan.needed:
            found.append(tried)
            together += [change for change in changes if _key(change) not in map(_key, together)]
    if found and not any(knob.fits for knob in found) and len(found) > 1:
        found.append(_try(plan, recipe, tuple(together), "all of these"))
    return sorted(found, key=lambda knob: not knob.fits)


def _key(change: str) -> str:
    return change.partition("=")[0]


def _try(plan: Plan, recipe: Recipe, changes: tuple[str, ...], cost: str) -> Knob:
    changed = parse_recipe(apply_overrides(recipe.to_dict(), changes, Recipe().to_dict()))
    process = plan.phases[0].parts["process"]
    after = replanned(plan, changed, plan.algorithm, process)
    return Knob(changes, after.needed, after.peak.name, after.fits, cost)


def _candidates(plan: Plan, recipe: Recipe) -> Iterator[tuple[tuple[str, ...], str]]:
    trained = plan.algorithm != "evaluate"
    if trained and (smaller := _smaller_budget(plan, recipe)):
        yield (smaller,), "more, narrower forwards: the same update"
    if trained and not recipe.trainer.get("gradient_checkpointing", False):
        yield ("trainer.gradient_checkpointing=true",), "about a third more time in the update"
    if plan.engine == "vllm" and plan.machine.gpu:
        share = float(recipe.sampling.engine_options.get("gpu_memory_utilization", 0))
        least = 1.2 * plan.shape.parameters * plan.shape.item / plan.machine.memory + 0.05
        over = (plan.needed - plan.machine.memory) / plan.machine.memory
        less = max(least, share - over - 0.02)
        if trained and less < share:
            yield (f"sampling.engine_options.gpu_memory_utilization={less:.2f}",), "fewer completions at once"
        if trained and not recipe.sampling.sleep:
            yield ("sampling.sleep=true",), "vLLM frees its memory during the update, and wakes up again"
    if plan.engine == "transformers":
        rows = int(recipe.sampling.engine_options.get("max_rows", 256))
        if rows > recipe.rollout.group_size:
            fewer = max(recipe.rollout.group_size, rows // 4)
            yield (f"sampling.engine_options.max_rows={fewer}",), "fewer completions at once"
    if trained and plan.machine.gpu and optimizer_of(recipe).startswith("adamw_torch"):
        yield ("trainer.optim=adamw_bnb_8bit",), "Adam's state in 8 bits; needs bitsandbytes"
    if trained and recipe.model.dtype == "float32":
        yield ("model.dtype=bfloat16",), "weights, gradients and Adam's state in 16 bits"
    if trained and recipe.model.lora is None:
        yield ("model.lora={r: 16, lora_alpha: 32, target_modules: all-linear}",), "trains an adapter only"


def _smaller_budget(plan: Plan, recipe: Recipe) -> str:
    """The largest budget whose update fits, by a straight line; half of it when no budget is enough."""
    grpo = plan.algorithm == "grpo"
    key = "rollout.microbatch_tokens" if grpo else "batch.microbatch_tokens"
    if grpo:
        step = recipe.rollout.prompts_per_step * recipe.rollout.group_size
        now = recipe.rollout.microbatch_tokens or step * (plan.facts.longest_prompt + plan.facts.max_tokens)
        least = plan.facts.longest_prompt + plan.facts.max_tokens
    else:
        batch = recipe.batch or BatchSection()
        now = batch.microbatch_tokens or sum(plan.facts.examples)
        least = max(plan.facts.examples, default=1)
    update = next(phase for phase in plan.phases if phase.name == "update")
    moving = update.parts["activations"]
    room = plan.machine.memory / (1 if plan.machine.gpu else plan.processes) - (update.total - moving)
    share = room / moving if moving and room > 0 else 0.5
    less = int(0.95 * now * min(1.0, share)) // _STEP * _STEP
    less = max(less, -(-least // _STEP) * _STEP)
    return f"{key}={less}" if less < now else ""
