"""Sample and grade rollouts for many problems, chunk by chunk, spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trlmath.evaluation.run import EvaluationSet, grade_groups
from trlmath.sampling.sampler import Sampler
from trlmath.sampling.settings import SamplingSettings
from trlmath.together import from_main, gathered
from trlmath.training.sampled import SampledSoFar
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
    kept: SampledSoFar | None = None,
) -> tuple[list[Group], list[int]]:
    """Draw and grade `n` rollouts for each of `rows`; the same on any number of processes.

    Args:
        data: the problems that `rows` are numbers of, and their rewards.
        chunk: problems generated at once by one process.
        seed: number of a chunk -> its seed.
        share: (process, processes).
        gather: collects a list from all processes, in their order.
        progress: called with the number of problems just finished.
        kept: chunks that were drawn before an interruption are taken from there, and new ones kept.

    Returns:
        (graded groups, seed of each group's chunk), both in the order of `rows`.
    """
    process, processes = share
    chunks = [list(rows[start : start + chunk]) for start in range(0, len(rows), chunk)]
    main = process == 0
    done = from_main(main, kept.read) if kept else {}
    if progress and done:
        progress(sum(len(chunks[number]) for number in done))
    missing = [number for number in range(len(chunks)) if number not in done]
    for start in range(0, len(missing), processes):
        turn = missing[start : start + processes]
        # a process without a chunk generates nothing, but takes part: sharded models are gathered together
        mine = chunks[turn[process]] if process < len(turn) else []
        drawn = replace(settings, seed=seed(turn[process % len(turn)]))
        groups = gathered(partial(_chunk, sampler, data, mine, drawn, n), gather, process)
        for taken in turn:
            done[taken], groups = groups[: len(chunks[taken])], groups[len(chunks[taken]) :]
            if kept and main:
                kept.add(taken, done[taken])
        if progress:
            progress(sum(len(chunks[taken]) for taken in turn))
    groups = [
        replace(group, problem=data.problems[row])
        for number, numbers in enumerate(chunks)
        for row, group in zip(numbers, done[number], strict=True)
    ]
    return groups, [seed(number) for number, numbers in enumerate(chunks) for _ in numbers]


def _chunk(
    sampler: Sampler, data: EvaluationSet, rows: Sequence[int], settings: SamplingSettings, n: int
) -> list[Group]:
    drawn = sampler.generate([data.prompt_ids[row] for row in rows], settings, n=n)
    return grade_groups(data, rows, drawn)
