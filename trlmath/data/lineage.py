"""Where a sampled trace comes from, and traces as JSON that reads back as the same objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from trlmath.types import Grade, Problem

_TYPE = "__type__"


@dataclass(frozen=True, slots=True)
class Lineage:
    """What a sampled trace carries as ``metadata["lineage"]``.

    Attributes:
        iteration: that sampled it, from 0.
        weights_version: how often the weights had been trained by then; 0 are those the run began with.
        row: number of its problem among the training problems.
        sample: number of the rollout among those of its problem in that iteration.
        seed: of the batch it was drawn in.
        temperature: it was drawn at.
        pass_rate: share of right rollouts among those of its problem then; None when none could be scored.
        confidence: exp of the mean log-probability of its tokens, in (0, 1]; None when not known.
        finish_reason: ``stop`` or ``length``.
        token_ids: the tokens sampled.
    """

    iteration: int
    weights_version: int
    row: int
    sample: int
    seed: int
    temperature: float
    pass_rate: float | None
    confidence: float | None
    finish_reason: str
    token_ids: tuple[int, ...]


def lineage_of(item: Problem) -> Lineage | None:
    """The lineage of a sampled trace; None for one that was given."""
    found = item.metadata.get("lineage")
    return found if isinstance(found, Lineage) else None


def grade_of(item: Problem) -> Grade | None:
    """The grade of a sampled trace; None for one that was given."""
    found = item.metadata.get("grade")
    return found if isinstance(found, Grade) else None


def plain(value: Any) -> Any:
    """A dataset's value as JSON can hold it: tuples become lists, what JSON does not know becomes text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return str(value)


def to_json(value: Any) -> Any:
    """JSON-able data of nested lists and dicts that may hold Problems, Grades and Lineages."""
    if isinstance(value, (Problem, Grade, Lineage)):
        return {
            _TYPE: type(value).__name__,
            **{f.name: to_json(getattr(value, f.name)) for f in fields(value)},
        }
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    return plain(value)


def from_json(value: Any) -> Any:
    """What `to_json` was given."""
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if not isinstance(value, dict):
        return value
    known = {key: from_json(item) for key, item in value.items() if key != _TYPE}
    kind = value.get(_TYPE)
    if kind == "Problem":
        return Problem(**known)
    if kind == "Grade":
        span = known.pop("span")
        return Grade(**known, span=None if span is None else tuple(span))
    if kind == "Lineage":
        return Lineage(**{**known, "token_ids": tuple(known["token_ids"])})
    return known
