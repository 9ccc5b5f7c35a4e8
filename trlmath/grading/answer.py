"""Does a prediction state the gold answer? The cheap road here, the rest in workers, repeats from a cache."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from trlmath.errors import GradingError
from trlmath.grading.rules import NEEDS_WORKER, Pair, Ruling, decide
from trlmath.grading.verdict import Step, Verdict

CACHED_LENGTH = 2_000
"""Longer texts are not kept in the cache (characters, both sides together)."""


def grade_answer(prediction: str, gold: Any, *, explain: bool = False) -> Verdict:
    """Say whether `prediction` (what stands inside the answer tags) states the answer `gold`.

    Args:
        prediction: mathematics, words, or a sentence that states exactly one final answer.
        gold: the gold answer, text or a number.
        explain: fill `Verdict.steps` with the rules tried and the time each took (no cache).

    Returns:
        A Verdict; `equal` is None when the gold cannot be read, or when the pair ran into the time or memory
        limit of a worker (rule ``timeout``, ``memory``, ``crash``).

    Raises:
        GradingError: the prediction is not text, or the workers cannot start.
    """
    if explain:
        return _explained(prediction, gold)
    return grade_answers([prediction], [gold])[0]


def grade_answers(
    predictions: Sequence[str], golds: Sequence[Any], *, workers: int | None = None
) -> list[Verdict]:
    """`grade_answer` for many pairs, in order; only pairs that the cheap road cannot decide go to the pool.

    Args:
        predictions: texts.
        golds: one gold a prediction.
        workers: size of the pool, should it be needed.

    Raises:
        GradingError: as `grade_answer`, and when the lengths differ.
    """
    if len(predictions) != len(golds):
        raise GradingError(
            f"{len(predictions)} predictions but {len(golds)} golds: give one gold a prediction."
        )
    verdicts: list[Verdict] = []
    left: dict[tuple[str, str], list[int]] = {}
    for index, (prediction, gold) in enumerate(zip(predictions, golds, strict=True)):
        if not isinstance(prediction, str):
            raise GradingError(f"a prediction is {type(prediction).__name__}, not text.")
        verdict = _cheap(prediction, gold)
        if verdict.rule == NEEDS_WORKER:
            left.setdefault((prediction, str(gold)), []).append(index)
        verdicts.append(verdict)
    if left:
        from trlmath.grading.pool import judge

        start = time.perf_counter()
        judged = judge(list(left), workers)
        seconds = (time.perf_counter() - start) / len(left)
        for (pair, places), (equal, rule, reason) in zip(left.items(), judged, strict=True):
            known = verdicts[places[0]]
            verdict = Verdict(equal, rule, known.prediction, known.gold, known.seconds + seconds, reason)
            if equal is not None and len(pair[0]) + len(pair[1]) <= CACHED_LENGTH:
                _remember(pair, verdict)
            for place in places:
                verdicts[place] = verdict
    return verdicts


def same_answer(one: str, other: str) -> bool:
    """Whether two answers are seen to be equal without a worker (0.2 ms); False where it cannot be told.

    For counting votes: neither of the two is a gold, so that the order does not matter.
    """
    return _cheap(one, other).equal is True or _cheap(other, one).equal is True


def _cheap(prediction: str, gold: Any) -> Verdict:
    """The cheap road, through the cache where the texts are short."""
    if gold is None or not isinstance(gold, (str, int, float)) or isinstance(gold, bool):
        return Verdict(
            None, "unreadable_gold", prediction, "", 0.0, f"a gold of type {type(gold).__name__} is no answer"
        )
    text = str(gold)
    if len(prediction) + len(text) > CACHED_LENGTH:
        return _walk(prediction, text)
    return _HEAVY.get((prediction, text)) or _cached(prediction, text)


def _walk(prediction: str, gold: str) -> Verdict:
    start = time.perf_counter()
    pair = Pair(prediction, gold)
    ruling = decide(pair)
    return _verdict(pair, ruling, time.perf_counter() - start, ())


_cached = lru_cache(maxsize=16_384)(_walk)
_HEAVY: dict[tuple[str, str], Verdict] = {}
_HEAVY_SIZE = 4_096


def _remember(pair: tuple[str, str], verdict: Verdict) -> None:
    if len(_HEAVY) >= _HEAVY_SIZE:
        _HEAVY.pop(next(iter(_HEAVY)), None)
    _HEAVY[pair] = verdict


def _verdict(pair: Pair, ruling: Ruling, seconds: float, steps: tuple[Step, ...]) -> Verdict:
    return Verdict(ruling.equal, ruling.rule, pair.p[:2000], pair.g[:2000], seconds, ruling.reason, steps)


def _explained(prediction: str, gold: Any) -> Verdict:
    if gold is None or not isinstance(gold, (str, int, float)):
        return _cheap(prediction, gold)
    start = time.perf_counter()
    pair = Pair(prediction, str(gold))
    ruling = decide(pair, explain=True)
    steps = list(pair.steps)
    if ruling.rule == NEEDS_WORKER:
        from trlmath.grading.pool import judge

        began = time.perf_counter()
        ruling = Ruling(*judge([(prediction, str(gold))])[0])
        outcome = {True: "equal", False: "different", None: "undecided"}[ruling.equal]
        steps.append(Step("worker", outcome, time.perf_counter() - began))
    return _verdict(pair, ruling, time.perf_counter() - start, tuple(steps))
