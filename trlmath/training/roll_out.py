"""Sample and grade rollouts for many problems, chunk by chunk, spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trlmath.evaluation.run import EvaluationSet, grade_groups
from trlmath.evaluation.together import gathered
from trlmath.sampling.sampler import Sampler
from trlmath.sampling.settings import SamplingSettings
from trlmath.types import Group


def roll_out(
    sampler: Sampler,
    data: EvaluationSet,
    rows: Sequence[int],
    settings: SamplingSettings,
    n: int,
    chunk: int,
    seed: Callable[[int], int],
    share: tuple[int, int] = (0, 1),
    gather: Callable[[list[Any]], list[Any]] = list,
    progress: Callable[..., None] | None = None,
) -> tuple[list[Group], list[int]]:
    """Draw and grade `n` rollouts for each of `rows`; the same on any number of processes.

    Args:
        data: the problems that `rows` are numbers of, and their rewards.
        chunk: problems generated at once by one process.
        seed: number of a chunk -> its seed.
        share: (process, processes).
        gather: collects a list from all processes, in their order.
        progress: called with the number of problems just finished.

    Returns:
        (graded groups, seed of each group's chunk), both in the order of `rows`.
    """
    process, processes = share
    chunks = [list(rows[start : start + chunk]) for start in range(0, len(rows), chunk)]
    groups: list[Group] = []
    for start in range(0, len(chunks), processes):
        turn = chunks[start : start + processes]
        # a process without a chunk generates nothing, but takes part: sharded models are gathered together
        mine = turn[process] if process < len(turn) else []
        groups += gathered(
            partial(_chunk, sampler, data, mine, replace(settings, seed=seed(start + process)), n),
            gather,
            process,
        )
        if progress:
            progress(sum(map(len, turn)))
    return groups, [seed(number) for number, numbers in enumerate(chunks) for _ in numbers]


def _chunk(
    sampler: Sampler, data: EvaluationSet, rows: Sequence[int], settings: SamplingSettings, n: int
) -> list[Group]:
    drawn = sampler.generate([data.prompt_ids[row] for row in rows], settings, n=n)
    return grade_groups(data, rows, drawn)
