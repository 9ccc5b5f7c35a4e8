"""What components are tried on: texts, problems, groups, reward matrices; fixed ones and strategies."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from trlmath.conformance.core import hypothesis
from trlmath.data.lineage import Lineage
from trlmath.types import Grade, Group, Problem, Rollout

GOLDS = ("2", "-7", "1/3", r"\frac{3}{4}", "0.5", "x+1", "(1,2)", r"\sqrt{2}")

# What completions look like when a model is young, and when somebody is unkind.
PIECES = (
    *("", " ", "\n", "2", "-7", "1/3", "x + 1", "so ", "the answer is ", "é", "数学", "🙂", "\x00", "\u202e"),
    *("</think>", "<think>", "<answer>", "</answer>", " ", r"\boxed{", "}", "{", "$", "####", r"\frac{1}{2}"),
    *("3 + 4 = 7", "2*3=5", "=", "(", ")", "^", "9" * 30, "NaN", "inf", "<|endoftext|>"),
)

NASTY = (
    "",
    "\x00",
    " \t\n" * 500,
    "🙂é数\u202e\ufffd" * 200,
    "</think> <answer>" * 500,
    "<answer>" * 2000 + "2" + "</answer>" * 2000,
    "</think> <answer>" + "9" * 5000 + "</answer>",
    "</think> <answer>9^{9^{9^{9}}}</answer>",
    "</think> <answer>" + r"\frac{" * 300 + "1" + "}{2}" * 300 + "</answer>",
    r"\boxed{" * 500,
    "(" * 3000 + ")" * 3000,
    "1 + 1 = 2; " * 2000,
    "x" * 200_000,
)

# One completion for each style that says `answer`.
STYLES = (
    "I think it is so. </think> <answer> {answer} </answer>",
    r"<think> I think it is so. </think> So it is $\boxed{{{answer}}}$.",
    r"So it is $\boxed{{{answer}}}$.",
    "So it is.\n#### {answer}",
    "{answer}",
)


def texts() -> Any:
    """Strategy: a completion, made of pieces that graders stumble over or of anything."""
    st = hypothesis().strategies
    pieces = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
    return st.one_of(pieces, st.text(max_size=30))


def rollout_rows() -> Any:
    """Strategy: 1 to 5 pairs of completion and gold answer."""
    st = hypothesis().strategies
    return st.lists(st.tuples(texts(), st.sampled_from(GOLDS)), min_size=1, max_size=5)


def matrices() -> Any:
    """Strategy: rewards as lists [groups][size], with ties and None (not scorable)."""
    st = hypothesis().strategies
    value = st.one_of(st.sampled_from((0.0, 1.0)), st.floats(-4, 4, width=16), st.none())
    return st.tuples(st.integers(1, 4), st.integers(1, 5)).flatmap(
        lambda shape: st.lists(
            st.lists(value, min_size=shape[1], max_size=shape[1]), min_size=shape[0], max_size=shape[0]
        )
    )


PROBLEMS = tuple(
    Problem(question, answer, metadata={"level": number, "id": f"p{number}"})
    for number, (question, answer) in enumerate(
        [
            ("What is 1 + 1?", "2"),
            ("What is 5 - 12?", "-7"),
            ("What is 1 divided by 3?", "1/3"),
            ("what is  1 + 1?", "2"),
            ("What is {x} + 1?", "x+1"),
            ("Was ist 数?", "4"),
            ("No gold?", None),
            ("An empty gold?", " "),
            ("What is " + " + ".join(["1"] * 200) + "?", "200"),
        ]
    )
)


def groups() -> list[Group]:
    """Graded rollouts of each sample problem: with spread, without, cut off, not scorable."""
    patterns = ((1.0, 0.0, 1.0, 0.0), (0.0,) * 4, (1.0,) * 4, (None,) * 4, (None, 1.0, 0.0, 1.0), (0.5, 0.25))
    made = []
    for number, problem in enumerate(PROBLEMS):
        rewards = patterns[number % len(patterns)]
        rollouts = tuple(_rollout(reward, i + number) for i, reward in enumerate(rewards))
        made.append(Group(problem.question, (1, 2, 3), rollouts, problem))
    return made


def traces() -> list[Problem]:
    """Candidate training examples with grade and lineage, as expert iteration hands them over."""
    made = []
    for row, (problem, group) in enumerate(zip(PROBLEMS, groups(), strict=True)):
        for sample, rollout in enumerate(group.rollouts):
            lineage = Lineage(
                *(0, 0, row, sample, 0, 1.0), 0.5, math.exp(-0.5), rollout.finish_reason, rollout.token_ids
            )
            metadata = {**problem.metadata, "grade": rollout.grade, "lineage": lineage}
            made.append(replace(problem, trace=rollout.text, metadata=metadata))
    return made


def _rollout(reward: float | None, number: int) -> Rollout:
    right = None if reward is None else float(reward >= 1.0)
    text = f"{number} + 1 = {number + 1} </think> <answer> {number + 1} </answer>"
    grade = Grade(reward, {"format": 1.0, "answer": right, "both": right})
    return Rollout(text, tuple(range(5 + number)), (-0.5,) * (5 + number), "stop", grade)


class FakeTokenizer:
    """Stands in for a tokenizer: one token a word."""

    eos_token_id, pad_token_id = 0, 0
    eos_token, pad_token = "<eos>", "<eos>"

    def __call__(self, text: Any, **kwargs: Any) -> dict[str, Any]:
        if isinstance(text, str):
            return {"input_ids": [1 + hash_of(word) for word in text.split()]}
        return {"input_ids": [[1 + hash_of(word) for word in one.split()] for one in text]}


def hash_of(word: str) -> int:
    """A small number for a word, the same in every process."""
    return sum(ord(c) * (i + 1) for i, c in enumerate(word)) % 997
