"""Grade saved completions again with another reward, and find where two graders disagree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from trlmath.evaluation.categories import classified
from trlmath.evaluation.run import rollout_columns
from trlmath.evaluation.sample import PROMPT_TOO_LONG, UNCATEGORISED, Sample
from trlmath.rewards import RewardCaller
from trlmath.types import Problem, Rollout

BATCH = 256


@dataclass(frozen=True)
class Regraded:
    """Old and new rows, pair by pair."""

    pairs: tuple[tuple[Sample, Sample], ...]

    @property
    def new(self) -> list[Sample]:
        """The rows with the new grades."""
        return [new for _, new in self.pairs]

    @property
    def disagreements(self) -> list[tuple[Sample, Sample]]:
        """Pairs whose reward differs, or a part that both graders tell."""
        return [(old, new) for old, new in self.pairs if _differ(old, new)]

    def table(self) -> dict[tuple[str, str], int]:
        """(old category, new category) -> completions, most frequent first."""
        return dict(Counter((old.category, new.category) for old, new in self.pairs).most_common())


def regrade(
    samples: Sequence[Sample], reward: RewardCaller, progress: Callable[..., None] | None = None
) -> Regraded:
    """Grade `samples` with `reward`; nothing is generated, and what never was (`PROMPT_TOO_LONG`) stays.

    Raises:
        PluginError: the reward fails on them, e.g. because it reads token ids, which are not saved.
    """
    pairs: list[tuple[Sample, Sample]] = []
    for start in range(0, len(samples), BATCH):
        whole = samples[start : start + BATCH]
        batch = [s for s in whole if s.category != PROMPT_TOO_LONG]
        regraded = iter(_batch(batch, reward) if batch else ())
        pairs += [(s, s if s.category == PROMPT_TOO_LONG else next(regraded)) for s in whole]
        if progress:
            progress(len(whole))
    return Regraded(tuple(pairs))


def _batch(batch: Sequence[Sample], reward: RewardCaller) -> Iterator[Sample]:
    problems = [Problem(s.question, s.gold, s.solution, metadata=s.metadata) for s in batch]
    grades = reward(
        # a rollout's own go before a column of the same name
        **rollout_columns(problems)
        | {
            "prompts": [s.prompt for s in batch],
            "completions": [s.completion for s in batch],
            "finish_reasons": [s.finish_reason or None for s in batch],
        }
    )
    for old, given in zip(batch, grades, strict=True):
        reason = "length" if old.finish_reason == "length" else "stop"
        rollout = classified(Rollout(old.completion, (), None, reason, given))  # type: ignore[arg-type]
        grade = rollout.grade or given
        new = replace(
            old,
            reward=grade.reward,
            parts=dict(grade.parts),
            category=grade.category or UNCATEGORISED,
            reason=grade.reason,
            extracted=None if grade.span is None else old.completion[slice(*grade.span)],
        )
        yield new


def _differ(old: Sample, new: Sample) -> bool:
    if (old.reward is None) != (new.reward is None):
        return True
    if old.reward is not None and new.reward is not None and abs(old.reward - new.reward) > 1e-9:
        return True
    return any(old.parts[name] != new.parts[name] for name in old.parts if name in new.parts)
