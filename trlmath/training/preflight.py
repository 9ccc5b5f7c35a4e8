"""A worst-case step before the first one: what would run out of memory at step 140 does so at step 0.

The last token of a full batch of completions is decoded, and one micro-batch, as wide as the budget lets it
be, goes forward and backward, while the optimizer's state and the step's other gradients are held in place.
Nothing of it stays: weights, optimizer, random numbers, metrics and gradients are what they were.
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from accelerate.utils import DistributedType
from transformers import Trainer, TrainerCallback

from trlmath.errors import TrainingError
from trlmath.recipe import Recipe
from trlmath.training.memory import GiveBack
from trlmath.training.out_of_memory import first_line, generation_knobs, is_out_of_memory, update_knobs
from trlmath.training.update_memory import state_bytes
from trlmath.training.widest import FullGeneration, Widest

# their weights and gradients are gathered and cut in ways that no_sync changes
NOT_TRIED = (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM)
_PROBE = 2**14  # elements: 8-bit optimizers keep smaller tensors in full


class Preflight(TrainerCallback):
    """Tries the widest generation and micro-batch as training begins, once.

    Args:
        trainer: whose forward, backward and optimizer are tried.
        widest: makes the micro-batch.
        recipe, algorithm: to name the knobs.
        tell: shows a line.
        generation: makes the generation, if this process generates while it trains.

    Raises:
        TrainingError: from the callback: it does not fit; says what was tried and which knob to turn.
    """

    def __init__(
        self,
        trainer: Any,
        widest: Callable[[], Widest],
        recipe: Recipe,
        algorithm: str,
        tell: Callable[[str], None],
        generation: Callable[[], FullGeneration | None] = lambda: None,
    ) -> None:
        self.trainer, self.widest, self.recipe, self.algorithm = trainer, widest, recipe, algorithm
        self.tell, self.generation, self.done = tell, generation, False

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The model is wrapped and on its device, the optimizer is there."""
        if self.done or self.trainer.accelerator.distributed_type in NOT_TRIED:
            return
        self.done, started = True, time.perf_counter()
        with untouched(self.trainer):
            widest, generation, held = self.widest(), self.generation(), list[torch.Tensor]()
            try:
                with self._saying(lambda error: self._said(widest, held, error)):
                    held += optimizer_state(self.trainer)
                if generation:
                    with self._saying(lambda error: self._said_of(generation, held, error)):
                        generation.try_it()
                with self._saying(lambda error: self._said(widest, held, error)):
                    self._update(widest)
            finally:
                held.clear()
                for parameter in self._trained():
                    parameter.grad = None
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        GiveBack().on_step_end(args, state, control)
        self.tell(
            f"preflight a worst-case step fits: {_told(generation)}{widest.rows} rows, {widest.tokens:,} "
            f"tokens in one forward, {time.perf_counter() - started:.1f} s"
        )

    def _update(self, widest: Widest) -> None:
        if widest.several:
            for parameter in self._trained():
                parameter.grad = torch.zeros_like(parameter).fill_(0)
        model = self.trainer.model_wrapped
        with self.trainer.accelerator.no_sync(model):
            # transformers' own step: forward, loss, backward
            Trainer.training_step(self.trainer, model, widest.inputs, widest.items)

    @contextmanager
    def _saying(self, said: Callable[[BaseException], str]) -> Iterator[None]:
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise TrainingError(said(error)) from error

    def _trained(self) -> Iterator[torch.nn.Parameter]:
        return (p for p in self.trainer.model.parameters() if p.requires_grad)

    def _said(self, widest: Widest, held: list[torch.Tensor], error: BaseException) -> str:
        return (
            "out of memory in the worst-case step before the first (checks.preflight): one forward and "
            f"backward of {widest.rows} rows and {widest.tokens:,} tokens, {_beside(held)}: "
            f"{first_line(error)}. Nothing was trained. "
            f"{update_knobs(self.recipe, self.algorithm)} A forward has at least the longest row, "
            f"{widest.longest:,} tokens."
        )

    def _said_of(self, full: FullGeneration, held: list[torch.Tensor], error: BaseException) -> str:
        return (
            "out of memory in the worst-case generation before the first step (checks.preflight): "
            f"{full.rows} completions of {full.completion:,} tokens after prompts of {full.prompt:,}, "
            f"{_beside(held)}: {first_line(error)}. Nothing was trained. {generation_knobs(self.recipe)}"
        )


def _beside(held: list[torch.Tensor]) -> str:
    state = sum(tensor.numel() * tensor.element_size() for tensor in held)
    return f"beside {state / 2**20:,.0f} MiB of the optimizer's state"


def _told(full: FullGeneration | None) -> str:
    return f"{full.rows} completions of {full.completion:,} tokens at once; " if full else ""


def optimizer_state(trainer: Any) -> list[torch.Tensor]:
    """Tensors that take as much as the optimizer's state will after its first step; none when it is there."""
    optimizer = trainer.optimizer
    optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
    if optimizer is None or optimizer.state:
        return []
    share = bytes_of_state(optimizer)
    return [
        torch.empty(int(share * p.numel()) + 1, dtype=torch.uint8, device=p.device).fill_(0)
        for group in optimizer.param_groups
        for p in group["params"]
        if p.requires_grad
    ]


def bytes_of_state(optimizer: torch.optim.Optimizer) -> float:
    """Bytes of state for each weight, found on a tensor of its own; Adam's where it cannot be built."""
    first = optimizer.param_groups[0]["params"][0]
    probe = torch.nn.Parameter(torch.zeros(_PROBE, dtype=first.dtype, device=first.device))
    probe.grad = torch.zeros_like(probe)
    takes = inspect.signature(type(optimizer).__init__).parameters
    options = {name: value for name, value in optimizer.defaults.items() if name in takes}
    try:
        tried = type(optimizer)([probe], **options)
        tried.step()
    except (TypeError, ValueError, KeyError):
        return state_bytes("adamw_torch", first.element_size())
    tensors = [v for v in tried.state[probe].values() if isinstance(v, torch.Tensor) and v.numel() > 1]
    return sum(t.numel() * t.element_size() for t in tensors) / _PROBE


@contextmanager
def untouched(trainer: Any) -> Iterator[None]:
    """Within, a step may be tried: random numbers, metrics, counters and the model's mode come back."""
    metrics = trainer._metrics["train"]
    logged = {name: list(values) for name, values in metrics.items()}
    names = ("_total_train_tokens", "current_gradient_accumulation_steps", "_step", "seconds", "_seconds")
    kept = {name: vars(trainer)[name] for name in names if name in vars(trainer)}
    training, python, numbers = trainer.model.training, random.getstate(), np.random.get_state()
    trainer.current_gradient_accumulation_steps = 1
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numbers)
        trainer.model.train(training)
        for name in names:
            vars(trainer).pop(name, None)
        vars(trainer).update(kept)
        metrics.clear()
        metrics.update(logged)
