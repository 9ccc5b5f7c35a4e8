"""The engine that a trainer is evaluated with while it trains: always the weights as they are now."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from transformers import Trainer

from trlmath.sampling.sampler import Sampler
from trlmath.training.engine import engine_dtype
from trlmath.training.weights import WeightBridge


class LiveEngine:
    """A trainer's generation engine, for trainers that do not roll out by themselves.

    Args:
        trainer: whose weights are generated from.
        make_sampler: builds (engine, reference) around it, see `engine.sampler_factory`.
        probe_ids: tokens of some prompt, to compare engine and trainer on.
        freshness: what a stale engine does: ``stop``, ``warn`` or ``off``.

    Attributes:
        difference: mean difference (nats) between engine and trainer at the last load; None without one.
        seconds: that the last load took.
    """

    def __init__(
        self,
        trainer: Trainer,
        make_sampler: Callable[[Any], tuple[Sampler, Sampler]],
        probe_ids: Sequence[int],
        freshness: str = "stop",
    ) -> None:
        self.sampler, reference = make_sampler(trainer)
        self.seconds = 0.0
        self._bridge: WeightBridge | None = None
        if not self.sampler.shares_weights:
            ids = list(probe_ids)[-64:]
            half = max(1, len(ids) // 2)
            self._bridge = WeightBridge(
                self.sampler,
                reference,
                trainer.model,
                trainer.accelerator,
                engine_dtype(trainer),
                (ids[:half], ids[half:] or ids[:1]),
                freshness,
            )

    @property
    def difference(self) -> float | None:
        return self._bridge.difference if self._bridge else None

    def numbers(self) -> dict[str, float]:
        """Metrics of the last load; none where the engine is the trainer's own module."""
        if self._bridge is None:
            return {}
        told: dict[str, float] = {
            "engine/weights_version": self.sampler.weights_version,
            "time/sync": self.seconds,
        }
        return told if self.difference is None else {"engine/freshness": self.difference, **told}

    def ready(self) -> Sampler:
        """Return the sampler, after loading the trainer's weights into it. Raises EngineError if stale."""
        if self._bridge:
            started = time.perf_counter()
            self._bridge.sync_weights()
            self.seconds = time.perf_counter() - started
        return self.sampler

    def close(self) -> None:
        """Free an engine that is not the trainer's own module."""
        if not self.sampler.shares_weights:
            self.sampler.close()
