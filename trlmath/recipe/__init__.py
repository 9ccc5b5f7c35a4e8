"""Recipes: typed YAML files that say what a run does, checked before any weight loads."""

from __future__ import annotations

from trlmath.recipe.checks import check_context, check_enough_prompts, check_processes, check_reward_timeout
from trlmath.recipe.load import find_recipe, load_recipe, parse_recipe
from trlmath.recipe.run_checks import check_components, check_trainer
from trlmath.recipe.schema import Recipe, Ref, RewardEntry
from trlmath.recipe.sections import check_sections, updates_of_phase
from trlmath.recipe.shipped import shipped_recipes, shipped_studies

__all__ = [
    "Recipe",
    "Ref",
    "RewardEntry",
    "check_components",
    "check_context",
    "check_enough_prompts",
    "check_processes",
    "check_reward_timeout",
    "check_sections",
    "check_trainer",
    "find_recipe",
    "load_recipe",
    "parse_recipe",
    "shipped_recipes",
    "shipped_studies",
    "updates_of_phase",
]
