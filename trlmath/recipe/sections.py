"""Which sections an algorithm reads: a key that would do nothing is an error, not a surprise."""

from __future__ import annotations

from trlmath.errors import RecipeError
from trlmath.recipe.schema import Recipe, Section

# algorithm -> what it does not read, and why or what to use instead
UNREAD: dict[str, dict[str, str]] = {
    "grpo": {
        "batch": "GRPO's step is set by `rollout`",
        "expert_iteration": "it belongs to recipes/expert_iteration.py",
        "early_stop": "it is read by SFT and expert iteration",
        "averaging": "it is read by SFT and expert iteration",
    },
    "sft": {
        "rollout": "SFT's step is set by `batch`",
        "advantage": "SFT has no advantages",
        "expert_iteration": "it belongs to recipes/expert_iteration.py",
    },
    "expert_iteration": {"advantage": "expert iteration has no advantages: traces are kept or dropped"},
}


def check_sections(recipe: Recipe, algorithm: str) -> None:
    """Raise RecipeError naming every section set to something that `algorithm` would not read.

    A section written out with its defaults, as in a run's own ``recipe.yaml``, is no error.
    """
    defaults = Recipe()
    errors = [
        f"{name}: is not read by {algorithm}: {why}. Remove the section."
        for name, why in UNREAD.get(algorithm, {}).items()
        if _values(getattr(recipe, name)) != _values(getattr(defaults, name))
    ]
    if errors:
        raise RecipeError("\n".join(errors))


def _values(section: Section | None) -> dict | None:
    return None if section is None else section.model_dump()
