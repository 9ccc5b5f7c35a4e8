"""Weights from the trainer to the engine, proven fresh after each load."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from trl.distributed import DistributedBackend
from trl.generation.vllm_generation import VLLMGeneration

from trlmath.errors import EngineError, say
from trlmath.sampling.sampler import Sampler
from trlmath.training.followed import Fingerprint, Followed

# mean absolute difference of log-probabilities (nats) allowed between engine and trainer, by dtype
FRESHNESS_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.15, "float16": 0.05}


class _ParameterWalk(VLLMGeneration):
    """TRL's walk over parameters (FSDP, DeepSpeed, merged LoRA adapters) without its engine."""

    def __init__(self, model: Any, accelerator: Any) -> None:
        self.model, self.accelerator = model, accelerator
        self._dist = DistributedBackend(accelerator)

    def walk(self) -> Iterator[tuple[str, torch.Tensor]]:
        return self._iter_named_params()


class WeightBridge:
    """Loads the trainer's weights into the engine and compares both on a probe.

    TRL calls `sync_weights` before generating whenever a step was taken; it knows this object as its
    ``vllm_generation``.

    Args:
        sampler: the engine.
        reference: scores with the trainer's own module.
        model: the trainer's module (wrapped or not).
        accelerator: the trainer's accelerator.
        dtype: in which the engine computes, e.g. ``bfloat16``.
        probe: (prompt ids, completion ids) to compare log-probabilities on.
        policy: ``stop`` raises when the engine is stale, ``warn`` says it once and goes on, ``off`` does not
            probe.
    """

    _warns = True  # nothing was said yet, and this process is the one to say it

    def __init__(
        self,
        sampler: Sampler,
        reference: Sampler,
        model: Any,
        accelerator: Any,
        dtype: str,
        probe: tuple[list[int], list[int]],
        policy: str = "stop",
    ) -> None:
        self.sampler, self.reference, self.probe, self.policy = sampler, reference, probe, policy
        self.difference: float | None = None
        self.took: Callable[[float], None] = lambda started: None  # told after each sync
        self._walk = _ParameterWalk(model, accelerator)
        self._warns = accelerator.is_main_process
        self._dtype = dtype
        self._ours: torch.Tensor | None = None  # the trainer's log-probabilities of the probe, last synced
        self._sent, self._followed = Fingerprint(dtype), Followed(dtype)
        if policy != "off" and hasattr(sampler, "on_renewed"):
            sampler.on_renewed = self._compare

    def sync_weights(self) -> None:
        """Load the current weights.

        Raises:
            EngineError: the engine does not generate from them.
        """
        started = time.perf_counter()
        walk = self._walk.walk()
        self.sampler.load_weights(walk if self.policy == "off" else self._sent.of(walk))
        if self.policy != "off":
            self._prove()
        self.took(started)

    def _prove(self) -> None:
        prompt, completion = self.probe
        self._ours = torch.tensor(self.reference.score([prompt], [completion])[0])
        self._compare()

    def _compare(self) -> None:
        # apart from `_prove`: one process alone may come here, where scoring ours would need all of them
        assert self._ours is not None, "nothing was synced yet"
        ours, (prompt, completion) = self._ours, self.probe
        everywhere = getattr(self.sampler, "score_everywhere", None)
        told = everywhere or (lambda p, c: [self.sampler.score(p, c)])
        theirs = [torch.tensor(scores[0]) for scores in told([prompt], [completion])]
        self.difference = float(torch.stack([(ours - t).abs().mean() for t in theirs]).max())  # NaN stays NaN
        allowed = FRESHNESS_TOLERANCE.get(self._dtype, 0.15)
        still = [self._followed.stands_still(i, self._sent.value, ours, t) for i, t in enumerate(theirs)]
        unmoved = max((moved for moved in still if moved is not None), default=None)
        if not self.difference <= allowed:  # NaN comes here too: it is stale
            self._tell(
                f"on a probe of {len(completion)} tokens the log-probabilities differ by "
                f"{self.difference:.4f} nats on average, {allowed} is allowed for {self._dtype}"
            )
        elif unmoved is not None:
            self._tell(
                f"on a probe of {len(completion)} tokens its log-probabilities are those of before, to the "
                f"bit, while the trainer's have moved by {unmoved:.1e} nats: what was sent was not taken"
            )

    def _tell(self, why: str) -> None:
        stale = (
            f"The engine does not generate from the trainer's weights: {why}. Rollouts would come from an "
            "old policy. "
        )
        if self.policy == "stop":
            raise EngineError(
                f"{stale}Use sampling.engine=transformers, or, if you know the difference is the engine's "
                "rounding, sampling.freshness=warn."
            )
        if self._warns:
            self._warns = False
            say(f"engine   {stale}The run goes on (sampling.freshness=warn).")
