"""Confidence intervals of rates, means and differences; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

Z95 = 1.959963984540054
RESAMPLES = 2000
# Student's t at 97.5 % for 1, 2, ... degrees of freedom
T975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip


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


def bootstrap(
    values: Sequence[float],
    resamples: int = RESAMPLES,
    seed: int = 0,
    bounds: tuple[float, float] = (0.0, 1.0),
) -> tuple[float, float]:
    """95 % percentile bootstrap of the mean over problems (Efron 1979).

    The completions of one problem are not independent, problems are: whole problems are drawn again.
    The plain percentile interval is too narrow for few problems: it is widened by sqrt(n / (n - 1)) and by
    the ratio of Student's quantile to the normal one.

    Args:
        values: [problems], each problem's own mean.
        resamples: drawn with `seed`, so that the same rows give the same interval.
        bounds: what a problem's value may be; the interval stays within. Where `values` all agree resampling
            has no spread to show: as many further problems as the upper end of Wilson's interval for none
            of n are put at either bound.

    Returns:
        (low, high); of no value, the bounds.
    """
    data = np.asarray(values, dtype=float)
    if data.size == 0:
        return bounds
    if data.min() == data.max():
        value = float(data[0])
        others = wilson(0, data.size)[1]
        return (
            value + others * (min(bounds[0], value) - value),
            value + others * (max(bounds[1], value) - value),
        )
    draw = np.random.default_rng(seed)
    means = np.empty(resamples)
    step = max(1, 2_000_000 // data.size)  # keeps the index matrix small
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        means[start : start + rows] = data[draw.integers(0, data.size, (rows, data.size))].mean(1)
    centre = data.mean()
    student_factor = T975[data.size - 2] / Z95 if data.size - 1 <= len(T975) else 1.0
    means = centre + (means - centre) * math.sqrt(data.size / (data.size - 1)) * student_factor
    low, high = np.quantile(means, [0.025, 0.975])
    least, most = min(bounds[0], float(data.min())), max(bounds[1], float(data.max()))
    return max(float(low), least), min(float(high), most)


def student(values: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the mean of independent runs, one number each (Student 1908, Biometrika 6:1).

    Args:
        values: [runs], e.g. the rate that each seed reached. Beyond 31 runs the interval is up to 4 % too
            wide, since the quantile for 31 is taken.

    Returns:
        (low, high); a single run tells nothing of the spread and gives (-inf, inf).
    """
    if len(values) < 2:
        return -math.inf, math.inf
    mean = math.fsum(values) / len(values)
    variance = math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1)
    freedom = len(values) - 1
    half = T975[min(freedom, len(T975)) - 1] * math.sqrt(variance / len(values))
    return mean - half, mean + half


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
