"""Confidence intervals of rates, means and differences; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Z95 = 1.959963984540054
RESAMPLES = 2000


def wilson(successes: float, trials: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval of a binomial rate (Wilson 1927, JASA 22:209).

    Args:
        successes: how many of `trials` came out 1.
        trials: independent trials; 0 gives (0, 1).
        z: quantile of the normal distribution; the default is for 95 %.

    Returns:
        (low, high), within [0, 1].
    """
    if trials == 0:
        return 0.0, 1.0
    rate = successes / trials
    spread = z * z / trials
    centre = (rate + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(rate * (1 - rate) / trials + spread / (4 * trials))
    return max(0.0, centre - half), min(1.0, centre + half)


def bootstrap(values: Sequence[float], resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap of the mean over problems (Efron 1979).

    The completions of one problem are not independent, problems are: whole problems are drawn again.
    The normal quantiles are widened by Student's factor sqrt(n / (n - 1)), since the plain percentile
    interval is too narrow for few problems.

    Args:
        values: [problems], each problem's own mean.
        resamples: drawn with `seed`, so that the same rows give the same interval.

    Returns:
        (low, high); a single value gives (value, value), none (0, 1).
    """
    data = np.asarray(values, dtype=float)
    if data.size == 0:
        return 0.0, 1.0
    if data.size == 1:
        return float(data[0]), float(data[0])
    draw = np.random.default_rng(seed)
    means = np.empty(resamples)
    step = max(1, 2_000_000 // data.size)  # keeps the index matrix small
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        means[start : start + rows] = data[draw.integers(0, data.size, (rows, data.size))].mean(1)
    centre = data.mean()
    means = centre + (means - centre) * math.sqrt(data.size / (data.size - 1))
    low, high = np.quantile(means, [0.025, 0.975])
    return max(float(low), float(data.min())), min(float(high), float(data.max()))


def newcombe_paired(both: int, first: int, second: int, neither: int) -> tuple[float, float]:
    """95 % interval of the difference of two paired rates, second minus first.

    Newcombe 1998 (Statistics in Medicine 17:2635), method 10: Wilson intervals of both rates, joined with
    their correlation.

    Args:
        both, first, second, neither: problems right in both, only in the first, only in the second,
            in none.
    """
    total = both + first + second + neither
    if total == 0:
        return -1.0, 1.0
    p1, p2 = (both + first) / total, (both + second) / total
    low1, high1 = wilson(both + first, total)
    low2, high2 = wilson(both + second, total)
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    phi = 0.0
    if margins:
        cross = float(both * neither - first * second)
        cross = max(cross - total / 2, 0.0) if cross > 0 else cross  # Newcombe's continuity correction
        phi = cross / math.sqrt(margins)
    down = (p2 - low2) ** 2 - 2 * phi * (p2 - low2) * (high1 - p1) + (high1 - p1) ** 2
    up = (high2 - p2) ** 2 - 2 * phi * (high2 - p2) * (p1 - low1) + (p1 - low1) ** 2
    difference = p2 - p1
    return difference - math.sqrt(max(down, 0.0)), difference + math.sqrt(max(up, 0.0))


def sign_test(better: int, worse: int) -> float:
    """Two-sided exact binomial test that a changed problem is as likely better as worse.

    With one sample a problem this is the exact McNemar test (McNemar 1947).

    Returns:
        the p-value; 1 when nothing changed.
    """
    total = better + worse
    tail = sum(math.comb(total, i) for i in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / 2**total)
