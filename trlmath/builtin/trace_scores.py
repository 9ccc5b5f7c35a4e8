"""The scores by which filters compare sampled traces."""

from __future__ import annotations

from trlmath.data.lineage import grade_of, lineage_of
from trlmath.errors import RecipeError, nearest
from trlmath.types import Problem

SCORES = ("pass_rate", "hardness", "confidence", "reward")


def trace_score(item: Problem, name: str) -> float | None:
    """The score `name` of a sampled trace, None when it cannot be told.

    Args:
        name: ``pass_rate``: share of right rollouts among those of its problem in its iteration;
            ``hardness``: 1 minus that; ``confidence``: exp of the mean log-probability of its tokens;
            ``reward``; or a part of the grade, such as ``format``.

    Raises:
        RecipeError: the trace was not sampled and graded by this run, or there is no such score.
    """
    lineage, grade = lineage_of(item), grade_of(item)
    if lineage is None or grade is None:
        raise RecipeError(
            f"the trace has no {name}: it was given, not sampled and graded. This filter is for expert "
            "iteration; for given traces use correct_answer, trace_length, duplicate_trace or per_problem."
        )
    if name == "reward":
        return grade.reward
    if name == "pass_rate":
        return lineage.pass_rate
    if name == "hardness":
        return None if lineage.pass_rate is None else 1.0 - lineage.pass_rate
    if name == "confidence":
        return lineage.confidence
    if name in grade.parts:
        return grade.parts[name]
    allowed = [*SCORES, *grade.parts]
    raise RecipeError(f"there is no score {name!r}.{nearest(name, allowed)} Allowed: {', '.join(allowed)}.")
