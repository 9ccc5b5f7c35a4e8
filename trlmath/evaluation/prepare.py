"""Everything of an evaluation that can be known before a weight is loaded: parts, data, prompts, room."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from trlmath.data.load import column_names, load_problems, require_answers
from trlmath.data.prompts import Prompt, load_prompt
from trlmath.data.traces import prompt_text
from trlmath.errors import DataError, RecipeError, nearest
from trlmath.evaluation.gates import check_gates
from trlmath.evaluation.run import EvaluationSet
from trlmath.evaluation.sample import problem_key
from trlmath.recipe import Recipe, check_components
from trlmath.recipe.schema import EvaluationSetting
from trlmath.rewards import RewardCaller, build_rewards
from trlmath.sampling.models import ModelFiles, located, read_model_files, weights_fingerprint
from trlmath.sampling.settings import SamplingSettings
from trlmath.types import Problem

# what `fit` gives a completion where the context allows: CS336's number
ROOM = 1024


@dataclass(frozen=True)
class PreparedEvaluation:
    """An evaluation that can start.

    Attributes:
        max_tokens: of a completion.
        without_gold: problems that have no answer; their completions are counted as unscored.
        notes: lines for the person watching.
    """

    recipe: Recipe
    files: ModelFiles
    prompt: Prompt
    rewards: list[RewardCaller]
    data: EvaluationSet
    max_tokens: int
    without_gold: int
    notes: list[str]

    @property
    def context(self) -> int:
        """Tokens that the longest prompt generated from and its completion take together."""
        fitting = [len(p) for i, p in enumerate(self.data.prompt_ids) if i not in self.data.too_long]
        return max(fitting, default=1) + self.max_tokens

    def settings(self, setting: EvaluationSetting) -> SamplingSettings:
        """How completions of one setting are drawn."""
        sampling = self.recipe.sampling
        own = (self.prompt.stop,) if self.prompt.stop else ()
        return evaluation_settings(
            setting,
            sampling.min_tokens,
            self.max_tokens,
            own if sampling.stop is None else tuple(sampling.stop),
            self.recipe.run.seed,
        )

    def identity(self, engine: str) -> dict[str, Any]:
        """What makes two evaluations the same, so that one may go on where the other stopped."""
        recipe, problems = self.recipe, self.data.problems
        keys = "".join(problem_key(p.question, p.answer) for p in problems)
        sampling = recipe.sampling
        return {
            "model": self.files.path,
            "weights": weights_fingerprint(self.files.path),
            "dtype": recipe.model.dtype,
            "engine": engine,
            "dataset": recipe.data.eval.name if recipe.data.eval else "",
            "problems": len(problems),
            "problems_sha256": hashlib.sha256(keys.encode()).hexdigest()[:16],
            "prompt_sha256": self.prompt.sha256[:16],
            "rewards": [f"{r.name} {r.options} x {r.weight}" for r in recipe.rewards],
            "settings": [s.name for s in recipe.evaluation.settings],
            # each number under its own name, so that a refusal names only what differs
            **{
                f"{s.name}.{key}": list(value) if isinstance(value, tuple) else value
                for s in recipe.evaluation.settings
                for key, value in {**asdict(self.settings(s)), "n": s.n}.items()
            },
            "chunk": recipe.evaluation.chunk,
            "url": sampling.url,
        }


def prepare_evaluation(recipe: Recipe, fit: bool = False) -> PreparedEvaluation:
    """Resolve every name and read the data, loading no weight.

    Args:
        fit: choose ``max_tokens``: 1,024, or less where the context leaves less; else the recipe's is taken.

    Raises:
        RecipeError, PluginError, DataError: saying what is wrong and what to do.
    """
    check_components(recipe)
    if recipe.data.eval is None:
        raise RecipeError("data.eval is null: name the dataset to evaluate on.")
    prompt = load_prompt(recipe.data.prompt.name, recipe.data.prompt.options)
    rewards = build_rewards(recipe.rewards, recipe.checks)
    files = read_model_files(located(recipe.model.path))
    problems = load_problems(recipe.data.eval, "eval", recipe.data.columns)[: recipe.evaluation.limit]
    without = sum(p.answer is None or not p.answer.strip() for p in problems)
    if without == len(problems):
        require_answers(problems, recipe.data.eval.name)
    for reward in rewards:
        reward.check_columns(column_names(problems))
    check_gates(rewards, problems)
    _check_fields(recipe.evaluation.by, problems)
    prompts = [prompt_text(p, prompt, files.tokenizer) for p in problems]
    ids = [list(tokens) for tokens in files.tokenizer(text=prompts)["input_ids"]]
    max_tokens = _room(files.context, ids) if fit else recipe.sampling.max_tokens
    too_long = _too_long(files.context, ids, max_tokens, recipe)
    notes = []
    if without:
        notes.append(f"{without} of {len(problems)} problems have no gold answer: counted as unscored.")
    if too_long:
        notes.append(
            f"{len(too_long)} prompts leave no room for {max_tokens} tokens in the context of "
            f"{files.context}: counted as prompt_too_long, not generated."
        )
    return PreparedEvaluation(
        recipe=recipe,
        files=files,
        prompt=prompt,
        rewards=rewards,
        data=EvaluationSet(problems, prompts, ids, rewards, [r.weight for r in rewards], too_long),
        max_tokens=max_tokens,
        without_gold=without,
        notes=notes,
    )


def evaluation_settings(
    setting: EvaluationSetting, min_tokens: int, max_tokens: int, stop: Sequence[str], seed: int
) -> SamplingSettings:
    """How a setting's completions are drawn: of training's sampling only room and stop count."""
    return SamplingSettings(
        temperature=setting.temperature,
        top_p=setting.top_p,
        min_tokens=min_tokens,
        max_tokens=max_tokens,
        stop=tuple(stop),
        seed=seed,
    )


def _check_fields(by: Sequence[str], problems: Sequence[Problem]) -> None:
    fields = sorted({name for problem in problems for name in problem.metadata})
    for name in by:
        if name not in fields:
            raise RecipeError(
                f"evaluation.by: the dataset has no field {name!r}.{nearest(name, fields)} "
                f"Its fields: {', '.join(fields) or 'none beside question, answer and solution'}."
            )


def _room(context: int | None, prompt_ids: Sequence[Sequence[int]]) -> int:
    """`ROOM` tokens, or what the context leaves; a prompt beyond half the context does not count."""
    if context is None:
        return ROOM
    longest = max((len(p) for p in prompt_ids if len(p) <= context // 2), default=0)
    return max(1, min(ROOM, context - longest))


def _too_long(
    context: int | None, prompt_ids: Sequence[Sequence[int]], max_tokens: int, recipe: Recipe
) -> frozenset[int]:
    if context is None:
        return frozenset()
    found = frozenset(i for i, p in enumerate(prompt_ids) if len(p) + max_tokens > context)
    if len(found) == len(prompt_ids):
        shortest = min(map(len, prompt_ids))
        if shortest >= context:
            raise DataError(
                f"every prompt is longer than the context of {recipe.model.path!r} ({context} tokens; the "
                f"shortest prompt has {shortest}). Use a model with more context or other data."
            )
        raise RecipeError(
            f"sampling.max_tokens: {max_tokens} tokens beside any of the prompts (shortest: {shortest}) "
            f"exceed the context of {recipe.model.path!r}, {context} tokens. Set it to at most "
            f"{context - shortest}."
        )
    return found
