"""The order of prompts: of each pass its own, and the same wherever a run was continued.

TRL's sampler draws each pass's permutation from a generator that goes on; a run continued in its second
pass would take the first pass's order again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from trl.trainer.utils import RepeatSampler

if TYPE_CHECKING:
    from trl import GRPOTrainer
else:
    GRPOTrainer = object


class PassSampler(RepeatSampler):
    """TRL's `RepeatSampler`, with the permutation decided by the seed and the number of the pass.

    Args:
        finished: returns the passes over the data that are finished.
        others: as for TRL's.
    """

    def __init__(self, finished: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._finished = finished

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            # what TRL's own generator comes to after so many passes
            self.generator = torch.Generator()
            self.generator.manual_seed(self.seed)
            for _ in range(self._finished()):
                torch.randperm(self.num_samples, generator=self.generator)
        return super().__iter__()


class OrderedPrompts(GRPOTrainer):
    """Mixed in before TRL's `GRPOTrainer`: its prompts come in an order that resuming does not change."""

    def _get_train_sampler(self, dataset: Any = None) -> PassSampler:
        plain = super()._get_train_sampler(dataset)
        return PassSampler(
            self._finished_passes,
            data_source=plain.data_source,
            mini_repeat_count=plain.mini_repeat_count,
            batch_size=plain.batch_size,
            repeat_count=plain.repeat_count,
            shuffle=plain.shuffle,
            seed=plain.seed,
        )

    def _finished_passes(self) -> int:
        # transformers sets `epoch` to exactly 1.0, 2.0, ... at the end of a pass
        return int(self.state.epoch or 0)
