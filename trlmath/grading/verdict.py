"""The grader's result for one answer: equal or not, which rule decided, and what was tried."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One rule that was tried, in the order tried.

    Attributes:
        rule: the rule's name.
        outcome: ``equal``, ``different`` or ``undecided``.
        seconds: wall-clock time the rule took.
    """

    rule: str
    outcome: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a prediction states the gold answer.

    Attributes:
        equal: True or False; None when it cannot be told (see `reason`): the gold is unreadable,
            or the grader ran out of its time or memory limit.
        rule: name of the rule that decided, e.g. ``exact_text``, ``rational``, ``timeout``.
        prediction: normal form of the prediction that was compared.
        gold: normal form of the gold answer.
        seconds: wall-clock time spent on this pair (near 0 for a cached repeat).
        reason: a short sentence for people.
        steps: the rules tried in order; filled only when asked to explain.
    """

    equal: bool | None
    rule: str
    prediction: str
    gold: str
    seconds: float = 0.0
    reason: str = ""
    steps: tuple[Step, ...] = ()
