"""Properties of prompts and datasets."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

from trlmath.conformance.core import Broken, prop, shown
from trlmath.conformance.subject import Subject
from trlmath.data.prompts import Prompt
from trlmath.types import Problem

ROWS = 200


@prop("question kept", "renders every question as it stands, braces and all", "prompt")
def question_kept(subject: Subject) -> None:
    prompt = subject.make()
    if not isinstance(prompt, Prompt):
        raise Broken(f"it is a {type(prompt).__name__}, not a trlmath.Prompt")
    for question in ("What is {x} + {y}?", r"\frac{1}{2}", "", "数 {question}", "a\nb"):
        text = prompt.render(question)
        if question not in text or "{question}" in text.replace(question, ""):
            raise Broken(f"{question!r} becomes {shown(text)}")


@prop("stop string", "its stop string is null or text, and does not begin the completion", "prompt")
def stop_string(subject: Subject) -> None:
    prompt = subject.make()
    if prompt.stop is not None and (not isinstance(prompt.stop, str) or not prompt.stop.strip()):
        raise Broken(f"stop is {prompt.stop!r}")


@prop("rows", "yields problems with a question, in both splits, and metadata that JSON can hold", "dataset")
def rows(subject: Subject) -> None:
    for split in ("train", "eval"):
        found = _rows(subject, split)
        if not found:
            raise Broken(f"load({split!r}) yields nothing")
        for number, problem in enumerate(found):
            if not isinstance(problem, Problem) or not problem.question.strip():
                raise Broken(f"row {number} of {split!r} is {shown(problem)}")
            try:
                json.dumps(dict(problem.metadata))
            except (TypeError, ValueError) as error:
                raise Broken(
                    f"row {number} of {split!r}: metadata {shown(problem.metadata)}: {error}"
                ) from error


@prop("disjoint", "training and held-out problems share none", "dataset")
def disjoint(subject: Subject) -> None:
    shared = {p.question for p in _rows(subject, "train")} & {p.question for p in _rows(subject, "eval")}
    if shared:
        raise Broken(f"in both splits: {shown(sorted(shared)[0])}")


@prop("same columns", "every row has the same metadata", "dataset")
def same_columns(subject: Subject) -> None:
    found = _rows(subject, "train")
    names = set(found[0].metadata)
    for number, problem in enumerate(found):
        if set(problem.metadata) != names:
            raise Broken(f"row 0 has {sorted(names)}, row {number} has {sorted(problem.metadata)}")


def _rows(subject: Subject, split: str) -> list[Any]:
    return list(islice(subject.make().load(split), ROWS))
