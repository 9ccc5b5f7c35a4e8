"""Sample: one row of ``samples.jsonl``, the facts from which every number of an evaluation is computed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trlmath.errors import DataError
from trlmath.types import Grade, Group, Problem

UNCATEGORISED = "uncategorised"
PROMPT_TOO_LONG = "prompt_too_long"


@dataclass(frozen=True, slots=True)
class Sample:
    """One graded completion.

    Attributes:
        setting: the sampling setting it was drawn under, e.g. ``sampled`` or ``before/greedy``.
        problem: number of the problem in the evaluated set, from 0.
        sample: number of the completion among the problem's, from 0.
        key: short hash of question and gold: the same problem in another evaluation has the same.
        question, gold, prompt, completion: texts.
        tokens: completion tokens, end-of-text included.
        finish_reason: the engine's own word, ``stop`` or ``length``.
        logprob: sum of the tokens' log-probabilities in nats under the distribution they were drawn
            from; None when the engine gave none.
        seed: what the engine was seeded with for the batch that this completion was drawn in.
        reward, parts, category, reason: the grade.
        extracted: the graded answer as it stands in the completion; None when none was found.
        solution, metadata: the problem's other columns, for `by`, rewards and regrading.
    """

    setting: str
    problem: int
    sample: int
    key: str
    question: str
    gold: str | None
    prompt: str
    completion: str
    tokens: int
    finish_reason: str
    reward: float | None
    parts: Mapping[str, float | None]
    category: str
    reason: str = ""
    extracted: str | None = None
    logprob: float | None = None
    seed: int | None = None
    solution: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cell(self) -> tuple[str, int, int]:
        """What makes a row of one file unique."""
        return self.setting, self.problem, self.sample

    def to_row(self) -> dict[str, Any]:
        """As plain data for one line of JSON."""
        return {name: _plain(getattr(self, name)) for name in self.__slots__}

    @staticmethod
    def from_row(row: Mapping[str, Any], where: str) -> Sample:
        """Read a row back.

        Raises:
            DataError: a field is missing; `where` names file and line.
        """
        required = ("problem", "sample", "question", "completion")
        missing = [name for name in required if name not in row]
        if missing:
            raise DataError(
                f"{where} has no {missing[0]!r}: it is no row of an evaluation. Give the samples.jsonl that "
                "`trlmath evaluate` or a training run wrote."
            )
        known = {name: row[name] for name in Sample.__slots__ if name in row}
        defaults: dict[str, Any] = {
            "setting": "",
            "key": problem_key(row["question"], row.get("gold")),
            "gold": None,
            "prompt": "",
            "tokens": 0,
            "finish_reason": "stop",
            "reward": None,
            "parts": {},
            "category": UNCATEGORISED,
        }
        return Sample(**{**defaults, **known})


def problem_key(question: str, gold: str | None) -> str:
    """Twelve hex digits that name a problem in any file."""
    return hashlib.sha256(f"{question}\0{gold}".encode("utf-8", "surrogatepass")).hexdigest()[:12]


def samples_of(group: Group, problem: Problem, setting: str, number: int, seed: int | None) -> list[Sample]:
    """The rows of one graded group."""
    rows = []
    for index, rollout in enumerate(group.rollouts):
        grade = rollout.grade or Grade(None)
        rows.append(
            Sample(
                setting=setting,
                problem=number,
                sample=index,
                key=problem_key(problem.question, problem.answer),
                question=problem.question,
                gold=problem.answer,
                prompt=group.prompt,
                completion=rollout.text,
                tokens=len(rollout.token_ids),
                finish_reason=rollout.finish_reason,
                reward=grade.reward,
                parts=dict(grade.parts),
                category=grade.category or UNCATEGORISED,
                reason=grade.reason,
                extracted=None if grade.span is None else rollout.text[slice(*grade.span)],
                logprob=None if rollout.logprobs is None else sum(rollout.logprobs),
                seed=seed,
                solution=problem.solution,
                metadata=problem.metadata,
            )
        )
    return rows


def _plain(value: Any) -> Any:
    """Mappings as dicts; what JSON cannot hold, as text."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
