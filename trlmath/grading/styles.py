"""Where a response states its answer, and whether it keeps the asked format: one function a style."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from trlmath.grading.spans import Span, answer_elements, boxes, end_of_text, stripped, turn_start

_GAP = re.compile(r"[ \t\r\n\f\v]*")
_NUMBER = re.compile(r"[-+−]?\$?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:\s*/\s*\d+)?%?")


@dataclass(frozen=True, slots=True)
class Found:
    """What a style found in a response.

    Attributes:
        format: whether the asked format is kept; None only where the reference raises.
        answers: the stated final answers. Several different ones never score.
        fault: the category when the answer is not right.
        reason: a short sentence about the format.
    """

    format: bool | None
    answers: tuple[Span, ...]
    fault: str
    reason: str


def r1_zero(text: str, finish: str | None) -> Found:
    """``reasoning </think> <answer> ANSWER </answer>``, strictly.

    1. exactly one ``</think>`` (a draft ``<answer>`` before it is reasoning);
    2. then nothing but spaces, tabs and line ends up to ``<answer>``;
    3. exactly one answer element, and it is not blank;
    4. after ``</answer>`` nothing but whitespace and end-of-text markers.

    When a rule is broken, the answer is still looked for, so that `answer` can be told whatever
    the format: the answer elements after the first ``</think>``, else the last box, else the final
    statement. Text from the next turn of a run-on conversation on is never looked at.
    """
    fault, reason = _r1_zero_fault(text, finish)
    if not fault:
        start = text.index("</think>") + len("</think>")
        return Found(True, (answer_elements(text, start)[0],), "format_only", "format kept")
    return Found(False, _loose_answers(text, finish, fault), fault, reason)


def _r1_zero_fault(text: str, finish: str | None) -> tuple[str, str]:
    """(category, reason) of the first broken rule; ("", "") when all hold."""
    if not text.strip():
        return "empty", "nothing was generated"
    ends = text.count("</think>")
    start = text.find("</think>")
    tail = text[start + len("</think>") :] if ends else ""
    tail = tail[: end_of_text(tail)]
    opened, closed = tail.count("<answer>"), tail.count("</answer>")
    if finish == "length" and not (ends and opened and closed):
        return "truncated", "cut off at the token limit before the answer was closed"
    if not ends:
        return "no_think_end", "no </think>"
    if ends > 1:
        return "several_think_ends", f"{ends} times </think>"
    if not opened:
        return "no_answer_tag", "no <answer> after </think>"
    if not closed:
        if finish == "stop":
            reason = "<answer> is never closed: the model ended there, or the engine dropped the stop string"
            return "stop_string_dropped", reason
        return "no_answer_end", "<answer> is never closed: cut off, or the stop string was dropped"
    gap = _GAP.match(tail)
    if gap is not None and not tail.startswith("<answer>", gap.end()):
        return "text_between", "text between </think> and <answer>"
    first = tail.index("</answer>") + len("</answer>")
    if tail[first:] and tail[:first].count("<answer>") == 1 and not tail[first:].startswith("</answer>"):
        return "trailing_text", "text after </answer>"
    if opened > 1 or closed > 1:
        return "several_answer_tags", f"{opened} times <answer>, {closed} times </answer>"
    if not answer_elements(tail)[0].text.strip():
        return "empty_answer", "nothing between <answer> and </answer>"
    return "", ""


def _loose_answers(text: str, finish: str | None, fault: str) -> tuple[Span, ...]:
    """The stated final answers of a response that breaks the format."""
    turn = turn_start(text, max(text.find("</think>"), 0))
    if turn > 0:
        text = text[:turn]
    start = text.find("</think>")
    start = start + len("</think>") if start >= 0 else 0
    elements = answer_elements(text, start)
    if elements:
        return tuple(elements)
    opened = text.rfind("<answer>", start)
    if opened >= 0:
        whole = fault == "stop_string_dropped"
        return (stripped(text, opened + len("<answer>"), len(text)),) if whole else ()
    boxed = boxes(text[start:])
    if boxed:
        last = boxed[-1]
        return (Span(last.text, last.start + start, last.end + start),)
    return () if finish == "length" else _final_statement(text, start)


def _final_statement(text: str, start: int) -> tuple[Span, ...]:
    """The part after the reasoning, or the last line that is not blank."""
    end = end_of_text(text)
    if start:
        piece = stripped(text, start, end)
    else:
        line = text.rfind("\n", 0, end)
        piece = stripped(text, line + 1, end)
    return (piece,) if piece.text else ()


def r1_zero_reference(text: str, finish: str | None) -> Found:
    """The format exactly as CS336's ``r1_zero_reward_fn`` counts it, quirks included.

    Holds ``</think> <answer>`` (one space) and ``</answer>`` anywhere; the answer is everything
    after the last ``<answer>`` with each ``</answer>`` cut out, its last box when it has one.
    """
    if "</think> <answer>" not in text or "</answer>" not in text:
        return Found(
            False, (), _r1_zero_fault(text, finish)[0] or "no_answer_tag", "not the reference's format"
        )
    start = text.rfind("<answer>") + len("<answer>")
    answer = text[start:].replace("</answer>", "")
    if "\\boxed" in answer:
        found = boxes(answer)
        answer = found[-1].text if found else ""
    return Found(True, (Span(answer, start, len(text)),), "format_only", "the reference's format is kept")


def boxed(text: str, finish: str | None) -> Found:
    """The last ``\\boxed{...}`` of the final part (after ``</think>`` where there is one).

    A ``<think>`` that never ends has no final part, and a box in it is a draft.
    """
    end = text.rfind("</think>")
    if end < 0 and "<think>" in text:
        cut = finish == "length"
        return Found(False, (), "truncated" if cut else "no_think_end", "the reasoning never ends")
    return _last_box(text, end + len("</think>") if end >= 0 else 0, finish)


def question_only(text: str, finish: str | None) -> Found:
    """The last ``\\boxed{...}`` anywhere: the answer to a bare question, as CS336 counts it."""
    return _last_box(text, 0, finish)


def _last_box(text: str, start: int, finish: str | None) -> Found:
    if not text.strip():
        return Found(False, (), "empty", "nothing was generated")
    turn = turn_start(text, start)
    part = text[start:turn] if turn > start else text[start:]
    found = boxes(part)
    if found:
        last = found[-1]
        span = Span(last.text, last.start + start, last.end + start)
        if not last.text.strip():
            return Found(False, (), "empty_answer", "the last box is empty")
        return Found(True, (span,), "format_only", "the last box")
    if finish == "length":
        return Found(False, (), "truncated", "cut off at the token limit before any box")
    return Found(False, _final_statement(text[: start + len(part)], start), "no_box", "no \\boxed{...}")


def gsm8k(text: str, finish: str | None) -> Found:
    """``#### ANSWER`` on a line, as GSM8K writes its solutions; the last such line counts."""
    if not text.strip():
        return Found(False, (), "empty", "nothing was generated")
    at = text.rfind("####")
    if at < 0:
        if finish == "length":
            return Found(False, (), "truncated", "cut off at the token limit before ####")
        return Found(False, _final_statement(text, 0), "no_marker", "no #### line")
    line = text.find("\n", at)
    end = end_of_text(text, None if line < 0 else line)
    span = stripped(text, at + 4, max(end, at + 4))
    if not span.text:
        return Found(False, (), "empty_answer", "nothing after ####")
    return Found(True, (span,), "format_only", "the last #### line")


def last_number(text: str, finish: str | None) -> Found:
    """The last number of the text, whatever stands around it.

    Lenient on purpose: it scores a right number that the response only mentions. Fit for base
    models that were never told a format; not for training against.
    """
    if not text.strip():
        return Found(False, (), "empty", "nothing was generated")
    last = None
    for match in _NUMBER.finditer(text):
        last = match
    if last is None:
        return Found(False, (), "truncated" if finish == "length" else "no_number", "no number in the text")
    start, end = last.span()
    if start and last.group()[0] in "-+−" and (text[start - 1].isalnum() or text[start - 1] in ")}"):
        start += 1  # `10-4` ends in 4, not in -4
    return Found(True, (Span(text[start:end].rstrip(","), start, end),), "wrong_answer", "the last number")


STYLES: dict[str, Callable[[str, str | None], Found]] = {
    "r1_zero": r1_zero,
    "boxed": boxed,
    "question_only": question_only,
    "gsm8k": gsm8k,
    "last_number": last_number,
}
"""Style name -> the function that finds the answer; each docstring is the style's definition."""
