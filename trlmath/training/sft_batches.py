"""Which examples make an SFT step, and how they are cut into forwards; pure, knows no trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Sampler

from trlmath.data.examples import Example
from trlmath.training.microbatches import plan

IGNORED = -100


class StepSampler(Sampler[list[int]]):
    """One process's rows of each optimizer step, in an order that the seed and the epoch decide alone.

    The rows of a step are the same on any number of processes, which take them turn by turn from the
    longest on, so that each has about as many tokens.

    Args:
        lengths: tokens of each example.
        size: examples a step, over all processes; the last step of an epoch has what is left.
        seed: of the shuffles.
        process, processes: whose rows.
        drop_last: leave an incomplete last step out.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        size: int,
        seed: int,
        process: int = 0,
        processes: int = 1,
        drop_last: bool = False,
    ) -> None:
        self.lengths, self.size, self.seed, self.drop_last = lengths, size, seed, drop_last
        self.process, self.processes = process, processes
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Shuffle as in epoch number `epoch` from now on."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Steps an epoch."""
        return len(self.lengths) // self.size if self.drop_last else -(-len(self.lengths) // self.size)

    def steps(self) -> list[list[int]]:
        """Rows of each step of this epoch, over all processes, in the order shuffled."""
        generator = torch.Generator().manual_seed((self.seed << 20) + self.epoch)
        order = torch.randperm(len(self.lengths), generator=generator).tolist()
        return [order[i * self.size : (i + 1) * self.size] for i in range(len(self))]

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this process's rows of each step; none when a short last step has too few."""
        for rows in self.steps():
            longest_first = sorted(rows, key=lambda row: (-self.lengths[row], row))
            yield longest_first[self.process :: self.processes]


class StepLoader(DataLoader):
    """A DataLoader whose every item is one step; passes the epoch on to its sampler."""

    def set_epoch(self, epoch: int) -> None:
        """Called by transformers as an epoch begins."""
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]


def pack(lengths: Sequence[int], budget: int | None) -> list[list[int]]:
    """Partition rows into forwards of at most `budget` tokens end to end; a longer row goes alone.

    First fit, longest rows first (Johnson 1973: at most 11/9 of the fewest possible, and a little).
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    bins: list[list[int]] = []
    room: list[float] = []
    for row in order:
        fitting = (i for i, left in enumerate(room) if lengths[row] <= left)
        index = next(fitting, None)
        if index is None:
            bins.append([row])
            room.append((float("inf") if budget is None else budget) - lengths[row])
        else:
            bins[index].append(row)
            room[index] -= lengths[row]
    return bins


class StepCollator:
    """Turns one process's examples of a step into its forwards: runs in a loader's worker.

    Args:
        collate: TRL's collator: dicts with ``input_ids`` and ``labels`` in, tensors out.
        budget: most tokens of a forward, padding included; None for one forward.
        packing: rows lie end to end (`collate` must then be padding-free).
    """

    def __init__(
        self, collate: Callable[[list[dict[str, Any]]], dict[str, Any]], budget: int | None, packing: bool
    ) -> None:
        self.collate, self.budget, self.packing = collate, budget, packing

    def __call__(self, examples: Sequence[Example]) -> dict[str, Any]:
        """Return ``{"parts": [...], "supervised": [n, ...], "tokens": n}``; counts are of this process."""
        rows = [as_row(example) for example in examples]
        lengths = [len(row["input_ids"]) for row in rows]
        chosen = pack(lengths, self.budget) if self.packing else plan([0] * len(rows), lengths, self.budget)
        parts = [self.collate([rows[i] for i in chunk]) for chunk in chosen]
        return {
            "parts": parts,
            "supervised": [supervised(part) for part in parts],
            "tokens": sum(lengths),
        }

    def nothing(self) -> dict[str, Any]:
        """A forward that counts for nothing, for a process that has fewer than the others."""
        return self.collate([{"input_ids": [0, 0], "labels": [IGNORED, IGNORED]}])


def as_row(example: Example) -> dict[str, list[int]]:
    """The row of `example` as TRL's collators take it: the prompt's tokens are not trained on."""
    return {
        "input_ids": [*example.prompt_ids, *example.response_ids],
        "labels": [IGNORED] * len(example.prompt_ids) + list(example.response_ids),
    }


def supervised(part: Mapping[str, Any]) -> int:
    """Tokens of a forward that its loss is taken on (a sequence's first token is predicted from nothing)."""
    return int((part["labels"][..., 1:] != IGNORED).sum())
