"""Grading speed: python tests/bench/bench_grading.py [--shared DIR] [--no-compare].

1. The MATH golds against `boxed`, one process: median and 99th percentile of a pair, nothing cached.
2. One GRPO step of 128 prompts x 8 responses (realistic answers: right ones in several dresses, wrong ones,
   sentences, junk), graded as whole responses; math-verify 0.9 grades the same answers in the same run.

Without the shared cases the golds are made up. The last line is the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from pathlib import Path

from trlmath.grading import grade_responses
from trlmath.grading.rules import Pair, decide

SHARED = Path(os.environ.get("TRLMATH_SHARED") or Path(__file__).parents[2].parent / "shared")
PROMPTS, GROUP = 128, 8
DRESSES = [
    "{}", "${}$", "\\boxed{{{}}}", "The answer is ${}$.", "${}$.", " {} ", "\\({}\\)", "x = {}",
    "Therefore, it is {}.",
]  # fmt: skip
JUNK = [
    "",
    "I don't know",
    "\\frac{1}{",
    "the the the the",
    "5 or 6",
    "1, 2, 3, 4",
    "$$",
    "x^2+1=0",
    "??",
    "\\boxed{",
]


def golds(shared: Path) -> list[tuple[str, str]]:
    """(boxed, gold) of the MATH test set, or made-up ones."""
    path = shared / "data" / "math_golds.jsonl"
    if path.exists():
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [(row["boxed"], row["gold"]) for row in rows]
    rng = random.Random(0)
    made = [f"\\frac{{{rng.randint(1, 99)}}}{{{rng.randint(2, 99)}}}" for _ in range(2500)]
    made += [f"{rng.randint(2, 99)}\\sqrt{{{rng.randint(2, 99)}}}" for _ in range(2500)]
    return [(gold.replace("\\frac", "\\dfrac"), gold) for gold in made]


def percentiles(seconds: list[float]) -> tuple[float, float]:
    """Median and 99th percentile in milliseconds."""
    ordered = sorted(seconds)
    return 1e3 * ordered[len(ordered) // 2], 1e3 * ordered[int(0.99 * len(ordered))]


def time_pairs(pairs: list[tuple[str, str]]) -> list[float]:
    """Seconds of each pair on the cheap road, without the cache of verdicts."""
    taken = []
    for prediction, gold in pairs:
        start = time.perf_counter()
        decide(Pair(prediction, gold))
        taken.append(time.perf_counter() - start)
    return taken


def step(pairs: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """(answers, golds) of one step: half right, a quarter wrong, the rest sentences and junk."""
    rng = random.Random(1)
    answers, expected = [], []
    for _, gold in rng.sample(pairs, PROMPTS):
        for _ in range(GROUP):
            kind = rng.random()
            if kind < 0.5:
                answers.append(rng.choice(DRESSES).format(gold))
            elif kind < 0.85:
                answers.append(rng.choice(DRESSES).format(rng.choice(pairs)[1]))
            elif kind < 0.93:
                answers.append(
                    f"There are {rng.randint(1, 99)} apples, so he needs {rng.randint(1, 99)} more."
                )
            else:
                answers.append(rng.choice(JUNK))
            expected.append(gold)
    return answers, expected


def math_verify_seconds(answers: list[str], expected: list[str]) -> float:
    """Seconds that plain math-verify takes, both sides boxed, with its own limits."""
    from math_verify import parse, verify

    verify(parse("\\boxed{1}"), parse("\\boxed{1}"))  # imports and compiles
    start = time.perf_counter()
    for answer, gold in zip(answers, expected, strict=True):
        boxed = answer if "\\boxed" in answer else f"\\boxed{{{answer}}}"
        verify(parse(f"\\boxed{{{gold}}}"), parse(boxed))
    return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=Path, default=SHARED)
    parser.add_argument("--no-compare", action="store_true", help="leave math-verify out")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()

    pairs = golds(arguments.shared)
    p50, p99 = percentiles(time_pairs(pairs))
    print(f"{len(pairs)} golds against boxed      p50 {p50:.3f} ms   p99 {p99:.2f} ms   (targets 0.3 and 20)")

    answers, expected = step(pairs)
    reasoning = " Let me think step by step. " * 40
    responses = [f"{reasoning}</think> <answer>{answer}</answer>" for answer in answers]
    taken = []
    for repeat in range(arguments.repeats):
        salt = " " * repeat  # a new text each time, so that no verdict comes from the cache
        start = time.perf_counter()
        grades = grade_responses([r.replace("</answer>", salt + "</answer>") for r in responses], expected)
        taken.append(time.perf_counter() - start)
    ours = statistics.median(taken)
    right = sum(grade.both == 1 for grade in grades)
    print(
        f"one step, {len(answers)} responses   first {taken[0]:.3f} s   median {ours:.3f} s   {right} right"
    )
    if arguments.no_compare:
        return
    other = math_verify_seconds(answers, expected)
    print(f"math-verify, same answers       {other:.3f} s")
    print(f"grading {other / taken[0]:.1f}x math-verify")


if __name__ == "__main__":
    main()
