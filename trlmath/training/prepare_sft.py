"""Everything of an SFT run that can be known before a weight is loaded: traces, masks, prompts, room."""

from __future__ import annotations

from dataclasses import dataclass

from accelerate import PartialState

from trlmath.data.examples import default_cache
from trlmath.data.load import column_names
from trlmath.data.prompts import load_prompt
from trlmath.data.sft import TraceData, read_traces
from trlmath.evaluation.gates import check_gates
from trlmath.recipe import Recipe, check_components, check_context
from trlmath.rewards import build_rewards
from trlmath.sampling.models import located, read_model_directory
from trlmath.training.prepare import PreparedRun, held_out, training_settings


@dataclass(kw_only=True)
class PreparedSft(PreparedRun):
    """An SFT run that can start.

    Attributes:
        data: the examples, and how they came about.
    """

    data: TraceData


def prepare_sft(recipe: Recipe) -> PreparedSft:
    """Resolve every name, read, filter and tokenise the traces, and check that all fits, loading no weight.

    Raises:
        RecipeError, PluginError, DataError: saying what is wrong and what to do.
    """
    check_components(recipe)
    prompt = load_prompt(recipe.data.prompt.name, recipe.data.prompt.options)
    rewards = build_rewards(recipe.rewards, recipe.checks)
    model_path = located(recipe.model.path)
    tokenizer, context = read_model_directory(model_path)
    with PartialState().main_process_first():  # the others read what the first has put into the cache
        data = read_traces(recipe, prompt, tokenizer, context, default_cache())
    kept_back = held_out(recipe, prompt, tokenizer)
    if kept_back.problems:
        for reward in rewards:
            reward.check_columns(column_names(kept_back.problems))
    check_gates(rewards, kept_back.problems)
    longest = max(map(len, kept_back.prompt_ids), default=0)
    if context is not None and longest:
        check_context(recipe, context, longest)
    return PreparedSft(
        recipe=recipe,
        model_path=model_path,
        tokenizer=tokenizer,
        context=context,
        longest_prompt=longest,
        prompt=prompt,
        rewards=rewards,
        filters=data.filters,
        problems=data.trained,
        rows_read=data.rows_read,
        settings=training_settings(recipe, prompt),
        held_out=kept_back,
        ledger=data.ledger,
        data=data,
    )
