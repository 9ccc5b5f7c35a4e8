"""Filters of expert iteration's selection: near-duplicates, a rising threshold, and a pool of elites."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from trlmath.builtin.trace_scores import trace_score
from trlmath.data.lineage import lineage_of
from trlmath.errors import RecipeError
from trlmath.types import Decision, Drop, Keep, Problem

Shingles = frozenset[tuple[str, ...]]


@dataclass
class NearDuplicate:
    """Drop a trace that is much like a kept one of its problem: Jaccard of word n-grams >= `threshold`.

    A trace is its set of runs of `n` words; a word is a run of letters and digits, any case, or a single
    sign. The Jaccard index of two sets is the share of their union that both have (Broder 1997): 1 for
    equal sets, 0 for disjoint ones. Exact, since a problem has few traces. Of two that are alike the first
    stays, which is the newer one.
    """

    threshold: float = 0.8
    n: int = 3
    moment: ClassVar[Literal["trace"]] = "trace"

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1 or self.n < 1:
            raise RecipeError(
                "near_duplicate needs 0 < threshold <= 1 and n >= 1; got "
                f"threshold {self.threshold}, n {self.n}."
            )

    def select(self, items: Sequence[Problem]) -> list[Decision]:
        """Decide over all traces of a selection; nothing is remembered from one to the next."""
        kept: dict[str, list[Shingles]] = {}
        decisions: list[Decision] = []
        for item in items:
            own, others = shingles(item.trace or "", self.n), kept.setdefault(item.question, [])
            if any(jaccard(own, other) >= self.threshold for other in others):
                decisions.append(Drop("near-duplicate trace"))
            else:
                others.append(own)
                decisions.append(Keep())
        return decisions


def shingles(text: str, n: int) -> Shingles:
    """The set of runs of `n` words; a shorter text is one run."""
    words = re.findall(r"\w+|[^\w\s]", text.casefold())
    return frozenset(tuple(words[i : i + n]) for i in range(max(1, len(words) - n + 1)))


def jaccard(one: Shingles, other: Shingles) -> float:
    """Share of the union that both sets have, in [0, 1]."""
    return len(one & other) / len(one | other)


@dataclass
class RisingThreshold:
    """Drop traces whose `score` is under a threshold that rises from `start` by `step` up to `end`.

    It rises once in `every` iterations (`by: iteration`), or with each `every` traces of the pool that the
    iteration before was trained on (`by: pool`); it never falls. `score`: ``pass_rate``, ``hardness``,
    ``confidence``, ``reward`` or a part of the grade. Traces of earlier iterations are judged by the score
    they had then.
    """

    start: float
    step: float
    end: float
    every: int = 1
    by: Literal["iteration", "pool"] = "iteration"
    score: str = "pass_rate"
    moment: ClassVar[Literal["trace"]] = "trace"
    conformance: ClassVar = {"options": {"start": 0.3, "step": 0.1, "end": 0.8, "score": "reward"}}
    _threshold: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.step < 0 or self.end < self.start or self.every < 1:
            raise RecipeError(
                "rising_threshold needs start <= end, step >= 0 and every >= 1; got "
                f"start {self.start}, end {self.end}, step {self.step}, every {self.every}."
            )
        self._threshold = self.start

    def begin(self, iteration: int, pool: int) -> None:
        """Raise the threshold for this iteration."""
        risen = (iteration if self.by == "iteration" else pool) // self.every
        self._threshold = max(self._threshold, min(self.end, self.start + self.step * risen))

    def __call__(self, item: Problem) -> Decision:
        score = trace_score(item, self.score)
        if score is None:
            return Drop(f"no {self.score}")
        # a threshold of 0.1 + 0.1 + 0.1 must not refuse 0.3
        return (
            Keep() if score >= self._threshold - 1e-9 else Drop(f"{self.score} under {self._threshold:.3g}")
        )

    def state_dict(self) -> dict[str, Any]:
        """The threshold reached."""
        return {"threshold": self._threshold}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._threshold = state["threshold"]


@dataclass
class Elite:
    """Keep the best `size` traces of all iterations, and train on them again in the next.

    Ranked by `score` (``pass_rate``, ``hardness``, ``confidence``, ``reward`` or a part of the grade),
    largest first; of equals the newest iteration goes first, then the lower problem, then the earlier
    sample. A problem's best trace is never lost to the cap, so a pool with more problems than `size` holds
    one trace of each. Put it last: what it keeps is the pool, and other filters judge the pool again.
    """

    size: int
    score: str = "pass_rate"
    moment: ClassVar[Literal["trace"]] = "trace"
    conformance: ClassVar = {"options": {"size": 4, "score": "reward"}}
    _pool: list[Problem] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.size < 1:
            raise RecipeError(f"elite needs size >= 1, got {self.size}.")

    def recall(self) -> list[Problem]:
        """The pool as the iteration before left it."""
        return list(self._pool)

    def select(self, items: Sequence[Problem]) -> list[Decision]:
        """Make the pool of all that is left: new traces and recalled ones."""
        ranked = sorted(range(len(items)), key=lambda index: self._rank(items[index]))
        best: dict[str, int] = {}
        for index in ranked:
            best.setdefault(items[index].question, index)
        kept = set(best.values())
        kept |= set([index for index in ranked if index not in kept][: max(0, self.size - len(kept))])
        self._pool = [item for index, item in enumerate(items) if index in kept]
        return [Keep() if index in kept else Drop("not among the best") for index in range(len(items))]

    def _rank(self, item: Problem) -> tuple[float, int, int, int]:
        score, lineage = trace_score(item, self.score), lineage_of(item)
        if lineage is None:  # trace_score has refused it
            raise RecipeError("elite needs sampled traces.")
        number = float("-inf") if score is None else score
        return (-number, -lineage.iteration, lineage.row, lineage.sample)

    def state_dict(self) -> dict[str, Any]:
        """The pool, as Problems."""
        return {"pool": list(self._pool)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._pool = list(state["pool"])
