"""Rollouts on disk: one parquet file a rollout phase."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.parquet

from trlmath.types import Grade, Group


def write_rollouts(
    directory: Path,
    groups: Sequence[Group],
    advantages: Sequence[Sequence[float]] | None,
    step: int,
    weights_version: int,
    file: str | None = None,
) -> Path:
    """Write all graded rollouts of a phase to ``rollouts/step-000012.parquet``.

    Args:
        groups: with graded rollouts.
        advantages: [groups][size]; None for an algorithm without.
        step: optimizer steps taken before the phase.
        weights_version: of the engine that generated.
        file: its name without the ending, where steps do not tell phases apart.
    """
    rows = []
    told: Sequence[Sequence[float | None]] = advantages or [[None] * len(group.rollouts) for group in groups]
    for number, (group, values) in enumerate(zip(groups, told, strict=True)):
        for sample, (rollout, advantage) in enumerate(zip(group.rollouts, values, strict=True)):
            grade = rollout.grade or Grade(None)
            rows.append(
                {
                    "step": step,
                    "group": number,
                    "sample": sample,
                    "question": _writable(group.problem.question) if group.problem else None,
                    "gold": _writable(group.problem.answer) if group.problem else None,
                    "prompt": _writable(group.prompt),
                    "completion": _writable(rollout.text),
                    "tokens": len(rollout.token_ids),
                    "finish_reason": rollout.finish_reason,
                    "reward": grade.reward,
                    "advantage": advantage,
                    "category": _writable(grade.category),
                    "reason": _writable(grade.reason),
                    "weights_version": weights_version,
                    **{f"part/{_writable(name)}": value for name, value in grade.parts.items()},
                }
            )
    path = directory / "rollouts" / f"{file or f'step-{step:06d}'}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".tmp")
    with beside.open("wb") as stream:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), stream)
        os.fsync(stream.fileno())
    beside.replace(path)
    return path


def _writable(text: str | None) -> str | None:
    """Text as UTF-8 can hold it: half a character becomes its escape."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


def thin_rollouts(directory: Path, most: int | None) -> None:
    """After each phase: remove some until at most `most` are left, evenly spread, first and last among them.

    Kept are the phases at every second, fourth, eighth, ... place, so that one once removed is never missed.
    """
    files = {int(f.stem.removeprefix("step-")): f for f in (directory / "rollouts").glob("step-*.parquet")}
    steps = sorted(files)
    if most is None or len(steps) <= most:
        return
    first, last, apart = steps[0], steps[-1], steps[-1] - steps[-2]
    while len(steps) > most:
        apart *= 2
        steps = [step for step in steps if (step - first) % apart == 0 or step == last]
    for step in files.keys() - set(steps):
        files[step].unlink()


def drop_rollouts(directory: Path, step: int) -> None:
    """Remove the phases from `step` optimizer steps on: a continued run rolls them out again."""
    for file in (directory / "rollouts").glob("step-*.parquet"):
        if int(file.stem.removeprefix("step-")) >= step:
            file.unlink()
