"""The pieces of expert iteration: what is drawn, at which temperature, what is kept, what is trained; pure.

Anthony et al. 2017 (arXiv:1705.08439); for language models Zelikman et al. 2022 (STaR, arXiv:2203.14465)
and Singh et al. 2023 (ReST-EM, arXiv:2312.06585).
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trlmath.data.examples import Example
from trlmath.data.filtering import LedgerEntry, NamedFilter, apply_filters
from trlmath.data.lineage import Lineage, grade_of, lineage_of, plain
from trlmath.recipe.schema import ExpertIterationSection
from trlmath.training.seeds import seed_of
from trlmath.types import Grade, Group, Problem, Rollout


def draws(rows: int, size: int, seed: int) -> Iterator[list[int]]:
    """Yield `size` of `rows` problem numbers for each iteration, without end.

    Without replacement until all have been drawn, then all over again in a new order. No draw holds a
    problem twice, also where it takes the last of one round and the first of the next.

    Raises:
        ValueError: `size` is not between 1 and `rows`.
    """
    if not 1 <= size <= rows:
        raise ValueError(f"cannot draw {size} of {rows} problems")
    left: list[int] = []
    rounds = 0
    while True:
        taken, left = left[:size], left[size:]
        if len(taken) < size:
            order = list(range(rows))
            random.Random(seed_of(seed, "draw", rounds)).shuffle(order)
            rounds += 1
            have = set(taken)
            fresh = [row for row in order if row not in have][: size - len(taken)]
            taken += fresh
            chosen = set(fresh)
            left = [row for row in order if row not in chosen]
        yield taken


def temperature_at(section: ExpertIterationSection, base: float, iteration: int, raised: int = 0) -> float:
    """The sampling temperature of an iteration.

    Args:
        base: `sampling.temperature`, where the section has no schedule.
        iteration: from 0; after the schedule's end its last entry goes on.
        raised: how often nothing was kept.
    """
    plan = section.temperatures or [base]
    return plan[min(iteration, len(plan) - 1)] + raised * section.hotter_by


def is_right(grade: Grade) -> bool:
    """Whether a rollout counts as solved: part ``both`` where told, else a reward of 1 or more."""
    if "both" in grade.parts:
        return grade.parts["both"] == 1.0
    return grade.reward is not None and grade.reward >= 1.0


def pass_rate(rollouts: Sequence[Rollout]) -> float | None:
    """Share of right rollouts among those that can be scored; None when none can."""
    grades = [r.grade for r in rollouts if r.grade is not None and r.grade.reward is not None]
    return sum(map(is_right, grades)) / len(grades) if grades else None


def traces_of(
    groups: Sequence[Group],
    rows: Sequence[int],
    seeds: Sequence[int],
    iteration: int,
    weights_version: int,
    temperature: float,
) -> list[Problem]:
    """Every rollout as a candidate trace that knows where it comes from.

    Args:
        groups: graded, each with its problem.
        rows, seeds: number of each group's problem, and the seed of the batch it was drawn in.
    """
    return [
        replace(
            group.problem,
            trace=rollout.text,
            metadata={
                **plain(group.problem.metadata),
                "grade": rollout.grade,
                "lineage": Lineage(
                    iteration,
                    weights_version,
                    row,
                    sample,
                    seed,
                    temperature,
                    pass_rate(group.rollouts),
                    confidence(rollout),
                    rollout.finish_reason,
                    rollout.token_ids,
                ),
            },
        )
        for group, row, seed in zip(groups, rows, seeds, strict=True)
        for sample, rollout in enumerate(group.rollouts)
        if group.problem is not None
    ]


def confidence(rollout: Rollout) -> float | None:
    """exp of the mean log-probability of the tokens; None without log-probabilities."""
    if not rollout.logprobs:
        return None
    return math.exp(sum(rollout.logprobs) / len(rollout.logprobs))


@dataclass(frozen=True)
class Selection:
    """What an iteration trains on.

    Attributes:
        traces: kept ones, new and recalled.
        new: how many of them were sampled in this iteration.
        candidates: how many were sampled.
        recalled: traces of earlier iterations that were considered again.
        dropped: the ledger.
    """

    traces: list[Problem]
    new: int
    candidates: int
    recalled: int
    dropped: list[LedgerEntry]


def select(traces: Sequence[Problem], filters: Sequence[NamedFilter], iteration: int, pool: int) -> Selection:
    """Let the trace filters decide over this iteration's traces and those that a filter recalls.

    New traces come first, so that of two alike the newer one is the first. A trace that two filters recall
    comes back once. `pool`: traces trained on in the iteration before.
    """
    chosen = [f for f in filters if f.moment == "trace"]
    for named in chosen:
        named.begin(iteration, pool)
    pools = [trace for named in chosen for trace in named.recall()]
    recalled = list({_place(trace): trace for trace in pools}.values())
    result = apply_filters([*traces, *recalled], chosen, "trace")
    new = sum(index < len(traces) for index in result.indices)
    return Selection(result.kept, new, len(traces), len(recalled), result.dropped)


def _place(trace: Problem) -> object:
    """What tells a sampled trace from all others of the run."""
    lineage = lineage_of(trace)
    return (lineage.iteration, lineage.row, lineage.sample) if lineage else id(trace)


def example_of(trace: Problem, number: int, prompts: Sequence[Sequence[int]], eos: int) -> Example:
    """A sampled trace as a training example: the tokens sampled, and the end-of-text token.

    A trace that was cut off has not ended, and gets no end-of-text token.

    Args:
        number: the example's `row`.
        prompts: tokens of each problem's prompt, by row.
    """
    lineage = lineage_of(trace)
    if lineage is None:
        raise ValueError("only sampled traces have tokens")
    ids = lineage.token_ids
    if lineage.finish_reason == "stop" and (not ids or ids[-1] != eos):
        ids = (*ids, eos)
    return Example(tuple(prompts[lineage.row]), ids, number)


def fitting(
    traces: Sequence[Problem], prompts: Sequence[Sequence[int]], max_length: int | None
) -> tuple[list[Problem], list[LedgerEntry]]:
    """Leave out the traces that would be over `max_length` tokens with their prompt and end-of-text.

    Args:
        prompts: tokens of each problem's prompt, by row.
    """
    if max_length is None:
        return list(traces), []
    kept, dropped = [], []
    for index, trace in enumerate(traces):
        lineage = lineage_of(trace)
        if lineage and len(prompts[lineage.row]) + len(lineage.token_ids) + 1 > max_length:
            reason = f"over {max_length} tokens"
            dropped.append(LedgerEntry("trace", "batch.max_length", reason, index, trace.question))
        else:
            kept.append(trace)
    return kept, dropped


def trained_row(trace: Problem, iteration: int) -> dict[str, Any]:
    """The line of ``traces.jsonl`` for a trace that `iteration` trains on."""
    lineage, grade = lineage_of(trace), grade_of(trace)
    if lineage is None or grade is None:
        raise ValueError("only sampled traces have a lineage")
    return {
        "trained_in": iteration,
        "iteration": lineage.iteration,
        "weights_version": lineage.weights_version,
        "row": lineage.row,
        "sample": lineage.sample,
        "seed": lineage.seed,
        "temperature": lineage.temperature,
        "score": grade.reward,
        "parts": plain(grade.parts),
        "pass_rate": lineage.pass_rate,
        "confidence": lineage.confidence,
        "tokens": len(lineage.token_ids),
        "finish_reason": lineage.finish_reason,
        "question": trace.question,
        "answer": trace.answer,
        "trace": trace.trace,
    }


def selection_metrics(selection: Selection) -> dict[str, float]:
    """Kept share, pool size and what they are made of."""
    problems = {trace.question for trace in selection.traces}
    return {
        "candidates": selection.candidates,
        "kept": selection.new,
        "kept_share": selection.new / selection.candidates if selection.candidates else 0.0,
        "recalled": selection.recalled,
        "pool_size": len(selection.traces),
        "pool_problems": len(problems),
    }
