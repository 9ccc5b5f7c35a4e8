"""Evaluate a sampler on problems: generate, grade and save chunk by chunk, drawing nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from trlmath.composition import compose
from trlmath.composition import weights as weights_at
from trlmath.evaluation.categories import classified
from trlmath.evaluation.merge import merge_grades
from trlmath.evaluation.report import EvaluationReport, summarise
from trlmath.evaluation.sample import PROMPT_TOO_LONG, Sample, samples_of
from trlmath.evaluation.store import append_samples
from trlmath.sampling.sampler import Sampler
from trlmath.sampling.settings import SamplingSettings
from trlmath.together import gathered
from trlmath.types import Grade, Group, Problem, Rollout

CHUNK = 64


class EvaluationLeft(Exception):
    """An evaluation was given up between two chunks; what is drawn is saved."""


@dataclass(frozen=True)
class EvaluationSet:
    """Problems ready to evaluate.

    Attributes:
        problems: each counts exactly once.
        prompts: the text given to the model, one a problem.
        prompt_ids: its tokens.
        rewards: each ``(**columns) -> list[Grade]``, grades completions; the first one's parts count.
        weights: of the rewards in the sum; default 1 each.
        too_long: numbers of the problems whose prompt leaves no room: counted, not generated.
    """

    problems: Sequence[Problem]
    prompts: Sequence[str]
    prompt_ids: Sequence[Sequence[int]]
    rewards: Sequence[Callable[..., list[Grade]]]
    weights: Sequence[float] = ()
    too_long: frozenset[int] = field(default_factory=frozenset)


def chunks(problems: int, size: int = CHUNK) -> list[list[int]]:
    """Cut problem numbers into the chunks that are generated, graded and saved together.

    They do not depend on the number of processes or on what is done already. So each completion is drawn
    in the same batch with the same seed however often an evaluation was interrupted.
    """
    return [list(range(start, min(start + size, problems))) for start in range(0, problems, size)]


def evaluate(
    sampler: Sampler,
    data: EvaluationSet,
    name: str,
    settings: SamplingSettings,
    n: int = 1,
    samples: Path | None = None,
    share: tuple[int, int] = (0, 1),
    gather: Callable[[list[Any]], list[Any]] = lambda values: values,
    progress: Callable[..., None] | None = None,
    chunk: int = CHUNK,
    done: Sequence[Sample] = (),
    by: Sequence[str] = (),
    given_up: Callable[[], bool] = lambda: False,
) -> EvaluationReport:
    """Evaluate on every problem of `data`, spread over processes.

    Args:
        name: of the setting, kept in the report and the rows.
        n: completions a problem.
        samples: JSON lines file that rows are appended to (by the first process) as they come.
        share: (process, processes): which chunks this process takes.
        gather: collects a list from all processes, in their order; called once a round of chunks.
        progress: called with the number of problems just finished, by all processes together, and
            ``tok/s``.
        chunk: problems generated at once.
        done: rows of whole chunks of this setting that are saved already (see `store.resume`).
        by: dataset fields to break the report down by.
        given_up: asked before each round of chunks; must answer alike on every process.

    Returns:
        the report over all problems, the same on every process.

    Raises:
        EvaluationLeft: it was given up.
    """
    process, processes = share
    rows = list(done)
    saved = {row.problem for row in rows}
    missing = [c for c in chunks(len(data.problems), chunk) if c[0] not in saved]
    if progress and saved:
        progress(len(saved))
    spent, drawn = 0.0, 0
    for start in range(0, len(missing), processes):
        if given_up():
            raise EvaluationLeft
        turn = missing[start : start + processes]
        # a process without a chunk generates nothing, but takes part: sharded models are gathered together
        numbers = turn[process] if process < len(turn) else []
        started = time.perf_counter()
        work = partial(_chunk, sampler, data, name, settings, n, numbers)
        new = gathered(work, gather, process)
        spent += time.perf_counter() - started
        drawn += sum(row.tokens for row in new)
        rows += new
        if samples is not None and process == 0:
            append_samples(samples, new)
        if progress:
            progress(sum(map(len, turn)), **{"tok/s": drawn / max(spent, 1e-9)})
    rows.sort(key=lambda row: (row.problem, row.sample))
    seconds = max(gather([spent]))
    return summarise(name, rows, seconds, by, greedy=settings.temperature == 0, generated=drawn)


def _chunk(
    sampler: Sampler,
    data: EvaluationSet,
    name: str,
    settings: SamplingSettings,
    n: int,
    numbers: Sequence[int],
) -> list[Sample]:
    seed = None if settings.seed is None or not numbers else settings.seed + (numbers[0] << 16)
    fitting = [i for i in numbers if i not in data.too_long]
    found = sampler.generate([data.prompt_ids[i] for i in fitting], replace(settings, seed=seed), n=n)
    graded = dict(zip(fitting, grade_groups(data, fitting, found), strict=True))
    rows: list[Sample] = []
    for i in numbers:
        group = graded.get(i) or _too_long(data, i, n)
        rows += samples_of(group, data.problems[i], name, i, seed)
    return rows


def grade_groups(data: EvaluationSet, numbers: Sequence[int], groups: Sequence[Group]) -> list[Group]:
    """Grade the rollouts of `groups`, one for each problem number, with every reward in one call each."""
    flat = [(i, rollout) for i, group in zip(numbers, groups, strict=True) for rollout in group.rollouts]
    if not flat:
        return []
    columns = rollout_columns([data.problems[i] for i, _ in flat])
    by_reward = [
        reward(
            # a rollout's own go before a column of the same name
            **columns
            | {
                "prompts": [data.prompts[i] for i, _ in flat],
                "completions": [r.text for _, r in flat],
                "completion_ids": [list(r.token_ids) for _, r in flat],
                "finish_reasons": [r.finish_reason for _, r in flat],
            }
        )
        for reward in data.rewards
    ]
    composed = compose(data.rewards, by_reward)
    weights = weights_at(data.rewards, list(data.weights) or [1.0] * len(data.rewards), step=None)
    names = [str(getattr(reward, "name", number)) for number, reward in enumerate(data.rewards)]
    graded = iter(
        classified(replace(rollout, grade=merge_grades(grades, weights, names)))
        for (_, rollout), grades in zip(flat, zip(*composed, strict=True), strict=True)
    )
    return [
        replace(
            group,
            prompt=data.prompts[i],
            problem=data.problems[i],
            rollouts=tuple(next(graded) for _ in group.rollouts),
        )
        for i, group in zip(numbers, groups, strict=True)
    ]


def rollout_columns(problems: Sequence[Problem]) -> dict[str, list[Any]]:
    """The dataset's columns as rewards take them: one item for each rollout, given its problem."""
    names = dict.fromkeys(name for problem in problems for name in problem.metadata)
    columns = {name: [problem.metadata.get(name) for problem in problems] for name in names}
    return columns | {
        "question": [problem.question for problem in problems],
        "answer": [problem.answer for problem in problems],
        "solution": [problem.solution for problem in problems],
        "trace": [problem.trace for problem in problems],
    }


def _too_long(data: EvaluationSet, number: int, n: int) -> Group:
    reason = f"the prompt has {len(data.prompt_ids[number])} tokens, which leaves no room for max_tokens"
    # no parts: which ones there are is the reward's business; a missing one counts as not reached
    grade = Grade(0.0, {}, PROMPT_TOO_LONG, reason)
    rollout = Rollout("", (), (), "length", grade)
    return Group(data.prompts[number], tuple(data.prompt_ids[number]), (rollout,) * n, data.problems[number])
