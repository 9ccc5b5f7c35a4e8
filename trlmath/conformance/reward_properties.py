"""Properties of rewards: one value a completion, whatever the batch, the text and the thread."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

from trlmath.conformance import samples
from trlmath.conformance.common import same
from trlmath.conformance.core import Broken, Skipped, bounded, for_all, prop, shown
from trlmath.conformance.subject import Subject, plain_grade
from trlmath.errors import TrlmathError

Rows = Sequence[tuple[str, str]]
# TRL gives a reward's number as float32 to the update
LARGE = 1e30
# A grader may not read every form of a gold, but these it must.
PLAIN_GOLDS = ("2", "-7", "1/3")


def score(subject: Subject, rows: Rows) -> list[Any]:
    """Call the reward as a run does, in a bounded time. Raises Broken with the rows it fails on."""
    reward = subject.reward()
    try:
        grades = bounded(lambda: reward(**subject.batch(rows)), subject.seconds, shown([t for t, _ in rows]))
    except TrlmathError as error:
        raise Broken(f"completions {shown([t for t, _ in rows])}: {error}") from error
    return [plain_grade(grade) for grade in grades]


@prop("length", "returns one value for each completion, also for none", "reward")
def length(subject: Subject) -> None:
    for count in (0, 1, 2, 7):
        rows = [("so </think> <answer> 2 </answer>", "2")] * count
        if len(score(subject, rows)) != count:
            raise Broken(f"{count} completions")


@prop("order", "the order of the completions does not matter", "reward")
def order(subject: Subject) -> None:
    def check(rows: Rows) -> None:
        straight = score(subject, rows)
        back = score(subject, rows[::-1])[::-1]
        if not same(straight, back):
            texts = [text for text, _ in rows]
            raise Broken(f"{shown(texts)} gives {shown(straight)}; in reverse order {shown(back)}")

    for_all(samples.rollout_rows(), check)


@prop("batch of one", "a completion alone gets what it gets among others", "reward")
def batch_of_one(subject: Subject) -> None:
    def check(rows: Rows) -> None:
        together = score(subject, rows)
        for number, row in enumerate(rows):
            (alone,) = score(subject, [row])
            if not same(alone, together[number]):
                texts = [text for text, _ in rows]
                raise Broken(
                    f"{shown(row[0])} alone gets {shown(alone)}; in {shown(texts)} {together[number]}"
                )

    for_all(samples.rollout_rows(), check, examples=15)


@prop("any text", "survives empty, huge, unicode, NUL and malformed text in bounded time", "reward")
def any_text(subject: Subject) -> None:
    for text in samples.NASTY:
        values = score(subject, [(text, "2")])
        if values[0][0] is not None and abs(values[0][0]) > LARGE:
            raise Broken(f"{shown(text)} gets {values[0][0]}")

    def check(text: str) -> None:
        score(subject, [(text, "2")])

    for_all(samples.texts(), check)


@prop("gold wins", "a right answer scores above a wrong one, and never below", "reward")
def gold_wins(subject: Subject) -> None:
    if "right" in subject.hints and "wrong" in subject.hints:
        (right,), (wrong,) = (score(subject, [(subject.hints[key], "2")]) for key in ("right", "wrong"))
        if not (right[0] or 0.0) > (wrong[0] or 0.0):
            raise Broken(f"its own `right` gets {right[0]}, its `wrong` {wrong[0]}")
        return
    if not subject.reward().required() & {"answer", "solution"}:
        raise Skipped("it asks for no gold answer")
    for gold in samples.GOLDS:
        won = False
        for style in samples.STYLES:
            right, wrong = style.format(answer=gold), style.format(answer="123456789")
            a, b = (value[0] or 0.0 for value in score(subject, [(right, gold), (wrong, gold)]))
            if a < b:
                raise Broken(f"gold {gold!r}: {shown(right)} gets {a}, {shown(wrong)} gets {b}")
            won |= a > b
        if not won and gold in PLAIN_GOLDS:
            raise Broken(f"gold {gold!r}: in no known style does the right answer score above 123456789")


@prop("inputs untouched", "changes nothing of what it is given", "reward")
def inputs_untouched(subject: Subject) -> None:
    reward = subject.reward()
    given = reward.arguments(subject.batch([("so </think> <answer> 2 </answer>", "2"), ("2", "-7")]))
    before = copy.deepcopy(given)
    reward.finish(reward.function(**given))
    changed = [name for name in before if given[name] != before[name]]
    if changed:
        raise Broken(
            f"its argument {changed[0]!r} was {shown(before[changed[0]])}, then {shown(given[changed[0]])}"
        )


@prop("any thread", "works off the main thread as on it", "reward")
def any_thread(subject: Subject) -> None:
    rows = [(style.format(answer="2"), "2") for style in samples.STYLES]
    random.Random(0).shuffle(rows)
    there = score(subject, rows)
    here = [plain_grade(grade) for grade in subject.reward()(**subject.batch(rows))]
    if not same(there, here):
        raise Broken(f"on the main thread {shown(here)}, on another {shown(there)}")
