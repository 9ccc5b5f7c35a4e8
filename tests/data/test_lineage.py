"""Traces as JSON: what reads back is what was written, so that a continued run sees the same objects."""

from __future__ import annotations

import json
from datetime import date

from trlmath import Grade, Problem
from trlmath.data.lineage import Lineage, from_json, grade_of, lineage_of, plain, to_json

LINEAGE = Lineage(1, 2, 3, 0, 77, 1.1, 0.25, 0.1 + 0.2, "stop", (5, 6, 7))
GRADE = Grade(1.0, {"format": 1.0, "answer": None}, "both", "right", (3, 9))
TRACE = Problem(
    "q", "4", None, "t", {"grade": GRADE, "lineage": LINEAGE, "level": 2, "tags": ["a", {"b": 1}]}
)


def test_nested_objects_come_back_equal():
    state = {"pool": [TRACE], "threshold": 0.5, "none": None}
    back = from_json(json.loads(json.dumps(to_json(state))))
    assert back == state
    assert lineage_of(back["pool"][0]).token_ids == (5, 6, 7)
    assert grade_of(back["pool"][0]).span == (3, 9)


def test_a_given_trace_has_neither():
    assert lineage_of(Problem("q", trace="t")) is None
    assert grade_of(Problem("q", metadata={"grade": "A"})) is None


def test_a_datasets_value_becomes_what_json_holds():
    assert plain({"when": date(2026, 1, 2), 3: (1, 2)}) == {"when": "2026-01-02", "3": [1, 2]}
