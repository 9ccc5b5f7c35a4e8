"""The answers to one problem as votes: equal answers are one vote, however they are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trlmath.evaluation.metrics import vote
from trlmath.grading import same_answer

# an answer is compared with at most so many others, the most frequent ones: bounds the time of a large n
COMPARED = 16


def votes(answers: Sequence[str | None]) -> list[str | None]:
    """Give equal answers one label.

    Args:
        answers: as they stand in the completions; None where none was found.

    Returns:
        one label an answer: the text of the most frequent way to write it; None does not vote.
    """
    texts = [vote(answer) for answer in answers]
    written = {text: answer for text, answer in zip(texts, answers, strict=True) if text and answer}
    labels: dict[str, str] = {}
    found: list[str] = []
    for text, _ in Counter(text for text in texts if text).most_common():
        same = (other for other in found[:COMPARED] if same_answer(written[text], written[other]))
        labels[text] = next(same, text)
        if labels[text] == text:
            found.append(text)
    return [labels[text] if text else None for text in texts]
