"""The built-in filters of traces, each with its options and the reasons it gives."""

from __future__ import annotations

import pytest

from trlmath import Drop, Grade, Keep, Problem
from trlmath.builtin.trace_filters import CorrectAnswer, DuplicateTrace, PerProblem, TraceLength
from trlmath.components import resolve
from trlmath.errors import RecipeError


def traced(trace, answer="5", **metadata):
    return Problem("2+3?", answer, trace=trace, metadata=metadata)


RIGHT = " 2+3=5 </think> <answer> 5 </answer>"
NO_FORMAT = " 2+3=5 <answer> 5 </answer>"


def test_correct_answer_keeps_what_the_grader_accepts():
    assert CorrectAnswer()(traced(RIGHT)) == Keep()
    assert CorrectAnswer(part="both")(traced(RIGHT)) == Keep()
    assert CorrectAnswer()(traced(RIGHT, "6")) == Drop("wrong answer: format_only")
    assert CorrectAnswer()(traced(NO_FORMAT)) == Keep()
    assert CorrectAnswer(part="both")(traced(NO_FORMAT)) == Drop("format not kept: answer_only")
    assert CorrectAnswer()(traced(RIGHT, None)) == Drop("no gold answer")
    assert CorrectAnswer()(traced(None)) == Drop("no trace")
    assert CorrectAnswer(style="gsm8k")(traced("2+3=5\n#### 5")) == Keep()
    with pytest.raises(RecipeError, match="no style 'boxd'. Did you mean 'boxed'"):
        CorrectAnswer(style="boxd")


def test_a_graded_rollout_keeps_its_grade():
    given = Grade(0.0, {"format": 1.0, "answer": 0.0, "both": 0.0}, "wrong_answer")
    assert CorrectAnswer()(traced(RIGHT, grade=given)) == Drop("wrong answer: wrong_answer")
    unscorable = Grade(None, {"answer": None}, "unparseable_gold")
    assert CorrectAnswer()(traced(RIGHT, grade=unscorable)) == Drop(
        "answer cannot be told (unparseable_gold)"
    )


class Words:
    """A tokenizer of one token a word, which would add one special token."""

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [0] * add_special_tokens + text.split()}


def test_trace_length_counts_the_traces_own_tokens():
    def bound(**options):
        made = TraceLength(**options)
        made.bind(Words())
        return made

    assert bound(max=3)(traced("one two three")) == Keep()
    assert bound(max=2)(traced("one two three")) == Drop("trace over 2 tokens")
    assert bound(max=9, min=4)(traced("one two three")) == Drop("trace under 4 tokens")
    with pytest.raises(RecipeError, match="min 5, max 4"):
        TraceLength(max=4, min=5)


def test_duplicate_traces_are_those_of_one_problem():
    twice = DuplicateTrace()
    assert twice(traced("a  b")) == Keep()
    assert twice(traced(" a b ")) == Drop("duplicate trace")
    assert twice(traced("A b")) == Keep()
    assert twice(Problem("another", "5", trace="a b")) == Keep()
    again = DuplicateTrace()
    again.load_state_dict(twice.state_dict())
    assert again(traced("a b")) == Drop("duplicate trace")
    assert DuplicateTrace()(traced("a b")) == Keep()


def test_per_problem_keeps_the_first():
    two = PerProblem(max=2)
    assert [two(traced(t)) for t in "abc"] == [Keep(), Keep(), Drop("over 2 traces of one problem")]
    assert two(Problem("another", "5", trace="a")) == Keep()
    again = PerProblem(max=2)
    again.load_state_dict(two.state_dict())
    assert again(traced("d")) == Drop("over 2 traces of one problem")
    with pytest.raises(RecipeError, match="max >= 1, got 0"):
        PerProblem(max=0)


@pytest.mark.parametrize("name", ["correct_answer", "trace_length", "duplicate_trace", "per_problem"])
def test_they_are_components(name):
    component = resolve("filter", name)
    assert component.doc
    assert component.loaded.moment == "trace"
