"""A dataset looked over before it is trained on: golds, duplicates, overlap with held-out data, lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from trlmath.data.overlap import exact_overlap, ngram_overlap, repeated
from trlmath.errors import DataError
from trlmath.types import Problem

# a number that hardly any gold is
PROBE = "-123456.789"
QUANTILES = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class BadGold:
    """A gold that can never be rewarded."""

    index: int
    gold: str | None
    reason: str


@dataclass(frozen=True)
class Audit:
    """What was found.

    Attributes:
        rows: of the dataset.
        missing: positions of rows without a gold.
        unreadable: golds that the grader cannot read.
        unequal: golds that the grader reads and does not find equal to themselves.
        text_only: golds that are no expression to the grader, so that only the same text matches: right
            for a word such as ``Tuesday``, a loss for broken LaTeX.
        duplicates: groups of positions with the same question, blind to case and white space.
        conflicting: those of `duplicates` whose golds differ.
        overlap_exact: positions of questions that stand in the held-out set.
        overlap_ngram: position -> position of a held-out question that shares 13 words in a row.
        lengths: what -> quantile -> number; characters always, tokens under a tokenizer.
        too_long: positions whose prompt has more than `max_prompt` tokens.
    """

    rows: int
    missing: tuple[int, ...]
    unreadable: tuple[BadGold, ...]
    unequal: tuple[BadGold, ...]
    text_only: tuple[BadGold, ...]
    duplicates: tuple[tuple[int, ...], ...]
    conflicting: tuple[tuple[int, ...], ...]
    overlap_exact: tuple[int, ...] | None = None
    overlap_ngram: dict[int, int] | None = None
    lengths: dict[str, dict[str, float]] = field(default_factory=dict)
    max_prompt: int | None = None
    too_long: tuple[int, ...] = ()

    @property
    def ungradable(self) -> int:
        """Rows whose completions can never be rewarded."""
        return len(self.missing) + len(self.unreadable) + len(self.unequal)

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return asdict(self)


def audit(
    problems: Sequence[Problem],
    held_out: Sequence[Problem] | None = None,
    count_tokens: Callable[[Sequence[str]], list[int]] | None = None,
    render: Callable[[str], str] | None = None,
    max_prompt: int | None = None,
) -> Audit:
    """Look `problems` over.

    Args:
        held_out: what must not be among them.
        count_tokens: texts -> tokens of each, for lengths under a tokenizer.
        render: question -> prompt.
        max_prompt: tokens a prompt may have.
    """
    questions = [p.question for p in problems]
    missing, unreadable, unequal, text_only = check_golds(problems)
    groups = repeated(questions)
    lengths = {"question, characters": _quantiles([len(q) for q in questions])}
    too_long: list[int] = []
    if count_tokens is not None:
        prompts = count_tokens([render(q) if render else q for q in questions])
        lengths["prompt, tokens"] = _quantiles(prompts)
        solutions = [p.trace or p.solution for p in problems]
        written = [s for s in solutions if s]
        if written:
            lengths["solution, tokens"] = _quantiles(count_tokens(written))
        if max_prompt is not None:
            too_long = [i for i, length in enumerate(prompts) if length > max_prompt]
    others = None if held_out is None else [p.question for p in held_out]
    return Audit(
        rows=len(problems),
        missing=tuple(missing),
        unreadable=tuple(unreadable),
        unequal=tuple(unequal),
        text_only=tuple(text_only),
        duplicates=tuple(map(tuple, groups)),
        conflicting=tuple(tuple(g) for g in groups if len({_gold(problems[i]) for i in g}) > 1),
        overlap_exact=None if others is None else tuple(exact_overlap(questions, others)),
        overlap_ngram=None if others is None else dict(ngram_overlap(questions, others)),
        lengths=lengths,
        max_prompt=max_prompt,
        too_long=tuple(too_long),
    )


def check_golds(
    problems: Sequence[Problem],
) -> tuple[list[int], list[BadGold], list[BadGold], list[BadGold]]:
    """Return (missing, unreadable, unequal to themselves, comparable as text only)."""
    from trlmath.grading import grade_answers

    there = [i for i, p in enumerate(problems) if _gold(p)]
    missing = [i for i, p in enumerate(problems) if not _gold(p)]
    golds = [str(problems[i].answer) for i in there]
    verdicts = grade_answers(golds, golds)
    bad = [
        (verdict.equal, BadGold(i, problems[i].answer, verdict.reason or verdict.rule))
        for i, verdict in zip(there, verdicts, strict=True)
        if not verdict.equal
    ]
    # only a different prediction shows whether a gold is more than text to the grader
    against_probe = grade_answers([PROBE] * len(golds), golds)
    text_only = [
        BadGold(i, problems[i].answer, verdict.reason)
        for i, verdict in zip(there, against_probe, strict=True)
        if verdict.rule == "different_text"
    ]
    unreadable = [b for equal, b in bad if equal is None]
    return missing, unreadable, [b for equal, b in bad if equal is not None], text_only


def check_golds_readable(problems: Sequence[Problem], name: str, allowed: float) -> None:
    """Raise DataError when the grader cannot use more than the share `allowed` of the golds.

    Args:
        problems: those trained on, filters applied.
        name: of the dataset.
        allowed: `data.unreadable_golds`; 1 allows all.
    """
    if allowed >= 1 or not problems:
        return
    missing, unreadable, unequal, _ = check_golds(problems)
    bad = len(missing) + len(unreadable) + len(unequal)
    if bad > allowed * len(problems):
        first = (unreadable + unequal)[0] if unreadable + unequal else BadGold(missing[0], None, "missing")
        raise DataError(
            f"the grader cannot read {bad} of {len(problems)} golds of {name!r} "
            f"({100 * bad / len(problems):.1f} %; allowed: {100 * allowed:g} %), so that their rollouts "
            f"could never be rewarded. First: row {first.index}, {first.gold!r}: {first.reason}. "
            "See `trlmath data check`; drop them with the filter gradable_gold, or allow more with "
            "data.unreadable_golds."
        )


def _gold(problem: Problem) -> str:
    return (problem.answer or "").strip()


def _quantiles(values: Sequence[int]) -> dict[str, float]:
    ordered = sorted(values)
    names = {0.0: "min", 1.0: "max"}
    return {
        names.get(q, f"p{100 * q:g}"): float(ordered[round(q * (len(ordered) - 1))]) if ordered else 0.0
        for q in QUANTILES
    }
