"""The pre-training documents: solved problems, mostly under the r1_zero prompt, often in a wrong format.

A base model copies the habits of its corpus. Here two to three in five solutions keep the format that
the r1_zero prompt asks for; the others end in one of the ways people end a solution, and one in five or
six skips the steps. That is the room that reinforcement learning has.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from trlmath.data.nano.steps import decimal
from trlmath.data.nano.task import FAMILIES, LEVELS, Item, make_item, split_of

PREAMBLE = (
    "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. "
    "The Assistant first thinks about the reasoning process in the mind and then provides the User "
    "with the answer. "
    "The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> "
    "</answer> tags, respectively, i.e., <think> reasoning process here </think> "
    "<answer> answer here </answer>.\nUser:"
)
"""The r1_zero prompt up to the question."""

ENDINGS = {
    "right": " {t} </think> <answer> {a} </answer>",
    "plain": " {t} </think> The answer is {a}.",
    "bare": " {t}. The answer is {a}.",
    "boxed": " {t}, so \\boxed{{{a}}}.",
    "think_boxed": " {t} </think> \\boxed{{{a}}}",
    "no_think": " {t} <answer> {a} </answer>",
    "unclosed": " {t} </think> <answer> {a}",
    "nothing": " {t}",
}
"""How a solution may end; only ``right`` is the r1_zero format."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How the solutions of a corpus are written.

    Attributes:
        order: per cent of each ending after an order ("Compute ..."), in the order of `ENDINGS`.
        question: the same after a question ("What is ...?"), which is answered in format less often.
        terse: share of solutions that skip the steps.
    """

    order: tuple[int, ...]
    question: tuple[int, ...]
    terse: float


HABITS = (
    Habits(order=(52, 12, 10, 8, 6, 5, 4, 3), question=(26, 36, 14, 10, 6, 3, 3, 2), terse=0.20),
    Habits(order=(58, 10, 9, 7, 6, 4, 3, 3), question=(32, 36, 12, 8, 5, 3, 2, 2), terse=0.15),
)
"""One for each stage of the pre-training; the second is the one that the base shows."""

LEVEL_WEIGHTS = (3, 4, 4)
OTHER_FORM = 0.12
QUESTION_ONLY = 0.10


@dataclass(frozen=True, slots=True)
class Document:
    """A pre-training text: `context` (no loss) and `target` (loss); under the preamble or alone."""

    context: str
    target: str
    preamble: bool


def other_form(answer: str, rng: random.Random) -> str:
    """Write an answer in an equivalent form: ``3/4`` as ``0.75`` or ``\\frac{3}{4}``, ``2.5`` as ``5/2``."""
    value = Fraction(answer)
    if value.denominator == 1:
        return answer
    if "." in answer:
        return str(value)
    if decimal(value) != answer and rng.random() < 0.5:
        return decimal(value)
    return f"{'-' if value < 0 else ''}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def draw_item(rng: random.Random) -> Item:
    """Draw a problem that is not held out, families evenly."""
    while True:
        item = make_item(rng, rng.choice(list(FAMILIES)), rng.choices(LEVELS, LEVEL_WEIGHTS)[0])
        if split_of(item.key) == "train":
            return item


def draw_document(rng: random.Random, habits: Habits) -> Document:
    """Draw one document."""
    item = draw_item(rng)
    trace = item.terse if rng.random() < habits.terse else item.trace
    answer = other_form(item.answer, rng) if rng.random() < OTHER_FORM else item.answer
    if rng.random() < QUESTION_ONLY:
        return Document(item.question, f" {trace}, so \\boxed{{{answer}}}.", preamble=False)
    weights = habits.question if item.question.endswith("?") else habits.order
    ending = rng.choices(list(ENDINGS), weights)[0]
    return Document(
        f" {item.question}\nAssistant: <think>", ENDINGS[ending].format(t=trace, a=answer), preamble=True
    )


def documents(seed: int, stage: int = 0) -> Iterator[Document]:
    """Yield the documents of a stage without end, the same ones for the same seed."""
    rng = random.Random(len(HABITS) * seed + stage)
    while True:
        yield draw_document(rng, HABITS[stage])
