"""The built-in filters, each with the options it takes and the reasons it gives."""

from __future__ import annotations

import pytest

from trlmath import Drop, Grade, Group, Keep, Problem, Prompt, Rollout
from trlmath.builtin.filters import Duplicate, GradableGold, PromptLength, ZeroSpread
from trlmath.errors import RecipeError


class Words:
    """A tokenizer of one token a word."""

    def __call__(self, text):
        return {"input_ids": text.split()}


def bound(**options):
    """A prompt_length filter bound to a template of two words and the question."""
    made = PromptLength(**options)
    made.bind(Words(), Prompt("p", "Q: {question} A:"))
    return made


def test_prompt_length_counts_the_rendered_prompt():
    assert bound(max=5)(Problem("one two three")) == Keep()
    assert bound(max=4)(Problem("one two three")) == Drop("prompt over 4 tokens")
    assert bound(max=9, min=5)(Problem("one two three")) == Keep()
    assert bound(max=9, min=6)(Problem("one two three")) == Drop("prompt under 6 tokens")
    with pytest.raises(RecipeError, match="min 5, max 4"):
        PromptLength(max=4, min=5)


@pytest.mark.parametrize("answer", ["3", "-1/2", r"\frac{9}{7}", "0.25", "x \\in [-2,7]"])
def test_a_gold_that_can_be_read_stays(answer):
    assert GradableGold()(Problem("q", answer)) == Keep()


@pytest.mark.parametrize("answer", [None, "", "  \n"])
def test_a_missing_gold_goes(answer):
    assert GradableGold()(Problem("q", answer)) == Drop("no gold answer")


def test_a_gold_that_the_grader_cannot_read_goes(monkeypatch):
    import trlmath.grading
    from trlmath.grading import Verdict

    monkeypatch.setattr(trlmath.grading, "grade_answer", lambda p, g: Verdict(None, "unreadable_gold", p, g))
    assert GradableGold()(Problem("q", "???")) == Drop("gold answer unreadable")


def test_duplicates():
    twice = Duplicate()
    assert twice(Problem("What is  1+1?")) == Keep()
    assert twice(Problem("what is 1+1? ")) == Drop("duplicate question")
    assert twice(Problem("what is 1+2?")) == Keep()
    exact = Duplicate(ignore_case=False, ignore_space=False)
    assert [exact(Problem(q)) for q in ("a b", "A b", "a  b")] == [Keep()] * 3
    assert exact(Problem("a b")) == Drop("duplicate question")


def test_duplicate_keeps_its_state():
    first = Duplicate()
    first(Problem("é{x}"))
    second = Duplicate()
    second.load_state_dict(first.state_dict())
    assert second(Problem("É{X}")) == Drop("duplicate question")
    assert Duplicate()(Problem("é{x}")) == Keep(), "state must not be shared between filters"


def group(*rewards):
    return Group("p", (1,), tuple(Rollout("t", (1,), grade=Grade(reward)) for reward in rewards))


def test_zero_spread():
    assert ZeroSpread()(group(1.0, 1.0, 1.0)) == Drop("no spread in rewards")
    assert ZeroSpread()(group(1.0, None, 1.0)) == Drop("no spread in rewards")
    assert ZeroSpread()(group(1.0, 0.999)) == Keep()
    assert ZeroSpread(tolerance=0.01)(group(1.0, 0.999)) == Drop("no spread in rewards")
    assert ZeroSpread()(group(None, None)) == Drop("no scorable rollout")
    with pytest.raises(RecipeError, match="tolerance"):
        ZeroSpread(tolerance=-1)
