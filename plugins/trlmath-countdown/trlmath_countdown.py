"""Countdown for trlmath: reach a number from given numbers. A dataset, a prompt and a reward."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from trlmath import Grade, Problem, Prompt, RecipeError, hookimpl

trlmath_api = 1

LONGEST = 200  # characters of an expression; also what bounds the depth of its brackets
PATIENCE = 20_000  # draws without a new problem before it is said that there is none
_TOKEN = re.compile(r"\s*(?:(\d{1,9})|([-+*/()]))")

TEMPLATE = """A conversation between User and Assistant. The User gives some numbers and a target. The \
Assistant first thinks, then answers with an arithmetic expression that uses each number exactly once, with \
+, -, * and /, and equals the target. The reasoning is enclosed in <think> </think> and the expression in \
<answer> </answer>, i.e., <think> reasoning here </think> <answer> (1 + 2) * 3 </answer>.
User: {question}
Assistant: <think>"""


@dataclass(frozen=True)
class CountdownData:
    """`size` problems (an eighth held out) of `numbers` numbers up to `most`, drawn with `seed`.

    All can be solved. The target is a positive whole number of at most ten times `most`. Rows have the
    columns ``numbers`` and ``target``; ``solution`` is one expression that solves it.
    """

    size: int = 1024
    numbers: int = 3
    most: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if not 8 <= self.size <= 100_000:
            raise RecipeError(f"countdown needs 8 <= size <= 100000; got {self.size}.")
        if not 2 <= self.numbers <= 6:
            raise RecipeError(f"countdown needs 2 <= numbers <= 6; got {self.numbers}.")
        if not 5 <= self.most <= 1000:
            raise RecipeError(f"countdown needs 5 <= most <= 1000; got {self.most}.")

    def load(self, split: Literal["train", "eval"]) -> Iterator[Problem]:
        """Yield the problems of a split, the same ones on every call. A problem's hash decides its split."""
        draw = random.Random(f"countdown {self.seed} {split}")
        wanted, seen, misses = self.size if split == "train" else self.size // 8, set[str](), 0
        while len(seen) < wanted:
            numbers = [draw.randint(1, self.most) for _ in range(self.numbers)]
            expression, value = _combine(numbers, draw)
            question = ask(numbers, int(value))
            fits = value.denominator == 1 and 0 < value <= 10 * self.most
            if not fits or question in seen or _split(question) != split:
                misses += 1
                if misses > PATIENCE:
                    raise RecipeError(
                        f"countdown: {self.numbers} numbers up to {self.most} make no {wanted} different "
                        "problems; lower size or raise most."
                    )
                continue
            seen.add(question)
            misses = 0
            metadata = {"numbers": numbers, "target": int(value)}
            yield Problem(question, str(int(value)), solution=expression, metadata=metadata)


def ask(numbers: Sequence[int], target: int) -> str:
    """The question, in the same words for the same numbers."""
    given = ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
    return f"Using the numbers {given}, each exactly once, write an expression that equals {target}."


def _split(question: str) -> str:
    return "eval" if hashlib.sha256(question.encode()).digest()[0] < 32 else "train"


def _combine(numbers: Sequence[int], draw: random.Random) -> tuple[str, Fraction]:
    """A random expression of all the numbers, and its value."""
    left = [(str(n), Fraction(n)) for n in numbers]
    while len(left) > 1:
        (a, x), (b, y) = (left.pop(draw.randrange(len(left))) for _ in range(2))
        op = draw.choice("+-*/" if y != 0 else "+-*")
        value = {"+": x + y, "-": x - y, "*": x * y}[op] if op != "/" else x / y
        left.append((f"({a} {op} {b})", value))
    text, value = left[0]
    return text.removeprefix("(").removesuffix(")") if len(numbers) > 1 else text, value


