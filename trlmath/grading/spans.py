"""Find marked answers in a text: `\\boxed{...}` and answer elements, with their places."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BOX = re.compile(r"\\f?boxed\s*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_ANSWER = re.compile(r"</?answer>")

_SPACE = " \t\r\n\f\v"
_MARKERS = tuple(f"<|{name}|>" for name in ("im_end", "endoftext", "eot_id", "end_of_text", "end", "eom_id"))
_MARKERS += ("</s>", "<eos>", "<end_of_turn>", "<｜end▁of▁sentence｜>")
_TURN = re.compile(r"\n[^\S\n]*(?:User|Human|Question|Problem)\s*:|<\|im_start\|>|<\|start_header_id\|>")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text: its content and where it lies, [start, end) in characters."""

    text: str
    start: int
    end: int


def end_of_text(text: str, end: int | None = None) -> int:
    """Where the whitespace and end-of-text markers at the end of `text` (up to `end`) begin.

    Read backwards, and so linear in the text: a model may write whitespace without end.
    """
    end = len(text) if end is None else end
    while end:
        if text[end - 1] in _SPACE:
            end -= 1
            continue
        marker = next((m for m in _MARKERS if text.endswith(m, 0, end)), None)
        if marker is None:
            break
        end -= len(marker)
    return end


def turn_start(text: str, start: int) -> int:
    """Where a run-on conversation starts a further turn, blank lines before it included; -1 if nowhere."""
    found = _TURN.search(text, start)
    if found is None:
        return -1
    first = at = found.start()
    while text[first] == "\n" and at > start and text[at - 1].isspace():
        at -= 1
        first = at if text[at] == "\n" else first
    return first


def brace_end(text: str, start: int) -> int:
    """Index just past the brace group that opens at `start`, or -1 when it never closes.

    Linear in the text; escaped braces (``\\{``) do not count.
    """
    depth = 0
    for match in _BRACE.finditer(text, start):
        token = match.group()
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if depth == 0:
                return match.end()
    return -1


def boxes(text: str) -> list[Span]:
    """All outermost `\\boxed{...}` and `\\fbox{...}` contents (also `\\boxed 5`), in order."""
    found: list[Span] = []
    at = 0
    while match := _BOX.search(text, at):
        at = match.end()
        if text.startswith("{", at):
            end = brace_end(text, at)
            if end < 0:
                break  # an unclosed box swallows the rest: nothing after it is a box of its own
            found.append(Span(text[at + 1 : end - 1], at + 1, end - 1))
            at = end
        elif at < len(text) and match.group()[-1] == " ":
            end = at
            while end < len(text) and text[end] not in " $\n":
                end += 1
            found.append(Span(text[at:end], at, end))
            at = end
    return found


def answer_elements(text: str, start: int = 0) -> list[Span]:
    """Innermost closed ``<answer>...</answer>`` contents from `start` on, in order."""
    found: list[Span] = []
    opened = -1
    for match in _ANSWER.finditer(text, start):
        if match.group() == "<answer>":
            opened = match.end()
        elif opened >= 0:
            found.append(Span(text[opened : match.start()], opened, match.start()))
            opened = -1
    return found


def stripped(text: str, start: int, end: int) -> Span:
    """The piece [start, end) of `text` without surrounding whitespace."""
    piece = text[start:end]
    left = len(piece) - len(piece.lstrip())
    body = piece.strip()
    return Span(body, start + left, start + left + len(body))
