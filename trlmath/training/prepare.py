"""Everything of a run that can be known before a weight is loaded: parts, data, prompts, room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trlmath.components import resolve
from trlmath.data.audit import check_golds_readable
from trlmath.data.filtering import (
    LedgerEntry,
    Moment,
    NamedFilter,
    build_filters,
    check_moments,
    filter_problems,
)
from trlmath.data.load import column_names, load_problems, require_answers
from trlmath.data.prompts import Prompt, load_prompt
from trlmath.data.subset import subset
from trlmath.data.traces import prompt_text
from trlmath.evaluation.gates import check_gates
from trlmath.recipe import Recipe, check_components, check_context, check_enough_prompts, check_processes
from trlmath.rewards import RewardCaller, build_rewards
from trlmath.sampling.models import located, read_model_directory
from trlmath.sampling.settings import SamplingSettings
from trlmath.types import Problem


@dataclass(frozen=True)
class HeldOut:
    """What a run is evaluated on; nothing when evaluation is off.

    Attributes:
        problems: with golds.
        prompts: one a problem.
        prompt_ids: their tokens.
    """

    problems: list[Problem] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    prompt_ids: list[list[int]] = field(default_factory=list)


@dataclass(kw_only=True)
class PreparedRun:
    """A run that can start: what every algorithm needs.

    Attributes:
        model_path: directory or Hub id.
        context: the model's context in tokens; None when its config does not say.
        longest_prompt: in tokens, over training and evaluation.
        problems: what is trained on.
        held_out: what is evaluated on.
        ledger: every row that the filters dropped.
        rows_read: training rows before the filters.
        settings: how training rollouts are drawn.
    """

    recipe: Recipe
    model_path: str
    tokenizer: Any
    context: int | None
    longest_prompt: int
    prompt: Prompt
    rewards: list[RewardCaller]
    filters: list[NamedFilter]
    problems: list[Problem]
    rows_read: int
    settings: SamplingSettings
    held_out: HeldOut = field(default_factory=HeldOut)
    ledger: list[LedgerEntry] = field(default_factory=list)


@dataclass(kw_only=True)
class Prepared(PreparedRun):
    """A GRPO run that can start: one prompt a problem, and the advantage."""

    prompts: list[str]
    advantage: Any
    advantage_label: str


def prepare(recipe: Recipe, processes: int = 1, moments: Sequence[Moment] = ("example", "group")) -> Prepared:
    """Resolve every name, read and filter the data, and check that it fits, loading no weight.

    Args:
        processes: of the run.
        moments: at which the algorithm asks filters; a filter of another one is refused.

    Raises:
        RecipeError, PluginError, DataError: saying what is wrong and what to do.
    """
    check_processes(recipe, processes)
    check_components(recipe)
    prompt = load_prompt(recipe.data.prompt.name, recipe.data.prompt.options)
    rewards = build_rewards(recipe.rewards, recipe.checks)
    advantage = resolve("advantage", recipe.advantage.name)
    model_path = located(recipe.model.path)
    tokenizer, context = read_model_directory(model_path)

    filters = build_filters(recipe.filters, recipe.checks.reward_timeout, tokenizer=tokenizer, prompt=prompt)
    check_moments(filters, moments)
    rows = load_problems(recipe.data.train, "train", recipe.data.columns)
    filtered = filter_problems(rows, filters, recipe.data.train.name)
    chosen = subset(filtered.kept, recipe.data.train_size, recipe.data.train.name)
    problems = [filtered.kept[at] for at in chosen]
    require_answers(problems, recipe.data.train.name)
    check_golds_readable(problems, recipe.data.train.name, recipe.data.unreadable_golds)
    check_enough_prompts(recipe, len(problems))
    kept_back = held_out(recipe, prompt, tokenizer)
    for reward in rewards:
        reward.check_columns(column_names(problems))
    check_gates(rewards, problems)

    prompts = [prompt_text(p, prompt, tokenizer) for p in problems]
    ids = tokenizer(text=prompts)["input_ids"]
    longest = max(map(len, [*ids, *kept_back.prompt_ids]))
    if context is not None:
        check_context(recipe, context, longest)
    return Prepared(
        recipe=recipe,
        model_path=model_path,
        tokenizer=tokenizer,
        context=context,
        longest_prompt=longest,
        prompt=prompt,
        rewards=rewards,
        advantage=advantage.build(recipe.advantage.options),
        advantage_label=f"{advantage.name!r} ({advantage.origin})",
        filters=filters,
        problems=problems,
        prompts=prompts,
        rows_read=len(rows),
        settings=training_settings(recipe, prompt),
        held_out=kept_back,
        ledger=filtered.dropped,
    )


def held_out(recipe: Recipe, prompt: Prompt, tokenizer: Any) -> HeldOut:
    """What the run is evaluated on. Raises DataError."""
    if not recipe.evaluation.enabled or recipe.data.eval is None:
        return HeldOut()
    problems = load_problems(recipe.data.eval, "eval", recipe.data.columns)[: recipe.evaluation.limit]
    require_answers(problems, recipe.data.eval.name)
    prompts = [prompt_text(p, prompt, tokenizer) for p in problems]
    return HeldOut(problems, prompts, tokenizer(text=prompts)["input_ids"] if prompts else [])


def training_settings(recipe: Recipe, prompt: Prompt) -> SamplingSettings:
    """How training rollouts are drawn."""
    sampling = recipe.sampling
    own = (prompt.stop,) if prompt.stop else ()
    return SamplingSettings(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k or 0,
        min_p=sampling.min_p or 0.0,
        min_tokens=sampling.min_tokens,
        max_tokens=sampling.max_tokens,
        stop=own if sampling.stop is None else tuple(sampling.stop),
    )


def rows_by_filter(prepared: PreparedRun, moments: Sequence[str]) -> list[dict[str, Any]]:
    """Training rows before and after each filter that was asked before training, in that order."""
    dropped, rows, found = dropped_by_filter(prepared.ledger), prepared.rows_read, []
    for moment in moments:
        for named in (f for f in prepared.filters if f.moment == moment):
            left = rows - dropped.pop(named.name, 0)
            found.append({"filter": named.name, "moment": moment, "before": rows, "after": left})
            rows = left
    return found


def dropped_by_filter(ledger: Sequence[LedgerEntry]) -> dict[str, int]:
    """Rows dropped by each filter."""
    counts: dict[str, int] = {}
    for entry in ledger:
        counts[entry.filter] = counts.get(entry.filter, 0) + 1
    return counts
