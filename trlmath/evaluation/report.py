"""EvaluationReport: counts, rates and intervals of one evaluation, computed from its rows; pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from trlmath.evaluation.intervals import bootstrap, wilson
from trlmath.evaluation.metrics import majority_at_k, pass_at_k, quantile, vote_sizes
from trlmath.evaluation.sample import PROMPT_TOO_LONG, Sample
from trlmath.evaluation.votes import votes

QUANTILES = (0.1, 0.5, 0.9, 0.99)
WILSON = "95 % Wilson interval (one sample a problem)"
BOOTSTRAP = "95 % bootstrap interval over problems (Wilson's where all problems agree or are 0 or 1)"
ENTROPY = (
    "mean of -log p over the sampled tokens, in nats a token: an unbiased estimate of the entropy of the "
    "distribution sampled from, along its own completions"
)


@dataclass(frozen=True)
class Rate:
    """A mean over completions (each problem weighs the same) with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Lengths:
    """Completion lengths in tokens: how many completions, their mean, and quantiles (``p50``, ...)."""

    completions: int
    mean: float
    quantiles: Mapping[str, float]


@dataclass(frozen=True)
class Slice:
    """The rates of the problems that share one value of a dataset field."""

    problems: int
    completions: int
    rates: Mapping[str, Rate]


