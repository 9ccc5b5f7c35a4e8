"""Nested subsets, whatever the order of the file."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from trlmath import Problem
from trlmath.data.subset import subset
from trlmath.errors import DataError, RecipeError
from trlmath.recipe import load_recipe

PROBLEMS = [Problem(f"question {i}", str(i), trace=f"trace {i}") for i in range(600)]


def test_smaller_sets_are_contained_in_larger_ones():
    sets = [set(subset(PROBLEMS, size)) for size in (1, 128, 256, 512)]
    assert [len(s) for s in sets] == [1, 128, 256, 512]
    assert sets[0] < sets[1] < sets[2] < sets[3]
    assert subset(PROBLEMS, 128) != list(range(128))
    assert subset(PROBLEMS, None) == subset(PROBLEMS, 600) == list(range(600))


def test_the_order_of_the_file_does_not_matter():
    shuffled = random.Random(0).sample(PROBLEMS, len(PROBLEMS))
    assert {PROBLEMS[at].question for at in subset(PROBLEMS, 128)} == {
        shuffled[at].question for at in subset(shuffled, 128)
    }


def test_other_traces_of_the_same_problems_give_the_same_problems():
    other = [replace(problem, trace="wrong") for problem in PROBLEMS]
    assert subset(PROBLEMS, 128) == subset(other, 128)


def test_the_traces_of_one_problem_are_drawn_apart():
    assert len(subset([Problem("q")] * 5, 3)) == 3
    several = [replace(problem, trace=f"{problem.trace} {k}") for problem in PROBLEMS for k in range(4)]
    questions = {several[at].question for at in subset(several, 128)}
    assert len(questions) > 100
    shuffled = random.Random(0).sample(several, len(several))
    drawn = [{rows[at].trace for at in subset(rows, 128)} for rows in (several, shuffled)]
    assert drawn[0] == drawn[1]


def test_more_than_there_are_is_an_error():
    with pytest.raises(DataError, match="asks for 601 rows, and 'mine' leaves 600"):
        subset(PROBLEMS, 601, "mine")


def test_a_recipe_may_say_all():
    assert load_recipe("nano/grpo", ["data.train_size=all"]).data.train_size is None
    assert load_recipe("nano/grpo", ["data.train_size=128"]).data.train_size == 128
    with pytest.raises(RecipeError, match="data.train_size"):
        load_recipe("nano/grpo", ["data.train_size=some"])
