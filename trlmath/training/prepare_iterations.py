"""Prepare an expert iteration run: its parts and data, and the problems that it draws from."""

from __future__ import annotations

from trlmath.errors import DataError
from trlmath.evaluation.run import EvaluationSet
from trlmath.recipe import Recipe, check_sections
from trlmath.recipe.schema import ExpertIterationSection
from trlmath.training.prepare import Prepared, prepare


def prepare_iterations(recipe: Recipe) -> Prepared:
    """Resolve the recipe's parts and data, loading no weight.

    Raises:
        RecipeError, PluginError: the recipe or one of its parts is wrong.
        DataError: the data cannot be read, or has fewer problems than an iteration draws.
    """
    check_sections(recipe, "expert_iteration")
    prepared = prepare(recipe, moments=("example", "trace"))
    section = recipe.expert_iteration or ExpertIterationSection()
    asked, rows = section.problems_per_iteration, len(prepared.problems)
    if asked > rows:
        raise DataError(
            f"{recipe.data.train.name!r} leaves {rows} training problems, and an iteration draws {asked} "
            f"different ones. Set expert_iteration.problems_per_iteration to at most {rows}, raise "
            "data.train_size, or filter less."
        )
    return prepared


def training_set(prepared: Prepared) -> EvaluationSet:
    """The training problems with their prompts in tokens and the rewards that grade them."""
    ids = [list(tokens) for tokens in prepared.tokenizer(text=prepared.prompts)["input_ids"]]
    weights = [reward.weight for reward in prepared.rewards]
    return EvaluationSet(prepared.problems, prepared.prompts, ids, prepared.rewards, weights)
