"""One grade of several rewards' grades; pure."""

from __future__ import annotations

from collections.abc import Sequence

from trlmath.reward_faults import failed
from trlmath.types import Grade


def merge_grades(grades: Sequence[Grade], weights: Sequence[float], names: Sequence[str] = ()) -> Grade:
    """One grade of several rewards': weighted reward, all parts, first category; a failure goes before it.

    A part that an earlier reward has as well is called ``<reward>/<part>``, by the rewards' `names`; without
    names the earlier one's stands.
    """
    scored = [w * g.reward for g, w in zip(grades, weights, strict=True) if g.reward is not None]
    parts: dict[str, float | None] = {}
    for number, grade in enumerate(grades):
        for part, value in grade.parts.items():
            if part not in parts:
                parts[part] = value
            elif names:
                parts[f"{names[number]}/{part}"] = value
    told = next((g for g in grades if failed(g)), next((g for g in grades if g.category), grades[0]))
    return Grade(sum(scored) if scored else None, parts, told.category, told.reason, told.span)