@dataclass(frozen=True)
class EvaluationReport:
    """What one evaluation found.

    Attributes:
        name: of its sampling setting, e.g. ``sampled`` or ``greedy``.
        problems, completions: how many of each.
        rates: each part of the reward (``format``, ``answer``, ``both``, ...); a part that could not be
            told counts as not reached, so all rates are shares of the same completions.
        categories: completions of each category; they add up to `completions`.
        mean_tokens: mean completion length; NaN where lengths were not saved.
        truncated: share of completions cut off at ``max_tokens``; NaN where that was not saved.
        unscorable: completions whose gold cannot be read.
        tokens_per_second: generation speed; 0 when nothing was generated.
        interval: which interval the rates have.
        outcomes: ``both``, ``format_only``, ``answer_only``, ``neither`` and ``unscored``: as CS336
            counts; they add up to `completions`.
        mean_reward: over scorable completions, each problem weighing the same; None when there is none.
        pass_at_k: part -> one Rate for each k from 1: at least one of k samples has it.
        majority_at_k: k -> the most frequent answer of k samples is right.
        lengths: by correctness: ``right``, ``wrong``, ``all``.
        entropy, entropy_estimator: None where the engine gave no log-probabilities or decoding is greedy.
        by: field -> value -> Slice.
    """

    name: str
    problems: int
    completions: int
    rates: Mapping[str, Rate]
    categories: Mapping[str, int]
    mean_tokens: float
    truncated: float
    unscorable: int
    tokens_per_second: float
    interval: str = WILSON
    outcomes: Mapping[str, int] = field(default_factory=dict)
    mean_reward: Rate | None = None
    pass_at_k: Mapping[str, Sequence[Rate]] = field(default_factory=dict)
    majority_at_k: Mapping[int, Rate] = field(default_factory=dict)
    lengths: Mapping[str, Lengths] = field(default_factory=dict)
    entropy: float | None = None
    entropy_estimator: str = ENTROPY
    by: Mapping[str, Mapping[str, Slice]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON: NaN becomes None."""
        return _finite(asdict(self))


def summarise(
    name: str,
    samples: Sequence[Sample],
    seconds: float = 0.0,
    by: Sequence[str] = (),
    greedy: bool = False,
    generated: int | None = None,
) -> EvaluationReport:
    """Count the rows of one setting.

    Args:
        seconds: spent on generating `generated` tokens (default: all the rows' tokens).
        by: dataset fields to break the rates down by.
        greedy: no entropy is told, since greedy decoding has none.
    """
    problems = _by_problem(samples)
    tokens = sum(s.tokens for s in samples)
    total = max(len(samples), 1)
    parts = sorted({part for s in samples for part in s.parts})
    # completions that TRL saved have neither tokens nor a finish reason: no number is better than 0
    measured = not samples or any(s.finish_reason for s in samples)
    scored = [[s for s in group if s.reward is not None] for group in problems]
    logprobs = [s.logprob for s in samples]
    told = tokens > 0 and not greedy and None not in logprobs
    entropy = -sum(lp for lp in logprobs if lp is not None) / tokens if told else None
    return EvaluationReport(
        name=name,
        problems=len(problems),
        completions=len(samples),
        rates={part: _rate(problems, _part(part)) for part in parts},
        categories=dict(Counter(s.category for s in samples).most_common()),
        mean_tokens=tokens / total if measured else math.nan,
        truncated=sum(s.finish_reason == "length" for s in samples) / total if measured else math.nan,
        unscorable=sum(s.reward is None for s in samples),
        tokens_per_second=(tokens if generated is None else generated) / seconds if seconds > 0 else 0.0,
        interval=BOOTSTRAP if any(len(group) > 1 for group in problems) else WILSON,
        outcomes=_outcomes(samples),
        mean_reward=_mean_reward([group for group in scored if group]),
        pass_at_k=_pass_at_k(problems, [p for p in ("both", "answer") if p in parts] or ["reward"]),
        majority_at_k=_majority(problems),
        lengths=_lengths(samples) if measured else {},
        entropy=entropy,
        by={field: _slices(problems, field, parts) for field in by},
    )


def is_right(sample: Sample) -> bool:
    """Whether a completion counts as correct: part ``both`` where told, else a reward of 1 or more."""
    if "both" in sample.parts:
        return sample.parts["both"] == 1.0
    return sample.reward is not None and sample.reward >= 1.0


def _by_problem(samples: Sequence[Sample]) -> list[list[Sample]]:
    groups: dict[int, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.problem, []).append(sample)
    return list(groups.values())


def _part(name: str) -> Callable[[Sample], float]:
    return lambda sample: sample.parts.get(name) or 0.0


def _rate(problems: Sequence[Sequence[Sample]], number: Callable[[Sample], float]) -> Rate:
    return _interval([[number(s) for s in group] for group in problems])


def _interval(problems: Sequence[Sequence[float]]) -> Rate:
    """Mean over problems of each one's mean; the interval that `EvaluationReport.interval` names."""
    means = [sum(values) / len(values) for values in problems]
    value = math.fsum(means) / max(len(means), 1)
    if all(v in (0.0, 1.0) for v in means):
        return Rate(value, *wilson(sum(means), len(means)))
    return Rate(value, *bootstrap(means))


def _mean_reward(problems: Sequence[Sequence[Sample]]) -> Rate | None:
    return _rate(problems, lambda s: s.reward or 0.0) if problems else None


def _outcomes(samples: Sequence[Sample]) -> dict[str, int]:
    counts = dict.fromkeys(("both", "format_only", "answer_only", "neither", "unscored"), 0)
    for sample in samples:
        form, answer = sample.parts.get("format"), sample.parts.get("answer")
        if sample.category == PROMPT_TOO_LONG:
            counts["neither"] += 1
        elif sample.reward is None or (form is None and answer is None):
            counts["unscored"] += 1
        elif form and answer:
            counts["both"] += 1
        else:
            counts["format_only" if form else "answer_only" if answer else "neither"] += 1
    return counts


def _pass_at_k(problems: Sequence[Sequence[Sample]], parts: Sequence[str]) -> dict[str, list[Rate]]:
    n = min((len(group) for group in problems), default=0)
    found: dict[str, list[Rate]] = {}
    for part in parts:
        right = [
            (sum(is_right(s) if part == "reward" else s.parts.get(part) == 1.0 for s in group), len(group))
            for group in problems
        ]
        found[part] = [_interval([[pass_at_k(c, m, k)] for c, m in right]) for k in range(1, n + 1)]
    return found


def _majority(problems: Sequence[Sequence[Sample]]) -> dict[int, Rate]:
    if not any(s.extracted is not None for group in problems for s in group):
        return {}
    n = min(len(group) for group in problems)
    cast = [
        (votes([s.extracted for s in group]), [s.parts.get("answer") == 1.0 for s in group])
        for group in problems
    ]
    return {
        k: _interval([[majority_at_k(v, right, k, seed=i)] for i, (v, right) in enumerate(cast)])
        for k in vote_sizes(n)
    }


def _lengths(samples: Sequence[Sample]) -> dict[str, Lengths]:
    chosen = {
        "right": [s.tokens for s in samples if is_right(s)],
        "wrong": [s.tokens for s in samples if not is_right(s)],
        "all": [s.tokens for s in samples],
    }
    return {
        name: Lengths(
            len(tokens),
            sum(tokens) / len(tokens) if tokens else math.nan,
            {f"p{100 * q:g}": quantile(tokens, q) for q in QUANTILES},
        )
        for name, tokens in chosen.items()
    }


def _slices(problems: Sequence[Sequence[Sample]], field: str, parts: Sequence[str]) -> dict[str, Slice]:
    groups: dict[str, list[Sequence[Sample]]] = {}
    for group in problems:
        groups.setdefault(str(group[0].metadata.get(field, "(none)")), []).append(group)
    return {
        value: Slice(len(chosen), sum(map(len, chosen)), {part: _rate(chosen, _part(part)) for part in parts})
        for value, chosen in sorted(groups.items())
    }


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
