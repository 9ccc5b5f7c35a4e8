"""The category of a graded rollout: a plugin's word first, then the grader's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trlmath.errors import PluginError
from trlmath.grading import CATEGORIES
from trlmath.plugins import decide
from trlmath.types import Rollout


def classified(rollout: Rollout) -> Rollout:
    """Ask the plugins' ``classify`` hooks for the category of a graded rollout.

    Raises:
        PluginError: an implementation raised, or answered neither text nor None.
    """
    if rollout.grade is None:
        return rollout
    category = decide("classify", rollout=rollout, grade=rollout.grade)
    if category is None:
        return rollout
    if not isinstance(category, str) or not category:
        raise PluginError(f"the hook classify answered {category!r}; allowed: a category's name, or None.")
    return replace(rollout, grade=replace(rollout.grade, category=category))


def category_shares(counts: Mapping[str, int]) -> dict[str, float]:
    """``category/<name>`` -> share of the completions, for metrics; the shares add up to 1.

    Where our grader graded, each of its categories is told, at 0 too: a series without holes.
    """
    total = sum(counts.values())
    names = (*counts, *(CATEGORIES if any(name in CATEGORIES for name in counts) else ()))
    return {f"category/{name}": counts.get(name, 0) / total for name in names} if total else {}
