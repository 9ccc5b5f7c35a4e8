"""The built-in filters of traces: right answers only, length, repetitions, so many for each problem."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from trlmath.data.overlap import normal_form
from trlmath.errors import RecipeError, nearest
from trlmath.types import Decision, Drop, Grade, Keep, Problem


@dataclass
class CorrectAnswer:
    """Keep traces whose answer the grader accepts; `part` ``both``: only those that keep the format as well.

    `style` is how the answer is found in the trace (see docs/grading.md). A rollout that was graded keeps its
    grade (metadata ``grade``).
    """

    part: Literal["answer", "both"] = "answer"
    style: str = "r1_zero"
    moment: ClassVar[Literal["trace"]] = "trace"

    def __post_init__(self) -> None:
        from trlmath.grading import STYLES

        if self.style not in STYLES:
            raise RecipeError(
                f"correct_answer: no style {self.style!r}.{nearest(self.style, STYLES)} Styles: "
                f"{', '.join(STYLES)}."
            )

    def __call__(self, item: Problem) -> Decision:
        return self.select([item])[0]

    def select(self, items: Sequence[Problem]) -> list[Decision]:
        """Decide about all traces at once, so that the grader's workers share what is slow."""
        from trlmath.grading import grade_responses

        decisions: dict[int, Decision] = {}
        asked = []
        for i, item in enumerate(items):
            grade = item.metadata.get("grade")
            if isinstance(grade, Grade):
                decisions[i] = self._decide(grade)
            elif item.trace is None:
                decisions[i] = Drop("no trace")
            elif item.answer is None or not item.answer.strip():
                decisions[i] = Drop("no gold answer")
            else:
                asked.append(i)
        traces, golds = [items[i].trace or "" for i in asked], [items[i].answer for i in asked]
        grades = grade_responses(traces, golds, self.style)
        decisions |= {i: self._decide(grade) for i, grade in zip(asked, grades, strict=True)}
        return [decisions[i] for i in range(len(items))]

    def _decide(self, grade: Grade) -> Decision:
        value = grade.parts.get(self.part)
        if value is None:
            return Drop(f"{self.part} cannot be told ({grade.category or 'not graded'})")
        if value >= 1:
            return Keep()
        wrong = "format not kept" if grade.parts.get("answer") == 1 else "wrong answer"
        return Drop(f"{wrong}: {grade.category}" if grade.category else wrong)


@dataclass
class TraceLength:
    """Drop traces of more than `max` tokens or fewer than `min`, the end-of-text token not counted."""

    max: int
    min: int = 0
    moment: ClassVar[Literal["trace"]] = "trace"
    conformance: ClassVar = {"options": {"max": 10}}

    def __post_init__(self) -> None:
        if not 0 <= self.min <= self.max:
            raise RecipeError(
                f"trace_length needs 0 <= min <= max, in tokens; got min {self.min}, max {self.max}."
            )

    def bind(self, tokenizer: Any) -> None:
        """Receive the model's tokenizer, before the first trace."""
        self._tokenizer = tokenizer

    def __call__(self, item: Problem) -> Decision:
        if item.trace is None:
            return Drop("no trace")
        length = len(self._tokenizer(text=item.trace, add_special_tokens=False)["input_ids"])
        if length > self.max:
            return Drop(f"trace over {self.max} tokens")
        return Drop(f"trace under {self.min} tokens") if length < self.min else Keep()


@dataclass
class DuplicateTrace:
    """Drop a trace that the same problem had before, blind to white space."""

    moment: ClassVar[Literal["trace"]] = "trace"
    _seen: set[str] = field(default_factory=set, init=False, repr=False)

    def begin(self, iteration: int) -> None:
        """Forget: in expert iteration each selection is judged by itself."""
        self._seen.clear()

    def __call__(self, item: Problem) -> Decision:
        key = _hash(normal_form(item.question), " ".join((item.trace or "").split()))
        if key in self._seen:
            return Drop("duplicate trace")
        self._seen.add(key)
        return Keep()

    def state_dict(self) -> dict[str, Any]:
        """The hashes of the traces seen."""
        return {"seen": sorted(self._seen)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._seen = set(state["seen"])


@dataclass
class PerProblem:
    """Keep the first `max` traces of each problem that reach this filter, and drop its others."""

    max: int
    moment: ClassVar[Literal["trace"]] = "trace"
    conformance: ClassVar = {"options": {"max": 2}}
    _kept: Counter[str] = field(default_factory=Counter, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.max < 1:
            raise RecipeError(f"per_problem needs max >= 1, got {self.max}.")

    def begin(self, iteration: int) -> None:
        """Count anew: in expert iteration `max` is of each selection."""
        self._kept.clear()

    def __call__(self, item: Problem) -> Decision:
        key = _hash(normal_form(item.question), item.answer or "")
        if self._kept[key] >= self.max:
            return Drop(f"over {self.max} traces of one problem")
        self._kept[key] += 1
        return Keep()

    def state_dict(self) -> dict[str, Any]:
        """How many each problem has, by hash."""
        return {"kept": dict(sorted(self._kept.items()))}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self._kept = Counter(state["kept"])


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
