"""Evaluate a sampler on problems: generate, grade, append each row to a file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trlmath.evaluation.categories import classified
from trlmath.evaluation.report import EvaluationReport, summarise
from trlmath.sampling.sampler import Sampler
from trlmath.sampling.settings import SamplingSettings
from trlmath.types import Grade, Group, Problem


@dataclass(frozen=True)
class EvaluationSet:
    """Problems ready to evaluate.

    Attributes:
        problems: each counts exactly once.
        prompts: the text given to the model, one a problem.
        prompt_ids: its tokens.
        reward: ``(**columns) -> list[Grade]``, grades completions.
    """

    problems: Sequence[Problem]
    prompts: Sequence[str]
    prompt_ids: Sequence[Sequence[int]]
    reward: Callable[..., list[Grade]]


def evaluate(
    sampler: Sampler,
    data: EvaluationSet,
    name: str,
    settings: SamplingSettings,
    n: int = 1,
    samples: Path | None = None,
    share: tuple[int, int] = (0, 1),
    gather: Callable[[list[Any]], list[Any]] = lambda values: values,
    progress: Callable[[int], None] | None = None,
    chunk: int = 64,
) -> EvaluationReport:
    """Evaluate on every problem of `data`, spread over processes.

    Args:
        name: of the setting, kept in the report and the rows.
        n: completions a problem.
        samples: JSON lines file that rows are appended to (by the first process).
        share: (process, processes): this process takes every `processes`-th problem.
        gather: collects a list from all processes, in their order.
        progress: called with the number of problems just finished.
        chunk: problems generated at once.

    Returns:
        the report over all processes' problems, the same on every process.
    """
    process, processes = share
    mine = list(range(process, len(data.problems), processes))
    groups: list[tuple[int, Group]] = []
    spent = 0.0
    for start in range(0, len(mine), chunk):
        numbers = mine[start : start + chunk]
        seed = None if settings.seed is None else settings.seed + (numbers[0] << 16)
        started = time.perf_counter()
        found = sampler.generate([data.prompt_ids[i] for i in numbers], replace(settings, seed=seed), n=n)
        spent += time.perf_counter() - started
        groups += [(i, _graded(data, i, group)) for i, group in zip(numbers, found, strict=True)]
        if progress:
            progress(len(numbers))
    everything = sorted(gather(groups), key=lambda pair: pair[0])
    slowest = max(gather([spent]))
    if samples is not None and process == 0:
        _append(samples, name, everything)
    return summarise(name, [group for _, group in everything], slowest)


def _graded(data: EvaluationSet, number: int, group: Group) -> Group:
    problem, rollouts = data.problems[number], group.rollouts
    columns = {"question": problem.question, "answer": problem.answer, "solution": problem.solution}
    grades = data.reward(
        prompts=[data.prompts[number]] * len(rollouts),
        completions=[r.text for r in rollouts],
        completion_ids=[list(r.token_ids) for r in rollouts],
        finish_reasons=[r.finish_reason for r in rollouts],
        **{k: [v] * len(rollouts) for k, v in {**problem.metadata, **columns}.items()},
    )
    return replace(
        group,
        prompt=data.prompts[number],
        problem=problem,
        rollouts=tuple(classified(replace(r, grade=g)) for r, g in zip(rollouts, grades, strict=True)),
    )


def _append(path: Path, setting: str, groups: Sequence[tuple[int, Group]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for number, group in groups:
            for sample, rollout in enumerate(group.rollouts):
                grade = rollout.grade or Grade(None)
                row = {
                    "setting": setting,
                    "problem": number,
                    "sample": sample,
                    "question": group.problem.question if group.problem else None,
                    "gold": group.problem.answer if group.problem else None,
                    "prompt": group.prompt,
                    "completion": rollout.text,
                    "tokens": len(rollout.token_ids),
                    "finish_reason": rollout.finish_reason,
                    "reward": grade.reward,
                    "parts": dict(grade.parts),
                    "category": grade.category,
                    "reason": grade.reason,
                }
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
