"""Which rows SFT takes in a step, and which of them go through a forward together."""

from __future__ import annotations

import random

from trlmath.training.sft_batches import StepSampler, pack


def some_lengths(count):
    rng = random.Random(0)
    return [rng.randrange(4, 100) for _ in range(count)]


def test_the_order_is_the_same_on_any_number_of_processes_and_new_each_epoch():
    lengths = some_lengths(23)

    def rows(processes, epoch=0, seed=0):
        samplers = [StepSampler(lengths, 5, seed, p, processes) for p in range(processes)]
        for sampler in samplers:
            sampler.set_epoch(epoch)
        steps = list(zip(*samplers, strict=True))
        return [sorted(row for own in step for row in own) for step in steps], steps

    one, _ = rows(1)
    assert sorted(row for step in one for row in step) == list(range(23))
    assert [len(step) for step in one] == [5, 5, 5, 5, 3]
    for processes in (2, 3, 4):
        several, steps = rows(processes)
        assert several == one
        assert max(len(own) for own in steps[0]) - min(len(own) for own in steps[0]) <= 1
    assert rows(1, epoch=1)[0] != one
    assert rows(1, seed=1)[0] != one
    assert rows(1)[0] == one
    assert len(StepSampler(lengths, 5, 0, drop_last=True)) == 4


def test_packing_fills_forwards_end_to_end():
    lengths = some_lengths(60)
    bins = pack(lengths, 128)
    assert sorted(row for rows in bins for row in rows) == list(range(60))
    assert all(sum(lengths[row] for row in rows) <= 128 for rows in bins)
    assert len(bins) <= 11 / 9 * sum(lengths) / 128 + 1
    assert pack([200, 10], 128) == [[0], [1]]
    assert pack([5, 7], None) == [[1, 0]]
