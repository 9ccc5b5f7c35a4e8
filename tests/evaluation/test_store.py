"""The file of samples survives kills, odd text and being read back."""

from __future__ import annotations

import pytest

from trlmath.errors import DataError
from trlmath.evaluation.sample import Sample
from trlmath.evaluation.store import append_samples, read_samples, resume


def row(problem, sample=0, completion="c", **changes):
    """A row with every field set."""
    fields = {
        "setting": "s",
        "problem": problem,
        "sample": sample,
        "key": "k",
        "question": "q",
        "gold": "1",
        "prompt": "p",
        "completion": completion,
        "tokens": 3,
        "finish_reason": "stop",
        "reward": 1.0,
        "parts": {"both": 1.0},
        "category": "both",
        "reason": "r",
        "extracted": "1",
        "logprob": -1.5,
        "seed": 7,
        "solution": None,
        "metadata": {"level": 3},
    }
    return Sample(**{**fields, **changes})


TEXTS = ["plain", "½ 数学 🧮", "line\nend \u2028 \u0085 \r", "null \x00", "half \ud83e", '"{}\\']


def test_rows_come_back_as_written(tmp_path):
    rows = [row(i, completion=text, question=text) for i, text in enumerate(TEXTS)]
    append_samples(tmp_path / "s.jsonl", rows[:2])
    append_samples(tmp_path / "s.jsonl", rows[2:])
    assert read_samples(tmp_path / "s.jsonl") == rows


def test_a_torn_line_is_passed_over_and_then_removed(tmp_path):
    path = tmp_path / "s.jsonl"
    append_samples(path, [row(0), row(1)])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[: len(whole) // 3])
    assert len(read_samples(path)) == 2
    assert len(resume(path, [("s", [0, 1], 1)])) == 2
    assert path.read_bytes() == whole


def test_half_a_chunk_is_dropped_whole_and_nothing_twice(tmp_path):
    path = tmp_path / "s.jsonl"
    append_samples(path, [row(0), row(1), row(2, setting="other"), row(2), row(2)])
    kept = resume(path, [("s", [0, 1], 1), ("s", [2, 3], 1)])
    assert [r.cell for r in kept] == [("s", 0, 0), ("s", 1, 0)]
    assert read_samples(path) == kept


def test_duplicates_of_a_complete_chunk_are_written_once(tmp_path):
    path = tmp_path / "s.jsonl"
    append_samples(path, [row(0, 0), row(0, 1), row(0, 0)])
    assert len(resume(path, [("s", [0], 2)])) == 2
    assert len(read_samples(path)) == 2


def test_no_file_yet(tmp_path):
    assert resume(tmp_path / "none.jsonl", [("s", [0], 1)]) == []
    with pytest.raises(DataError, match="no file"):
        read_samples(tmp_path / "none.jsonl")


def test_other_files_are_refused_by_line(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_text('{"question": "1+1", "answer": "2"}\n')
    with pytest.raises(DataError, match="line 1 has no 'problem'"):
        read_samples(path)
    path.write_text("[]\n")
    with pytest.raises(DataError, match="JSON list"):
        read_samples(path)
    path.write_text("{\n")
    with pytest.raises(DataError, match="line 1 is not valid JSON"):
        read_samples(path)
