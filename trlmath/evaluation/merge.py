"""One grade of several rewards' grades; pure."""

from __future__ import annotations

from collections.abc import Sequence

from trlmath.types import Grade


def merge_grades(grades: Sequence[Grade], weights: Sequence[float]) -> Grade:
    """One grade of several rewards': weighted reward, all parts (the first reward's win), first category."""
    scored = [w * g.reward for g, w in zip(grades, weights, strict=True) if g.reward is not None]
    parts: dict[str, float | None] = {}
    for grade in reversed(grades):
        parts.update(grade.parts)
    told = next((g for g in grades if g.category), grades[0])
    return Grade(sum(scored) if scored else None, parts, told.category, told.reason, told.span)
