"""Answers made to stop a grader: decided, or given up, in bounded time and memory; grading goes on."""

from __future__ import annotations

import time

import psutil
import pytest

from trlmath.grading import grade_answers, grade_responses
from trlmath.grading.pool import MEMORY_BYTES, TIMEOUT, pool
from trlmath.grading.spans import end_of_text, turn_start

GOLD = "42"
HOSTILE = {
    "tower": "9^{9^{9^{9^9}}}",
    "power": "10**10**10",
    "factorial": "((99!)!)!",
    "digits": "1" * 1_000_000,
    "decimals": "0." + "0" * 200_000 + "1",
    "exponent": "1e999999999",
    "parentheses": "(" * 50_000 + "1" + ")" * 50_000,
    "braces": "{" * 100_000,
    "fractions": r"\frac{1}{" * 5_000 + "2" + "}" * 5_000,
    "roots": r"\sqrt{" * 20_000,
    "minuses": "-" * 100_000 + "1",
    "binomial": r"\binom{10^9}{5\cdot 10^8}",
    "expansion": "(x+y+z+w)^{500}",
    "whitespace": " " * 500_000 + "x",
    "lines": "\n" * 300_000 + "x",
    "nul": "4\x002",
    "surrogate": "\ud800 42",
    "letters": "a" * 300_000 + "!",
    "commas": "," * 200_000,
    "python": "__import__('os').system('touch PWNED')",
    "latex python": r"\operatorname{__import__}('os').system('touch PWNED')",
    "attribute": "().__class__.__bases__[0].__subclasses__()",
}
HEAVY = {  # what only a worker can look at: each may cost its time limit
    "integral": r"\int_0^1 e^{e^{e^{e^{x}}}} dx",
    "sum": r"\sum_{k=1}^{10^{10}} k^{k}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_is_wrong_at_once(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started = time.perf_counter()
    pool()  # its start is not what is measured
    before, started = psutil.Process().memory_info().rss, time.perf_counter()
    answer = HOSTILE[name]
    grades = grade_responses(
        [f" so </think> <answer>{answer}</answer>", f" so </think>{answer}", answer], [GOLD] * 3
    )
    seconds = time.perf_counter() - started
    assert all(grade.reward in (0.0, None) for grade in grades)
    assert seconds < 3 * TIMEOUT + 5, f"{seconds:.1f} s"
    assert psutil.Process().memory_info().rss - before < 500e6
    assert not list(tmp_path.iterdir())  # nothing was run


def test_what_takes_too_long_is_given_up_and_grading_goes_on(tmp_path, monkeypatch):
    workers = pool()
    monkeypatch.setattr(workers, "timeout", 2.0)
    answers = [*HEAVY.values(), "42", "41"]
    started = time.perf_counter()
    verdicts = grade_answers(answers, [r"\int_0^1 \sin(\sin(x)) dx", "x^{17}+1", GOLD, GOLD])
    assert time.perf_counter() - started < 30
    assert [v.equal for v in verdicts[2:]] == [True, False]
    assert not any(v.equal for v in verdicts[:2])
    assert grade_answers(["0.5"], [r"\frac{1}{2}"])[0].equal  # the pool has workers again


def test_workers_have_a_memory_limit():
    import trlmath.grading.pool as module

    read = module.pool()._pool.schedule(_limit).result(60)
    assert read == (MEMORY_BYTES, MEMORY_BYTES)


def _limit():
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)


@pytest.mark.parametrize(
    "text", [" " * 400_000 + "x", "\n" * 400_000 + "x", "</s>" * 100_000 + "x", "\nUser" * 80_000]
)
def test_looking_for_the_end_is_linear(text):
    started = time.perf_counter()
    end_of_text(text)
    turn_start(text, 0)
    assert time.perf_counter() - started < 5  # quadratic: minutes


def test_the_end_and_the_next_turn():
    assert end_of_text("4 <|im_end|>\n</s> ") == 1
    assert end_of_text(" \n") == 0
    assert turn_start("4\n \n\nUser : next", 0) == 1
    assert turn_start("4\nUserland", 0) == -1
