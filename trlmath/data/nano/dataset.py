"""The nano dataset: seeded problems with worked traces, train and eval disjoint by construction."""

from __future__ import annotations

import random
from typing import Literal

from trlmath.data.nano.mistakes import mistaken, slip
from trlmath.data.nano.task import FAMILIES, Item, make_item, split_of
from trlmath.errors import DataError, nearest
from trlmath.types import Problem

LEVEL_WEIGHTS = (1, 1, 1)
"""How often each level is drawn for the dataset."""

PATIENCE = 2000
"""So many draws in a row without a new problem mean that the chosen families are used up."""


ALL = ", ".join(FAMILIES)


class NanoDataset:
    """Short mathematics problems in nine families and three levels.

    A problem belongs to ``eval`` or ``train`` by the hash of its key (the problem without its wording),
    so the two never share a problem, whatever the seeds and sizes; within a split no key comes twice.

    Args:
        seed: which problems are drawn, and in which order.
        train_size: number of training problems.
        eval_size: number of held-out problems.
        families: which families to draw from, evenly; None for all (`trlmath.data.nano.task.FAMILIES`).
        wrong_traces: share of the training problems whose trace slips in its last step and states a wrong
            answer (the gold answer and the solution stay right), for studies of filtering.

    Raises:
        DataError: an unknown family, a size below 1, a share outside [0, 1], or (from `load`) an unknown
            split or more problems than the families hold.
    """

    def __init__(
        self,
        seed: int = 0,
        train_size: int = 4096,
        eval_size: int = 256,
        families: list[str] | None = None,
        wrong_traces: float = 0.0,
    ) -> None:
        for name, size in (("train_size", train_size), ("eval_size", eval_size)):
            if size < 1:
                raise DataError(f"nano dataset: {name} is {size}; give 1 or more.")
        if families is not None and not families:
            raise DataError(f"nano dataset: families is empty; leave it out for all, or name some of {ALL}.")
        for family in families or ():
            if family not in FAMILIES:
                raise DataError(
                    f"nano dataset: no family {family!r}.{nearest(family, FAMILIES)} Families: {ALL}."
                )
        if not 0 <= wrong_traces <= 1:
            raise DataError(f"nano dataset: wrong_traces is {wrong_traces}; give a share from 0 to 1.")
        self.seed = seed
        self.wrong_traces = wrong_traces
        self.sizes = {"train": train_size, "eval": eval_size}
        self.families = list(dict.fromkeys(families or FAMILIES))

    def load(self, split: Literal["train", "eval"]) -> list[Problem]:
        """Return the problems of a split; the same ones on every call."""
        if split not in self.sizes:
            raise DataError(
                f"nano dataset: no split {split!r}.{nearest(split, self.sizes)} Splits: train, eval."
            )
        rng = random.Random(f"nano {self.seed} {split}")
        size, misses = self.sizes[split], 0
        items: dict[str, Item] = {}
        while len(items) < size:
            item = make_item(rng, rng.choice(self.families), rng.choices((1, 2, 3), LEVEL_WEIGHTS)[0])
            if item.key in items or split_of(item.key) != split:
                misses += 1
                if misses > PATIENCE:
                    raise DataError(
                        f"nano dataset: {size} {split} problems asked for, but {', '.join(self.families)} "
                        f"gave only {len(items)} different ones. Lower {split}_size or add families."
                    )
                continue
            misses = 0
            items[item.key] = item
        share = self.wrong_traces if split == "train" else 0.0
        wrong = mistaken(list(items.values()), share, self.seed)
        return [to_problem(item, self.seed if item.key in wrong else None) for item in items.values()]


def to_problem(item: Item, slip_seed: int | None = None) -> Problem:
    """Turn an item into a Problem whose trace is a completion in the r1_zero format.

    With `slip_seed` the trace is a wrong one; the rest of the problem stays right.
    """
    steps, stated = (item.trace, item.answer) if slip_seed is None else slip(item, slip_seed)
    return Problem(
        question=item.question,
        answer=item.answer,
        solution=item.trace,
        trace=f" {steps} </think> <answer> {stated} </answer>",
        metadata={"family": item.family, "level": item.level},
    )
