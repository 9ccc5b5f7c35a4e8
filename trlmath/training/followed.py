"""Whether an engine's scores follow the weights it is sent: finds a load that never happened, however small.

The difference between engine and trainer on a probe says nothing of an update that is smaller than its bound.
But an engine that has taken new weights answers otherwise, if only in the last bit; one that has not, answers
with the very bits of before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

# mean move of the trainer's scores (nats) that an engine cannot have missed: it is that of weights moved by
# 3e-7, while 1e-9 already changes an engine's scores in float32 and bfloat16 (vLLM on a CPU, nano)
MOVED = 1e-5
# syncs in a row after which an engine that stands still is stale: below float32 two roundings could differ
PATIENCE = {"float32": 1}
_PATIENCE = 3


class Fingerprint:
    """Of the tensors that pass by on their way to an engine, in the engine's dtype.

    Args:
        dtype: the engine's, e.g. ``bfloat16``.
    """

    def __init__(self, dtype: str) -> None:
        self.value = 0
        self._dtype = getattr(torch, dtype, None)

    def of(self, named_tensors: Iterator[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """Pass the tensors on; afterwards `value` is theirs."""
        value = 0
        for name, tensor in named_tensors:
            told = tensor.detach()
            if isinstance(self._dtype, torch.dtype) and told.is_floating_point():
                told = told.to(self._dtype)
            value = hash((value, name, *_sums(told)))
            yield name, tensor
        self.value = value


def _sums(tensor: torch.Tensor) -> tuple[int, int]:
    # eight bytes at a time: 0.13 s for 1 GB on one core, where elements take 2.5 s
    flat = tensor.contiguous().flatten().view(torch.uint8)
    whole = flat.numel() // 8 * 8
    head = flat[:whole] if flat.storage_offset() % 8 == 0 else flat[:whole].clone()
    return int(head.view(torch.int64).sum()), int(flat[whole:].sum())


@dataclass
class _Before:
    sent: int  # fingerprint of the weights last sent
    ours: torch.Tensor  # the trainer's scores when the engine's last changed
    theirs: torch.Tensor
    missed: int = 0  # syncs since, which should have changed them


class Followed:
    """What each engine answered at the syncs before.

    Args:
        dtype: in which the engine computes.
    """

    def __init__(self, dtype: str) -> None:
        self._patience = PATIENCE.get(dtype, _PATIENCE)
        self._before: dict[int, _Before] = {}

    def stands_still(self, place: int, sent: int, ours: torch.Tensor, theirs: torch.Tensor) -> float | None:
        """How far (mean, nats) the trainer has moved while this engine stood still; None while it follows.

        Args:
            place: of the engine among several.
            sent: fingerprint of what was sent to it.
            ours: the trainer's log-probabilities of the probe, (tokens,).
            theirs: the engine's, (tokens,).
        """
        before = self._before.get(place)
        if before is None or not torch.equal(before.theirs, theirs):
            self._before[place] = _Before(sent, ours, theirs)
            return None
        moved = (ours - before.ours).abs()
        # what is sent must have changed too, or there was nothing to follow: a learning rate of 0, or weights
        # that round to the same; and most tokens must have moved, where one rounding may move a few
        if sent != before.sent and moved.mean() > MOVED and (moved > 0).float().mean() > 0.5:
            before.missed += 1
        before.sent = sent
        return float(moved.mean()) if before.missed >= self._patience else None
