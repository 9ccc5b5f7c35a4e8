"""Named checks on a run's numbers: what has gone wrong, and the usual cause; pure, knows no trainer.

The remedies are those of CS336's assignment 5: a lower learning rate, larger batches, a tighter clip,
regularisation; stop early, average weights, validate more often, adjust the temperature.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean

from trlmath.training.oscillation import Oscillation
from trlmath.training.validation import EVALUATIONS, Validation

Numbers = Mapping[str, float | None]

# what counts as gone wrong, see oscillation.py and validation.py too; docs/reliability.md has this table
RATIO_RANGE = (0.5, 2.0)  # mean importance ratio between engine and trainer
CLIPPED_SHARE = 0.9  # of the tokens, in as many steps in a row:
CLIPPED_STEPS = 3
ENTROPY_LEFT = 0.05  # of the first window's
LENGTH_LEFT = 0.2  # of the first window's
FLAT_ITERATIONS = 2  # of expert iteration, in a row

# what is looked at, beside validation's metric; a continued run takes these from the lines it has written
NAMES = (
    "train/iteration",
    "train/loss",
    "train/grad_norm",
    "train/reward",
    "train/entropy",
    "train/sampled_entropy",
    "train/frac_reward_zero_std",
    "train/completions/mean_length",
    "train/completions/clipped_ratio",
    "train/clip_ratio/region_mean",
    "train/rows_with_advantage",
    "engine/importance_sampling_ratio/mean",
)


@dataclass(frozen=True)
class Finding:
    """One check that struck.

    Attributes:
        check: its name, as in the recipe's `checks`.
        said: what was seen, in a sentence.
        hint: the usual causes and what helps.
    """

    check: str
    said: str
    hint: str

    def __str__(self) -> str:
        return f"{self.check}: {self.said}. {self.hint} (checks.{self.check}: off | warn | stop)"


class Health:
    """Follows a run's metrics, a line of ``metrics.jsonl`` at a time.

    What expert iteration samples is compared with its first iteration. Its SFTs' losses are one series, in
    which the distance from one SFT to the next does not count.

    Args:
        window: steps that a trend is judged by.
        validation: what an evaluation is judged by.
    """

    def __init__(self, window: int = 20, validation: Validation | None = None) -> None:
        self.window, self.validation = window, validation or Validation()
        self._loss = Oscillation(window)
        self._steps: deque[Numbers] = deque(maxlen=2 * window)
        self._first: dict[str, list[float]] = {}
        self._sampled: list[Numbers] = []  # one of each iteration

    def step(self, numbers: Numbers) -> list[Finding]:
        """Take the numbers of one step, or of an evaluation, and return what is wrong now."""
        if not any(name.startswith("train/") for name in numbers):
            return self._after_evaluation(numbers)
        if "train/iteration" in numbers and "train/completions/mean_length" in numbers:
            return self._after_sampling(numbers)
        if "train/loss" not in numbers:
            return []
        self._steps.append(numbers)
        for name in ("train/entropy", "train/completions/mean_length"):
            value = numbers.get(name)
            seen = self._first.setdefault(name, [])
            if value is not None and math.isfinite(value) and len(seen) < self.window:
                seen.append(value)
        checks: tuple[Callable[[], Finding | None], ...] = (
            self._nan,
            self._exploding_ratio,
            self._entropy_collapse,
            self._flat_reward,
            self._oscillating_loss,
            self._length_collapse,
            self._all_truncated,
        )
        return [found for check in checks if (found := check()) is not None]

    # -- one check each ---------------------------------------------------------------------------

    def _nan(self) -> Finding | None:
        now = self._steps[-1]
        bad = [
            name
            for name in ("train/loss", "train/grad_norm")
            if name in now and (now[name] is None or not math.isfinite(now[name] or 0.0))
        ]
        if not bad:
            return None
        return Finding(
            "nan",
            f"{' and '.join(bad)} is not a number",
            "Usual causes: a learning rate too high, float16, no gradient clipping. Lower "
            "trainer.learning_rate, set trainer.max_grad_norm: 1.0, use bfloat16 or float32.",
        )

    def _exploding_ratio(self) -> Finding | None:
        ratio = self._steps[-1].get("engine/importance_sampling_ratio/mean")
        if ratio is not None and not RATIO_RANGE[0] <= ratio <= RATIO_RANGE[1]:
            return Finding(
                "exploding_ratio",
                f"the engine's and the trainer's probabilities differ by a factor of {ratio:.2f} on average",
                "Rollouts do not come from the policy that is trained: look at engine/freshness, and at the "
                "dtype and attention of both.",
            )
        shares = self._last("train/clip_ratio/region_mean", CLIPPED_STEPS)
        # a row without an advantage is never clipped: of those that can be
        rows = self._last("train/rows_with_advantage", CLIPPED_STEPS) or [1.0] * len(shares)
        if shares and min(s / max(r, 1e-9) for s, r in zip(shares, rows, strict=True)) > CLIPPED_SHARE:
            return Finding(
                "exploding_ratio",
                f"over {CLIPPED_SHARE:.0%} of the tokens were clipped in {CLIPPED_STEPS} steps",
                "The policy has run away from its rollouts: fewer updates or epochs per rollout, a lower "
                "trainer.learning_rate.",
            )
        return None

    def _entropy_collapse(self) -> Finding | None:
        left = self._left_of_first("train/entropy") if "train/reward" in self._steps[-1] else None
        return _entropy(left, "a tighter clip, a KL term (trainer.beta), or stop here")

    def _flat_reward(self) -> Finding | None:
        shares = self._last("train/frac_reward_zero_std", self.window)
        if not shares or min(shares) < 1.0:
            return None
        rewards = self._last("train/reward", self.window) or [float("nan")]
        return _flat(f"{self.window} steps", fmean(rewards))

    def _oscillating_loss(self) -> Finding | None:
        if "train/reward" in self._steps[-1]:  # GRPO's loss swings around 0 by its nature
            return None
        seen = self._loss.add(self._steps[-1].get("train/loss"))
        if seen is None:
            return None
        before = "" if seen.ranged is None else f"; before, it stayed within {seen.ranged:.3g}"
        return Finding(
            "oscillating_loss",
            f"the loss went up and down {seen.turns} times in {self._loss.window} steps, by over "
            f"{seen.size:.3g} each{before}",
            "Lower trainer.learning_rate, a larger batch.size, a longer warm-up, a tighter clip "
            "(trainer.max_grad_norm: 1.0), regularise (trainer.weight_decay).",
        )

    def _length_collapse(self) -> Finding | None:
        return _length(self._left_of_first("train/completions/mean_length"))

    def _all_truncated(self) -> Finding | None:
        shares = self._last("train/completions/clipped_ratio", max(1, self.window // 2))
        return _truncated(f"{len(shares)} steps") if shares and min(shares) >= 1.0 else None

    def _after_sampling(self, numbers: Numbers) -> list[Finding]:
        """Expert iteration: against the first iteration; and the SFT to come begins a series of its own."""
        self._steps.clear()
        self._loss.join()
        self._sampled.append(numbers)
        spread = [row.get("train/frac_reward_zero_std") for row in self._sampled[-FLAT_ITERATIONS:]]
        flat = len(spread) == FLAT_ITERATIONS and all(share == 1.0 for share in spread)
        truncated = numbers.get("train/completions/clipped_ratio") == 1.0
        found = (
            _entropy(self._share_of_first("train/sampled_entropy"), "fewer epochs, or stop here"),
            _length(self._share_of_first("train/completions/mean_length")),
            _truncated("an iteration") if truncated else None,
            _flat(f"{FLAT_ITERATIONS} iterations", numbers.get("train/reward") or 0.0) if flat else None,
        )
        return [finding for finding in found if finding is not None]

    def _after_evaluation(self, numbers: Numbers) -> list[Finding]:
        fallen = self.validation.add(numbers)
        if fallen is None:
            return []
        return [
            Finding(
                "falling_validation",
                f"{fallen.name} was at {fallen.best:.3g} and is at {fallen.last:.3g}, worse than noise "
                f"explains for {EVALUATIONS} evaluations",
                "Overfitting, or a policy that drifts: stop early (early_stop; GRPO: run.keep_best), average "
                "weights (averaging), a lower trainer.learning_rate, evaluate more often, adjust "
                "sampling.temperature, regularise (trainer.weight_decay; GRPO: trainer.beta).",
            )
        ]

    # -- windows ----------------------------------------------------------------------------------

    def _last(self, name: str, count: int) -> list[float]:
        """The last `count` values; empty when there are fewer, or one is missing or not a number."""
        if len(self._steps) < count:
            return []
        values = [row.get(name) for row in list(self._steps)[-count:]]
        told = [float(v) for v in values if v is not None and math.isfinite(v)]
        return told if len(told) == count else []

    def _share_of_first(self, name: str) -> float | None:
        """The last iteration's value over the first one's; None when there is none."""
        first, last = self._sampled[0].get(name), self._sampled[-1].get(name)
        return None if not first or last is None else last / first

    def _left_of_first(self, name: str) -> float | None:
        """Mean of the last window over the mean of the first one; None until both are there.

        Windows are of steps that tell the number: one that computes nothing has no entropy.
        """
        now = self._steps[-1].get(name)
        told = [v for row in self._steps if (v := row.get(name)) is not None and math.isfinite(v)]
        first, last = self._first.get(name, []), told[-self.window :]
        if now is None or min(len(first), len(last)) < self.window or fmean(first) == 0:
            return None
        return fmean(last) / fmean(first)


# -- what is said of both kinds of run ----------------------------------------------------------------


def _entropy(left: float | None, further: str) -> Finding | None:
    if left is None or left >= ENTROPY_LEFT:
        return None
    return Finding(
        "entropy_collapse",
        f"the policy's entropy is {left:.1%} of what it was at the start",
        f"It has stopped exploring: a lower trainer.learning_rate, a higher sampling.temperature, {further}.",
    )


def _length(left: float | None) -> Finding | None:
    if left is None or left >= LENGTH_LEFT:
        return None
    return Finding(
        "length_collapse",
        f"completions are {left:.0%} as long as at the start",
        "The reward may be had without reasoning: read rollouts, look at length terms of reward and "
        "loss_type, set sampling.min_tokens.",
    )


def _truncated(where: str) -> Finding:
    return Finding(
        "all_truncated",
        f"every completion of {where} was cut off at sampling.max_tokens",
        "Raise sampling.max_tokens; if completions repeat themselves, SFT first; check sampling.stop.",
    )


def _flat(where: str, reward: float) -> Finding:
    return Finding(
        "flat_reward",
        f"no group had any spread in {where} (mean reward {reward:.2f}), so nothing is learned",
        "All wrong: easier problems, SFT first, a format reward, a look at the grader. All right: "
        "harder problems.",
    )


CHECKS = (
    "nan",
    "exploding_ratio",
    "entropy_collapse",
    "flat_reward",
    "oscillating_loss",
    "falling_validation",
    "length_collapse",
    "all_truncated",
)
