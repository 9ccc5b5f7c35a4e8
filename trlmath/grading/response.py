"""Grade whole responses: find the answer as a style asks, compare it, count the three numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trlmath.errors import GradingError, nearest
from trlmath.grading.answer import grade_answers
from trlmath.grading.styles import STYLES, Found, r1_zero_reference
from trlmath.grading.verdict import Verdict
from trlmath.types import Grade

MODES = ("strict", "reference")


def grade_response(
    response: str,
    gold: Any,
    style: str = "r1_zero",
    mode: str = "strict",
    *,
    finish_reason: str | None = None,
) -> Grade:
    """Grade one completion (never the prompt glued to it).

    Args:
        response: the completion's text.
        gold: the gold answer: text or a number, or a list of alternatives of which any may match.
        style: ``r1_zero``, ``boxed``, ``question_only``, ``gsm8k`` or ``last_number``.
        mode: ``strict`` (default), or ``reference``, which counts the r1_zero format exactly as
            CS336's ``r1_zero_reward_fn`` does.
        finish_reason: the engine's own word, ``stop`` or ``length``, when known: it tells a
            truncated response and a dropped stop string apart from a missing tag.

    Returns:
        A Grade with parts ``format``, ``answer``, ``both``. `reward` is ``both``, and None when
        the gold cannot be read or the grader ran out of time: never a silent 0.

    Raises:
        GradingError: unknown style or mode, or a response that is not text.
    """
    return grade_responses([response], [gold], style, mode, finish_reasons=[finish_reason])[0]


def grade_responses(
    responses: Sequence[str],
    golds: Sequence[Any],
    style: str = "r1_zero",
    mode: str = "strict",
    *,
    finish_reasons: Sequence[str | None] | None = None,
    workers: int | None = None,
) -> list[Grade]:
    """`grade_response` for a batch, in order; the pool of workers is used only for what needs it.

    Raises:
        GradingError: as `grade_response`, and when the lengths of the lists differ.
    """
    finishes = list(finish_reasons) if finish_reasons is not None else [None] * len(responses)
    if not len(responses) == len(golds) == len(finishes):
        raise GradingError(
            f"{len(responses)} responses, {len(golds)} golds and {len(finishes)} finish reasons: "
            "give one gold and one finish reason per response."
        )
    finder = _finder(style, mode)
    found: list[Found] = []
    for response, finish in zip(responses, finishes, strict=True):
        if not isinstance(response, str):
            raise GradingError(
                f"a response is {type(response).__name__}, not text: pass the completion's text."
            )
        found.append(finder(response, finish))
    alternatives = [_alternatives(gold) for gold in golds]
    pairs = [
        (span.text, gold)
        for item, many in zip(found, alternatives, strict=True)
        for span in item.answers
        for gold in many
    ]
    verdicts = grade_answers([p for p, _ in pairs], [g for _, g in pairs], workers=workers)
    table = dict(zip(pairs, verdicts, strict=True))
    return [
        _grade(item, many, table, gold, mode)
        for item, many, gold in zip(found, alternatives, golds, strict=True)
    ]


def _finder(style: str, mode: str) -> Any:
    if style not in STYLES:
        raise GradingError(
            f"no grading style {style!r}; there are {', '.join(STYLES)}.{nearest(style, STYLES)}"
        )
    if mode not in MODES:
        raise GradingError(f"no grading mode {mode!r}; there are {', '.join(MODES)}.{nearest(mode, MODES)}")
    if mode == "reference":
        if style != "r1_zero":
            raise GradingError(f"mode 'reference' is defined for style 'r1_zero' only, not for {style!r}.")
        return r1_zero_reference
    return STYLES[style]


def _alternatives(gold: Any) -> tuple[str, ...]:
    """The golds of which any may match; empty when there is none to compare with."""
    many = gold if isinstance(gold, (list, tuple)) else [gold]
    texts = [str(g) for g in many if isinstance(g, (str, int, float)) and not isinstance(g, bool)]
    return tuple(text for text in texts if text.strip())


def _grade(
    found: Found, golds: tuple[str, ...], table: dict[tuple[str, str], Verdict], gold: Any, mode: str
) -> Grade:
    form: float | None = None if found.format is None else float(found.format)
    span = (found.answers[-1].start, found.answers[-1].end) if found.answers else None
    if mode == "reference" and not isinstance(gold, (str, int, float, list)):
        reason = f"the reference raises for a gold of type {type(gold).__name__}"
        return Grade(None, {"format": None, "answer": None, "both": None}, "unparseable_gold", reason, span)
    if not golds:
        parts = {"format": form, "answer": None, "both": None}
        return Grade(None, parts, "unparseable_gold", "the gold answer is missing or empty", span)
    verdict = _decide(found, golds, table)
    if verdict is not None and verdict.equal is None:
        category = "unparseable_gold" if verdict.rule == "unreadable_gold" else "grader_timeout"
        return Grade(None, {"format": form, "answer": None, "both": None}, category, verdict.reason, span)
    right = float(verdict is not None and bool(verdict.equal))
    both = right * (form or 0.0)
    reason = found.reason if verdict is None else f"{found.reason}; {verdict.reason or verdict.rule}"
    category = _category(found, verdict, right)
    reward = both
    return Grade(reward, {"format": form, "answer": right, "both": both}, category, reason, span)


def _decide(found: Found, golds: tuple[str, ...], table: dict[tuple[str, str], Verdict]) -> Verdict | None:
    """The verdict that counts: right only when every stated answer is right by one gold."""
    worst: Verdict | None = None
    for span in found.answers:
        verdicts = [table[span.text, gold] for gold in golds]
        best = next((v for v in verdicts if v.equal), None)
        best = best or next((v for v in verdicts if v.equal is None), verdicts[0])
        if worst is None or worst.equal:
            worst = best
    return worst


def _category(found: Found, verdict: Verdict | None, right: float) -> str:
    if right:
        return "both" if found.format else "answer_only"
    readable = verdict is None or verdict.rule not in ("unparseable_answer", "several_answers")
    return found.fault if readable or found.fault != "format_only" or verdict is None else verdict.rule
