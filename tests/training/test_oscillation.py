"""A loss that oscillates is told from one that jumps, rises, falls, or is merely noisy."""

from __future__ import annotations

import math
import random

import pytest

from trlmath.training.oscillation import Oscillation, turns


def first(losses, window=20):
    """The step at which it is seen, and how."""
    series = Oscillation(window)
    return next(((i, seen) for i, loss in enumerate(losses) if (seen := series.add(loss))), (None, None))


def noise(size, seed=0):
    chance = random.Random(seed)
    return lambda: chance.gauss(0, size)


calm = noise(0.01)
OSCILLATING = {
    "constant, then up and down": [0.5] * 20 + [0.1, 0.9] * 30,
    "from the start": [0.1, 0.9] * 30,
    "growing about the same mean": [0.5 + (-1) ** i * 0.01 * i for i in range(80)],
    "slower than each step": [0.5 + calm() + (i >= 40) * 0.2 * math.sin(i * math.pi / 4) for i in range(80)],
    "five times the noise": [0.5 + calm() * (5 if i >= 40 else 1) for i in range(80)],
    "while it falls": [2 * 0.97**i + (i >= 40) * (-1) ** i * 0.8 for i in range(80)],
}
OTHERS = {
    "rises": [0.5 * 1.05**i for i in range(100)],
    "jumps": [0.5] * 40 + [5.0] * 40,
    "two spikes": [0.5 + calm() + (i in (50, 57)) for i in range(80)],
    "falls": [2 * 0.95**i + calm() for i in range(100)],
    "constant": [0.5] * 80,
    "constant but for rounding": [0.5 + (i >= 40) * (-1) ** i * 1e-9 for i in range(80)],
}


@pytest.mark.parametrize("name", OSCILLATING)
def test_what_oscillates_is_seen(name):
    step, seen = first(OSCILLATING[name])
    assert step is not None
    assert seen.turns >= 6


@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_is_left_alone(name):
    assert first(OTHERS[name]) == (None, None)


@pytest.mark.parametrize("kind", ["gauss", "correlated", "heavy", "skewed"])
def test_noise_alone_strikes_in_fewer_than_one_of_1000_windows(kind):
    chance, last, strikes, windows = random.Random(1), 0.0, 0, 10_000
    series = Oscillation(20)
    for _ in range(windows):
        last = 0.7 * last + chance.gauss(0, 0.1)
        heavy = chance.gauss(0, 0.1) / math.sqrt(sum(chance.gauss(0, 1) ** 2 for _ in range(3)) / 3)
        noisy = {"gauss": 1 + chance.gauss(0, 0.1), "correlated": 1 + last, "heavy": 1 + heavy}
        strikes += series.add(noisy.get(kind, chance.expovariate(1.0))) is not None
    assert strikes < windows / 1000


def test_short_trainings_are_one_series_without_the_jumps_between_them():
    series, seen = Oscillation(20), []
    for number in range(12):
        series.join()
        # each begins high on its new examples and falls: up and down, but not while it trains
        seen += [series.add(1 + 2 * (number % 2) - i / 10 + 0.01 * (-1) ** i) for i in range(5)]
    assert not any(seen)
    for _ in range(12):
        series.join()
        seen += [series.add(1 + (-1) ** i * 0.8) for i in range(5)]
    assert any(seen)


def test_a_loss_that_is_no_number_begins_anew():
    series = Oscillation(20)
    for loss in [0.1, 0.9] * 9 + [None] + [0.1, 0.9] * 9 + [math.nan] + [0.1, 0.9] * 9:
        assert series.add(loss) is None


def test_turns_are_counted_by_their_size():
    assert turns([1, -1, 1, -1], 1.0) == 4
    assert turns([1, -1, 1, -1], 1.1) == 0
    assert turns([0.5, 0.5, -0.5, -0.5], 1.0) == 2
    assert turns([1, 1, 1, 1], 1.0) == 1, "one way is one turn"