@dataclass(frozen=True)
class CountdownReward:
    """1 for an expression that uses each number once and equals the target, `partial` for one that reads.

    Parts: ``format`` (an answer in tags, after the thinking), ``numbers`` (each used once) and ``value``.
    """

    partial: float = 0.0
    conformance: ClassVar = {
        "columns": {"numbers": [3, 5, 2], "target": 21},
        "right": "so it is </think> <answer> (5 + 2) * 3 </answer>",
        "wrong": "so it is </think> <answer> 5 + 2 * 3 </answer>",
    }

    def __post_init__(self) -> None:
        if not 0 <= self.partial < 1:
            raise RecipeError(f"countdown needs 0 <= partial < 1; got {self.partial}.")

    def __call__(
        self, completions: Sequence[str], numbers: Sequence[Sequence[int]], target: Sequence[int]
    ) -> list[Grade]:
        rows = zip(completions, numbers, target, strict=True)
        return [self._grade(text, list(given), wanted) for text, given, wanted in rows]

    def _grade(self, text: str, given: list[int], wanted: int) -> Grade:
        expression = answer_of(text)
        if expression is None:
            return self._say(0.0, 0.0, 0.0, "no_answer", "no answer in tags after the thinking")
        try:
            value, used = evaluate(expression)
        except (ValueError, ZeroDivisionError) as error:
            return self._say(1.0, 0.0, 0.0, "unreadable", f"{error}")
        numbers, right = float(sorted(used) == sorted(given)), float(value == wanted)
        if not numbers:
            return self._say(1.0, numbers, right, "wrong_numbers", f"it uses {used}, given are {given}")
        return self._say(1.0, numbers, right, "right" if right else "wrong_value", f"it equals {value}")

    def _say(self, form: float, numbers: float, value: float, category: str, reason: str) -> Grade:
        reward = (
            1.0 if numbers and value else self.partial * float(category in ("wrong_numbers", "wrong_value"))
        )
        return Grade(reward, {"format": form, "numbers": numbers, "value": value}, category, reason)


def answer_of(text: str) -> str | None:
    """The text of the one answer after ``</think>``; None when there is not exactly one."""
    found = re.findall(r"<answer>([^<]*)</answer>", text.partition("</think>")[2][:100_000])
    return found[0].strip() if len(found) == 1 and found[0].strip() else None


def evaluate(expression: str) -> tuple[Fraction, list[int]]:
    """Return value and numbers of an expression of whole numbers, + - * / and brackets.

    Nothing is executed: the text is read by a grammar. Raises ValueError for anything else, and
    ZeroDivisionError.
    """
    if len(expression) > LONGEST:
        raise ValueError(f"an expression of over {LONGEST} characters")
    tokens = _tokens(expression.partition("=")[0] if expression.count("=") == 1 else expression)
    value, place = _sum(tokens, 0)
    if place != len(tokens):
        raise ValueError(f"{tokens[place]!r} is not expected there")
    return value, [int(token) for token in tokens if token.isdigit()]


def _tokens(text: str) -> list[str]:
    text = text.replace("\u00d7", "*").replace("\u00f7", "/").replace("\u2212", "-").strip()
    tokens, place = [], 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ValueError(f"{text[place:].strip()[:20]!r} is no number and no operator")
        tokens.append(match[1] or match[2])
        place = match.end()
    return tokens


def _sum(tokens: list[str], place: int) -> tuple[Fraction, int]:
    value, place = _product(tokens, place)
    while place < len(tokens) and tokens[place] in "+-":
        other, after = _product(tokens, place + 1)
        value, place = (value + other if tokens[place] == "+" else value - other), after
    return value, place


def _product(tokens: list[str], place: int) -> tuple[Fraction, int]:
    value, place = _atom(tokens, place)
    while place < len(tokens) and tokens[place] in "*/":
        other, after = _atom(tokens, place + 1)
        if tokens[place] == "/" and other == 0:
            raise ZeroDivisionError("division by 0")
        value, place = (value * other if tokens[place] == "*" else value / other), after
    return value, place


def _atom(tokens: list[str], place: int) -> tuple[Fraction, int]:
    if place >= len(tokens):
        raise ValueError("it ends too early")
    if tokens[place].isdigit():
        return Fraction(int(tokens[place])), place + 1
    if tokens[place] == "-":
        value, place = _atom(tokens, place + 1)
        return -value, place
    if tokens[place] != "(":
        raise ValueError(f"{tokens[place]!r} is not expected there")
    value, place = _sum(tokens, place + 1)
    if place >= len(tokens) or tokens[place] != ")":
        raise ValueError("a bracket is not closed")
    return value, place + 1


@hookimpl
def register_rewards(register):
    """Offer the reward under the name that recipes write."""
    register("countdown", CountdownReward)


@hookimpl
def register_prompts(register):
    """Offer the prompt under the name that recipes write."""
    doc = "The r1_zero conversation with the rules of Countdown; stops at the end of the answer."
    register("countdown", Prompt("countdown", TEMPLATE, stop="</answer>", doc=doc))


@hookimpl
def register_datasets(register):
    """Offer the dataset under the name that recipes write."""
    register("countdown", CountdownData)
