"""An SFT run: prepare, evaluate, train, evaluate, save; each a method, called in this order by a recipe."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from accelerate.utils import DistributedType

from trlmath.data.shown import show_examples, summary
from trlmath.errors import RecipeError
from trlmath.recipe import check_sections
from trlmath.recipe.schema import BatchSection
from trlmath.sampling.sampler import Sampler
from trlmath.training.averaging import NOT_AVERAGED, WeightAverage
from trlmath.training.early_stop import EarlyStop
from trlmath.training.engine import sampler_factory
from trlmath.training.kept import KeptAverage, KeptEarlyStop
from trlmath.training.live_engine import LiveEngine
from trlmath.training.prepare_sft import PreparedSft, prepare_sft
from trlmath.training.sft import MathSFTTrainer
from trlmath.training.sft_config import sft_config
from trlmath.training.stepped_run import SteppedRun
from trlmath.training.widest import Widest, widest_examples

SHARDED = (DistributedType.FSDP, DistributedType.DEEPSPEED)


class SftRun(SteppedRun):
    """One SFT run of a recipe, see `SteppedRun`.

    Attributes:
        trainer: the `MathSFTTrainer`.
        average: of the weights, when the recipe asks for one: evaluated and saved in their place.
    """

    algorithm = "sft"
    trainer: MathSFTTrainer
    _prepared: PreparedSft

    def _prepare(self) -> PreparedSft:
        recipe = self.recipe
        check_sections(recipe, "sft")
        self.average = WeightAverage(recipe.averaging) if recipe.averaging else None
        self._early_stop = EarlyStop(recipe.early_stop) if recipe.early_stop else None
        self._engine: LiveEngine | None = None
        return prepare_sft(recipe)

    def _arguments(self, checkpoints: Path) -> Any:
        return sft_config(self.recipe, checkpoints, self.processes)

    def _facts(self) -> dict[str, Any]:
        tokenized = self._prepared.data.tokenized
        tokens = {"supervised": tokenized.supervised, "all": sum(map(len, tokenized.examples))}
        return {**super()._facts(), "examples": len(tokenized.examples), "tokens": tokens}

    def _data_notes(self) -> Iterator[str]:
        for line in summary(self._prepared.data):
            yield f"data     {line}"
        yield f"data     {len(self._prepared.held_out.problems)} problems held out"

    def _show_data(self) -> None:
        """One example as it is trained, then how many there are and of how many tokens."""
        self.display.rows(show_examples(self._prepared.data, self._prepared.tokenizer, count=1))
        super()._show_data()

    def _make_trainer(self, model: Any, engine: str, arguments: Any, peft: Any) -> MathSFTTrainer:
        recipe, prepared = self.recipe, self._prepared
        trainer = MathSFTTrainer(
            examples=prepared.data.tokenized.examples,
            batch=recipe.batch or BatchSection(),
            model=model,
            args=arguments,
            processing_class=prepared.tokenizer,
            peft_config=peft,
        )
        if self.average:
            kind = trainer.accelerator.distributed_type
            if kind in SHARDED:
                raise RecipeError(
                    f"averaging: cannot average weights that {kind.value} has sharded; remove it."
                )
            trainer.add_callback(self.average)
        if self.generates:
            context = prepared.longest_prompt + recipe.sampling.max_tokens
            together = recipe.evaluation.chunk * max(s.n for s in recipe.evaluation.settings)
            make = sampler_factory(
                recipe,
                engine,
                context,
                completions=together * self.processes,
                log=self.directory / "server.log",
            )
            probe = prepared.held_out.prompt_ids[0]
            self._engine = LiveEngine(trainer, make, probe, recipe.sampling.freshness)
        return trainer

    @property
    def generates(self) -> bool:
        """Only to evaluate."""
        return self.recipe.evaluation.enabled

    def ready_sampler(self) -> Sampler:
        """The engine of evaluations, generating from the current weights."""
        if self._engine is None:
            raise RecipeError("evaluation.enabled is false, so this run has no engine to generate with.")
        sampler = self._engine.ready()
        numbers = self._engine.numbers()
        if self._files and numbers:
            self._files.append("metrics.jsonl", {"step": self.step, **numbers})
        return sampler

    def train(self) -> None:
        """Train for the recipe's steps; with `averaging`, the model has the averaged weights afterwards."""
        if self._early_stop and self.numbers and not self.continued:
            self._early_stop.record(self.numbers)  # an unknown metric is told before step 1
        if self.continued:
            self.trainer.tokens = self.continued.facts["tokens"]
        self.trainer.kept = [
            *([KeptAverage(self.average, self.trainer.model)] if self.average else []),
            *([KeptEarlyStop(self._early_stop)] if self._early_stop else []),
        ]
        self._fit()
        if self.average:
            if self.average.empty:
                self.display.note(NOT_AVERAGED.format(steps=self.step, every=self.average.section.every))
            self.average.keep(self.trainer.model)

    def _widest(self) -> Widest:
        return widest_examples(self.trainer, self.trainer.examples)

    def _noted(self) -> Mapping[str, Any]:
        return {**super()._noted(), "tokens": self.trainer.tokens}

    def _evaluate_at(self, step: int) -> None:
        with self._averaged():
            super()._evaluate_at(step)
        if self._early_stop and self._early_stop.record(self.numbers):
            self._early_stop.stopped = self.trainer.control.should_training_stop = True
            self.display.note(f"stopped  early, at step {step}: {self._early_stop.why}")

    def _ended_early(self) -> bool:
        return self._early_stop is not None and self._early_stop.stopped

    def _averaged(self) -> AbstractContextManager[None]:
        return self.average.applied(self.trainer.model) if self.average else nullcontext()

    def _steps(self) -> int:
        arguments = self.trainer.args
        if arguments.max_steps > 0:
            return arguments.max_steps
        return math.ceil(arguments.num_train_epochs * len(self.trainer.get_train_dataloader()))

    def _close(self) -> None:
        if self._engine:
            self._engine.close()
