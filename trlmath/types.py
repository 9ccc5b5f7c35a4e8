"""The nouns of trlmath, one per concept: frozen, documented, free of torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One question of a dataset.

    Attributes:
        question: the text that replaces ``{question}`` in a prompt template.
        answer: the gold answer, or None when the dataset has none.
        solution: a worked solution, when the dataset has one.
        trace: a candidate training completion (SFT, expert iteration), when there is one.
        metadata: every other column of the row, for rewards, filters and reports.
        prompt: what the trace answers, when the row brings it itself: text taken as it is, or the chat
            messages before the answer. None: the recipe's prompt template with the question in it.
    """

    question: str
    answer: str | None = None
    solution: str | None = None
    trace: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    prompt: str | tuple[Mapping[str, Any], ...] | None = None


@dataclass(frozen=True, slots=True)
class Grade:
    """What a grader says about one completion.

    Attributes:
        reward: the number trained on; None when the completion cannot be scored (unreadable gold).
        parts: named parts, each in [0, 1] as a rule: ``format``, ``answer``, ``both``, ...
            A part is None when it cannot be told.
        category: one word for what happened, e.g. ``both``, ``format_only``, ``wrong_answer``.
        reason: a short sentence for people.
        span: (start, end) of the graded answer in the completion, in characters; None if none.
    """

    reward: float | None
    parts: Mapping[str, float | None] = field(default_factory=dict)
    category: str = ""
    reason: str = ""
    span: tuple[int, int] | None = None

    @property
    def format(self) -> float | None:
        """1.0 when the completion keeps the asked format."""
        return self.parts.get("format")

    @property
    def answer(self) -> float | None:
        """1.0 when the final answer is right, whatever the format."""
        return self.parts.get("answer")

    @property
    def both(self) -> float | None:
        """1.0 when format and answer are right: the reward of CS336."""
        return self.parts.get("both")


@dataclass(frozen=True, slots=True)
class Rollout:
    """One completion sampled from the policy.

    Attributes:
        text: the completion, stop string included, special tokens excluded.
        token_ids: completion tokens, end-of-text included when it was generated.
        logprobs: log-probability in nats of each token under the distribution it was drawn from
            (after temperature and truncation; greedy: the model's own), same length as `token_ids`.
        finish_reason: ``stop`` (end-of-text or a stop string) or ``length`` (cut off).
        grade: set once the rollout was graded.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    finish_reason: FinishReason = "stop"
    grade: Grade | None = None

    def steps(self, prompt_ids: tuple[int, ...] = ()) -> Iterator[Step]:
        """Read the rollout token by token, as a trajectory: the reward comes with the last action only."""
        last = len(self.token_ids) - 1
        reward = (self.grade.reward or 0.0) if self.grade else 0.0
        for t, token in enumerate(self.token_ids):
            yield Step((*prompt_ids, *self.token_ids[:t]), token, reward if t == last else 0.0)


@dataclass(frozen=True, slots=True)
class Step:
    """One token of a rollout.

    Attributes:
        state: token ids the policy saw: the prompt and the completion so far.
        action: the token it chose.
        reward: 0 until the last token, which gets the rollout's (0 too when it could not be scored).
    """

    state: tuple[int, ...]
    action: int
    reward: float


@dataclass(frozen=True, slots=True)
class Group:
    """All rollouts of one prompt.

    Attributes:
        prompt: the text given to the model.
        prompt_ids: its tokens.
        rollouts: `n` of them, in the order sampled.
        problem: the problem the prompt was made from, when known.
    """

    prompt: str
    prompt_ids: tuple[int, ...]
    rollouts: tuple[Rollout, ...]
    problem: Problem | None = None


@dataclass(frozen=True, slots=True)
class Keep:
    """A filter's yes."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A filter's no, with the reason that the run's ledger records (short, countable)."""

    reason: str


Decision = Keep | Drop
