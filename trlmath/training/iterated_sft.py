"""The trainer of expert iteration: one SFT trainer that is given other examples in each iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from accelerate.utils import set_seed
from transformers import TrainerCallback

from trlmath.data.examples import Example
from trlmath.recipe import Recipe
from trlmath.training.out_of_memory import explained
from trlmath.training.preflight import Preflight
from trlmath.training.sft import MathSFTTrainer
from trlmath.training.widest import widest_examples

# what the trainer is built with, before anything was sampled; never trained on
_NOTHING_YET = Example((0, 0), (0,), 0)


class IteratedSFTTrainer(MathSFTTrainer):
    """`MathSFTTrainer` whose examples are given to `train_on`; all else as there.

    Attributes:
        steps: optimizer steps of all calls of `train_on` so far.
        explain: what training happens within.
    """

    explain: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(examples=[_NOTHING_YET], **kwargs)
        self.steps = 0

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log under the step of the whole run; transformers counts anew in every call of `train`."""
        self.state.global_step += self.steps
        super().log(logs, start_time)
        self.state.global_step -= self.steps

    def train_on(
        self,
        examples: Sequence[Example],
        epochs: int,
        seed: int,
        fresh: bool,
        watching: Sequence[TrainerCallback] = (),
    ) -> int:
        """Train `epochs` times on `examples`; return the optimizer steps taken.

        Args:
            seed: of the order of rows and of dropout.
            fresh: with a new optimizer; else with the state that the last call (or `create_optimizer`) has
                left. The learning rate's schedule begins anew in both cases.
            watching: callbacks for this call.
        """
        self.examples, self._lengths = list(examples), [len(example) for example in examples]
        self.args.num_train_epochs, self.args.max_steps, self.args.data_seed = epochs, -1, seed
        if fresh:
            self.optimizer = None
        elif self.optimizer is not None:
            # a schedule takes what it finds as the full rate, and the last one may have ended at 0
            for group in self.optimizer.param_groups:
                group["lr"] = group["initial_lr"] = self.args.learning_rate
        set_seed(seed)
        for callback in watching:
            self.add_callback(callback)
        with self.explain():
            self.train()
        for callback in watching:
            self.remove_callback(callback)
        taken = self.state.global_step
        self.steps += taken
        self.state.global_step = self.steps  # what is sent to trackers between two calls
        return taken


def guard(trainer: IteratedSFTTrainer, recipe: Recipe, prompt: int, tell: Callable[[str], None]) -> None:
    """Tell out of memory with the knob to turn; before the first SFT, try the widest one there can be.

    Args:
        prompt: tokens of the longest prompt.
        tell: shows a line.
    """
    most = prompt + recipe.sampling.max_tokens
    most = min(most, trainer.batch.max_length or most)
    widest = [Example((0,) * (most - 1), (0,), 0)] * trainer.batch.size

    def when() -> str:
        return f"after {trainer.steps + trainer.state.global_step} steps of SFT"

    trainer.explain = lambda: explained(recipe, "expert_iteration", when)
    if recipe.checks.preflight:
        trainer.add_callback(
            Preflight(trainer, lambda: widest_examples(trainer, widest), recipe, "expert_iteration", tell)
        )
