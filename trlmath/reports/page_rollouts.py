"""The rollouts and evaluation samples that a report page carries: a bounded, even sample of each run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from trlmath.errors import DataError, visible
from trlmath.evaluation.sample import Sample
from trlmath.runs.read import StoredRun
from trlmath.runs.shapes import check_rollout

# bounds of one page, over all its runs: characters of completions, and of one of them
BUDGET = 1_600_000
LONGEST = 6_000
PHASES = 40  # rollout phases of a run that are looked at


def rollouts_of(run: StoredRun, samples: Sequence[Sample], budget: int = BUDGET) -> list[dict[str, Any]]:
    """Rows for the page's browser: rollouts of evenly spread steps, then samples of each evaluation.

    Args:
        samples: the run's evaluation samples.
        budget: characters of text; three quarters go to rollouts.
    """
    files = spread(run.rollout_files(), PHASES)
    rows: list[dict[str, Any]] = []
    each = budget * 3 // 4 // max(len(files), 1)
    for file in files:
        rows += _bounded(_rollouts(file), each)
    settings = list(dict.fromkeys(sample.setting for sample in samples))
    each = budget // 4 // max(len(settings), 1)
    for setting in settings:
        of_it = [_sample_row(sample) for sample in samples if sample.setting == setting]
        rows += _bounded(of_it, each)
    return rows


def spread(items: Sequence[Any], count: int) -> list[Any]:
    """At most `count` of `items`, evenly spread, first and last among them."""
    if len(items) <= count:
        return list(items)
    if count == 1:
        return [items[-1]]
    return [items[round(i * (len(items) - 1) / (count - 1))] for i in range(count)]


def _bounded(rows: Sequence[Mapping[str, Any]], budget: int) -> list[dict[str, Any]]:
    """Whole problems, evenly spread over those there are, as many as the budget holds (one at least)."""
    problems: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        problems.setdefault(row["problem"], []).append(row)
    size = sum(len(row["completion"]) + 200 for row in rows)
    wanted = max(1, int(len(problems) * min(1.0, budget / max(size, 1))))
    return [dict(row) for group in spread(list(problems.values()), wanted) for row in group]


def _rollouts(file: Path) -> list[dict[str, Any]]:
    found = []
    iteration = re.fullmatch(r"iteration-(\d+)", file.stem)
    for row in _rows(file):
        check_rollout(row, str(file))
        parts = {
            k.removeprefix("part/"): v for k, v in row.items() if k.startswith("part/") and v is not None
        }
        question = row.get("question") or row.get("prompt") or ""
        found.append(
            {
                # the rollouts of the phase before a step are those the step learns from
                "at": f"iteration {int(iteration[1])}" if iteration else row["step"] + 1,
                "problem": _text(f"{question}", 1_000),
                "gold": _text(row.get("gold"), 300),
                "completion": _text(row["completion"], LONGEST),
                "tokens": row.get("tokens"),
                "finish": _text(row.get("finish_reason"), 20),
                "reward": row.get("reward"),
                "advantage": None if row.get("advantage") is None else round(row["advantage"], 3),
                "category": _text(row.get("category"), 60) or "uncategorised",
                "reason": _text(row.get("reason"), 500),
                "parts": {_text(k, 40): v for k, v in parts.items()},
            }
        )
    return found


def _rows(file: Path) -> list[dict[str, Any]]:
    try:
        return pyarrow.parquet.read_table(file).to_pylist()
    except FileNotFoundError:  # run.keep_rollouts: the run, still going on, has just removed it
        return []
    except (pyarrow.ArrowException, OSError) as error:
        why = str(error).rstrip(".")
        raise DataError(
            f"{file} cannot be read: {why}. It was cut or changed: remove it; the others can be read."
        ) from error


def _sample_row(sample: Sample) -> dict[str, Any]:
    return {
        "at": _text(sample.setting, 80),
        "problem": _text(sample.question, 1_000),
        "gold": _text(sample.gold, 300),
        "completion": _text(sample.completion, LONGEST),
        "tokens": sample.tokens,
        "finish": _text(sample.finish_reason, 20),
        "reward": sample.reward,
        "advantage": None,
        "category": _text(sample.category, 60) or "uncategorised",
        "reason": _text(sample.reason, 500),
        "parts": {_text(k, 40): v for k, v in sample.parts.items() if v is not None},
    }


def _text(value: Any, longest: int) -> str:
    """Text with control, direction and half characters as escapes, and an end that says what is left out."""
    if value is None:
        return ""
    text = visible(value)
    return text if len(text) <= longest else f"{text[:longest]} … [{len(text) - longest} characters more]"
