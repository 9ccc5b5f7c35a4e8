"""Fuzz the grader for a while: `python tests/grading/fuzz.py [SECONDS] [SEED]`. Not collected by pytest.

Mutates real golds and answers (shared cases when present), mixes hostile pieces, and grades whole batches
through the public entry, pool included. Fails on a crash, on a verdict over the limit, and on a prediction
that passes for two numerically different golds.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from grading.test_grading_properties import PIECES

from trlmath.grading import grade_answers, pool
from trlmath.grading.rules import NEEDS_WORKER, Pair, decide

CHEAP_LIMIT = 1.0
"""Processor seconds that the cheap road may take for one pair."""


def corpus() -> list[str]:
    """Texts to mutate."""
    texts = [
        "5",
        r"\frac{1}{2}",
        r"(1,2)",
        r"x^2+2x+1",
        r"[0,\infty)",
        "The answer is 5.",
        r"\sqrt{2}",
        "9^9^9",
    ]
    for name in ("cases/grader_pairs.jsonl", "data/math_golds.jsonl"):
        path = Path(__file__).parents[2].parent / "shared" / name
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                texts += [
                    str(row[key]) for key in ("pred", "gold") if row.get(key) and len(str(row[key])) < 4000
                ]
    return texts


def mutate(text: str, texts: list[str], rng: random.Random) -> str:
    """One to four random edits."""
    for _ in range(rng.randint(1, 4)):
        at, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        kind = rng.randint(0, 7)
        if kind == 0:
            text = text[:at] + rng.choice(PIECES) + text[at:]
        elif kind == 1:
            text = text[:at] + text[end:]
        elif kind == 2:
            text = text[:end] + text[at:end] * rng.randint(1, 30) + text[end:]
        elif kind == 3:
            other = rng.choice(texts)
            text = text[:at] + other[rng.randint(0, len(other)) :]
        elif kind == 4:
            text = "{" * rng.randint(1, 60) + text + "}" * rng.randint(0, 60)
        elif kind == 5:
            text = rng.choice(PIECES) * rng.randint(1, 400) + text
        elif kind == 6:
            text = text.replace(rng.choice("0123456789x+-"), rng.choice(PIECES))
        else:
            text = f"({text})^{{{text}}}" if len(text) < 2000 else text
    return text[:50_000]


def main(seconds: float, seed: int) -> int:
    """Run; return the number of failures."""
    rng, texts = random.Random(seed), corpus()
    start = time.monotonic()
    graded = workers = timeouts = failures = 0
    slowest = (0.0, "")
    while time.monotonic() - start < seconds:
        pairs = [(mutate(rng.choice(texts), texts, rng), rng.choice(texts)) for _ in range(64)]
        for prediction, gold in pairs:
            began = time.thread_time()  # the machine may be busy with other things
            ruling = decide(Pair(prediction, gold))
            took = time.thread_time() - began
            slowest = max(slowest, (took, f"{prediction[:300]!r} | {gold[:100]!r}"))
            workers += ruling.rule == NEEDS_WORKER
            if ruling.rule == "crash":
                failures += 1
                print(f"CRASH {ruling.reason}: {prediction[:300]!r} | {gold[:100]!r}", flush=True)
            if took > CHEAP_LIMIT:
                failures += 1
                print(f"SLOW {took:.2f} s: {prediction!r} | {gold!r}", flush=True)
        for prediction, _ in pairs[:8]:
            if decide(Pair(prediction, "5")).equal and decide(Pair(prediction, "6")).equal:
                failures += 1
                print(f"PASSES FOR TWO GOLDS: {prediction[:300]!r}", flush=True)
        began = time.perf_counter()
        verdicts = grade_answers([p for p, _ in pairs], [g for _, g in pairs])
        took = time.perf_counter() - began
        timeouts += sum(verdict.rule == "timeout" for verdict in verdicts)
        limit = 30.0 + (pool.TIMEOUT + 4) * (1 + sum(v.equal is None for v in verdicts))
        if len(verdicts) != len(pairs) or took > limit:
            failures += 1
            print(f"BATCH of {len(pairs)} took {took:.1f} s", flush=True)
        graded += len(pairs)
    print(f"{graded} pairs in {seconds:g} s, {workers} to a worker, {timeouts} timeouts, {failures} failures")
    print(f"slowest on the cheap road: {slowest[0]:.3f} s for {slowest[1]}")
    pool.shutdown()
    return failures


if __name__ == "__main__":
    limit = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    sys.exit(main(limit, int(sys.argv[2]) if len(sys.argv) > 2 else 0) > 0)
