"""Confidence intervals of rates; pure."""

from __future__ import annotations

import math


def wilson(successes: float, trials: int, z: float = 1.959963984540054) -> tuple[float, float]:
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
