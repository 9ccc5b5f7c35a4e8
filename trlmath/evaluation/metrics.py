"""pass@k, maj@k and quantiles of one problem's or one evaluation's samples; pure."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from itertools import combinations

# with more subsets than this, maj@k draws so many of them instead
SUBSETS = 200


def pass_at_k(right: int, n: int, k: int) -> float:
    """Chance that at least one of `k` of the `n` samples is right (Chen et al. 2021, arXiv:2107.03374).

    The unbiased estimator 1 - C(n - right, k) / C(n, k).

    Raises:
        ValueError: k is not between 1 and n.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@k needs 1 <= k <= n; got k={k}, n={n}")
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def majority_at_k(votes: Sequence[str | None], right: Sequence[bool], k: int, seed: int = 0) -> float:
    """Chance that the most frequent answer among `k` of the samples is right (Wang et al. 2022).

    A tie counts as the share of its winners that are right. Averaged over every subset of size `k`, or
    over `SUBSETS` drawn ones where there are more.

    Args:
        votes: one label a sample, the same for equal answers (`votes.votes`); None does not vote.
        right: whether each is right. Right answers vote as one, however they are written.
    """
    named = [
        None if v is None else ("right", "") if r else ("", v) for v, r in zip(votes, right, strict=True)
    ]
    n = len(named)
    if not 1 <= k <= n:
        raise ValueError(f"maj@k needs 1 <= k <= n; got k={k}, n={n}")
    if math.comb(n, k) <= SUBSETS:
        subsets = [list(chosen) for chosen in combinations(named, k)]
    else:
        draw = random.Random(seed)
        subsets = [draw.sample(named, k) for _ in range(SUBSETS)]
    return sum(_winner_right(chosen) for chosen in subsets) / len(subsets)


def _winner_right(votes: Sequence[tuple[str, str] | None]) -> float:
    counts = Counter(v for v in votes if v is not None)
    if not counts:
        return 0.0
    most = max(counts.values())
    winners = [v for v, count in counts.items() if count == most]
    return (("right", "") in winners) / len(winners)


def vote(extracted: str | None) -> str | None:
    """An extracted answer as a vote: blind to case, white space and dollar signs; None when empty."""
    if extracted is None:
        return None
    return "".join(extracted.split()).replace("$", "").lower() or None


def vote_sizes(n: int) -> list[int]:
    """The k for which maj@k is told: powers of two below n, and n."""
    return [2**i for i in range(n.bit_length()) if 2**i < n] + [n]


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile by linear interpolation; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)
