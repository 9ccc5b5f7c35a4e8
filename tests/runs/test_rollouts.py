"""Rollouts on disk: written whole, and thinned evenly."""

from __future__ import annotations

import pyarrow.parquet
import pytest

from trlmath.runs.rollouts import thin_rollouts, write_rollouts
from trlmath.types import Grade, Group, Problem, Rollout


def write(directory, step, text="x"):
    rollout = Rollout(text, (1, 2), finish_reason="length", grade=Grade(0.5, {"both": 0.5}, "c", "r"))
    return write_rollouts(directory, [Group("p", (1,), (rollout,), Problem("q", "a"))], [[0.25]], step, 7)


def test_a_phase_is_written(tmp_path):
    (row,) = pyarrow.parquet.read_table(write(tmp_path, 3, "half \ud800")).to_pylist()
    assert row["completion"] == "half \\ud800"
    assert row["part/both"] == row["reward"] == 0.5
    assert (row["step"], row["advantage"], row["weights_version"]) == (3, 0.25, 7)
    assert (row["tokens"], row["finish_reason"], row["category"]) == (2, "length", "c")


@pytest.mark.parametrize(("phases", "most"), [(10, 4), (37, 5), (3, 2), (4, 10)])
def test_thinning_keeps_first_and_last_and_is_even(tmp_path, phases, most):
    for step in range(phases):
        write(tmp_path, step)
        thin_rollouts(tmp_path, most)
        kept = [int(file.stem[5:]) for file in sorted((tmp_path / "rollouts").glob("*.parquet"))]
        assert len(kept) <= most
        assert kept[0] == 0
        assert kept[-1] == step
    gaps = [b - a for a, b in zip(kept, kept[1:], strict=False)]
    assert max(gaps) <= max(1, 4 * phases / most)
    assert len(kept) >= min(phases, most) // 2


def test_all_are_kept_when_asked(tmp_path):
    for step in range(5):
        write(tmp_path, step)
        thin_rollouts(tmp_path, None)
    assert len(list((tmp_path / "rollouts").iterdir())) == 5
