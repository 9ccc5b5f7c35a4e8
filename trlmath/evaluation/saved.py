"""Saved completions of every kind as samples: our JSON lines, our rollouts, TRL's completion parquet."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trlmath.data.files import read_rows
from trlmath.errors import DataError, nearest
from trlmath.evaluation.diff import samples_file
from trlmath.evaluation.sample import UNCATEGORISED, Sample, problem_key
from trlmath.evaluation.store import read_samples
from trlmath.types import Problem

# what TRL writes that is no reward
NOT_REWARDS = ("step", "prompt", "completion", "advantage")
GOLDS = ("gold", "answer", "solution")


def read_saved(
    path: Path, problems: Mapping[str, Problem] | None = None, against: str | None = None
) -> list[Sample]:
    """Read saved completions.

    Args:
        path: ``samples.jsonl`` or the folder of an evaluation; a parquet file, or a folder of them: our
            ``rollouts/`` or TRL's ``completions/``.
        problems: rendered prompt -> problem, for files without golds (TRL's).
        against: TRL's reward column to compare with; default: the only one.

    Raises:
        DataError: nothing there, golds missing, several reward columns and none named.
    """
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path] if path.suffix == ".parquet" else []
    if not files:
        return read_samples(samples_file(path))
    samples: list[Sample] = []
    for file in files:
        rows = read_rows(file)
        if rows and {"question", "completion", "category"} <= set(rows[0]):
            samples += [_ours(row, len(samples) + i) for i, row in enumerate(rows)]
        else:
            samples += _trls(rows, file, problems, against, len(samples))
    return _grouped(samples)


def _grouped(samples: Sequence[Sample]) -> list[Sample]:
    """Number the problems of each step, so that the rollouts of one problem count as such in intervals."""
    problems: dict[tuple[str, str], int] = {}
    seen: dict[tuple[str, str], int] = {}
    found = []
    for sample in samples:
        place = (sample.setting, sample.key)
        number = problems.setdefault(place, len(problems))
        seen[place] = seen.get(place, -1) + 1
        found.append(replace(sample, problem=number, sample=seen[place]))
    return found


def _ours(row: Mapping[str, Any], number: int) -> Sample:
    parts = {key.removeprefix("part/"): value for key, value in row.items() if key.startswith("part/")}
    return Sample(
        setting=f"step-{row.get('step', 0)}",
        problem=number,
        sample=0,
        key=problem_key(row["question"] or "", row["gold"]),
        question=row["question"] or "",
        gold=row["gold"],
        prompt=row["prompt"],
        completion=row["completion"],
        tokens=row["tokens"],
        finish_reason=row["finish_reason"],
        reward=row["reward"],
        parts=parts,
        category=row["category"] or UNCATEGORISED,
        reason=row["reason"] or "",
    )


def _trls(
    rows: Sequence[Mapping[str, Any]],
    file: Path,
    problems: Mapping[str, Problem] | None,
    against: str | None,
    first: int,
) -> list[Sample]:
    columns = list(rows[0]) if rows else []
    for column in ("prompt", "completion"):
        if rows and column not in columns:
            raise DataError(
                f"{file} has no column {column!r}: it holds no completions. Its columns: "
                f"{', '.join(columns)}."
            )
    gold = next((name for name in GOLDS if name in columns), None)
    reward = _reward_column(rows, columns, gold, against, file)
    samples, lost = [], 0
    for index, row in enumerate(rows):
        prompt = _text(row["prompt"])
        problem = (problems or {}).get(prompt)
        if problem is None and gold is not None:
            problem = Problem(_last_question(row["prompt"]), None if row[gold] is None else str(row[gold]))
        if problem is None:
            lost += 1
            continue
        samples.append(_sample(row, first + index, prompt, problem, reward))
    if lost:
        raise DataError(
            f"{file}: no gold is known for {lost} of {len(rows)} completions. TRL saves prompts only: "
            "name the dataset and prompt that it was trained with, --dataset D --prompt P."
        )
    return samples


def _sample(row: Mapping[str, Any], number: int, prompt: str, problem: Problem, reward: str | None) -> Sample:
    value = None if reward is None else row[reward]
    return Sample(
        setting=f"step-{row.get('step', 0)}",
        problem=number,
        sample=0,
        key=problem_key(problem.question, problem.answer),
        question=problem.question,
        gold=problem.answer,
        prompt=prompt,
        completion=_text(row["completion"]),
        tokens=0,
        finish_reason="",
        reward=None if value is None or value != value else float(value),
        parts={},
        category=UNCATEGORISED,
        reason=f"TRL's column {reward}" if reward else "",
        solution=problem.solution,
        metadata=problem.metadata,
    )


def _reward_column(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str],
    gold: str | None,
    against: str | None,
    file: Path,
) -> str | None:
    numeric = [
        name
        for name in columns
        if name not in (*NOT_REWARDS, gold)
        and all(row[name] is None or isinstance(row[name], (int, float)) for row in rows)
    ]
    if against is not None and against not in numeric:
        raise DataError(
            f"{file} has no reward column {against!r}.{nearest(against, numeric)} "
            f"There: {', '.join(numeric)}."
        )
    if against is None and len(numeric) > 1:
        raise DataError(f"{file} has several reward columns: {', '.join(numeric)}. Name one with --against.")
    return against or (numeric[0] if numeric else None)


def _text(value: Any) -> str:
    """Text of a prompt or completion: plain, or the messages' contents."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return "\n".join(str(message["content"]) for message in value)
    return json.dumps(value)


def _last_question(prompt: Any) -> str:
    if isinstance(prompt, str):
        return prompt
    users = [message["content"] for message in prompt if message.get("role") == "user"]
    return users[-1] if users else _text(prompt)
