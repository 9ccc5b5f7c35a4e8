"""Duplicates and overlap between sets of questions: exact, and by runs of 13 words; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

WORDS = 13
_WORD = re.compile(r"\w+|[^\w\s]")


def normal_form(question: str) -> str:
    """The question blind to case and white space."""
    return " ".join(question.split()).casefold()


def repeated(questions: Sequence[str]) -> list[list[int]]:
    """Groups of positions that hold the same question, in order of their first."""
    places: dict[str, list[int]] = {}
    for index, question in enumerate(questions):
        places.setdefault(normal_form(question), []).append(index)
    return [group for group in places.values() if len(group) > 1]


def exact_overlap(ours: Sequence[str], theirs: Iterable[str]) -> list[int]:
    """Positions in `ours` of questions that stand in `theirs` too."""
    known = {normal_form(question) for question in theirs}
    return [index for index, question in enumerate(ours) if normal_form(question) in known]


def ngrams(question: str, size: int = WORDS) -> set[int]:
    """Hashes of every run of `size` words (numbers and signs are words); a shorter question is one run."""
    words = _WORD.findall(question.casefold())
    last = max(len(words) - size, 0)
    return {hash(tuple(words[i : i + size])) for i in range(last + 1)} if words else set()


def ngram_overlap(ours: Sequence[str], theirs: Sequence[str], size: int = WORDS) -> Mapping[int, int]:
    """Position in `ours` -> position in `theirs` of a question that shares a run of `size` words.

    The 13-gram rule for contamination of GPT-3 (Brown et al. 2020, arXiv:2005.14165, appendix C). Questions
    shorter than that count only when all their words are the same.
    """
    known: dict[int, int] = {}
    for index, question in enumerate(theirs):
        for gram in ngrams(question, size):
            known.setdefault(gram, index)
    found = {}
    for index, question in enumerate(ours):
        shared = [known[gram] for gram in ngrams(question, size) if gram in known]
        if shared:
            found[index] = min(shared)
    return found
