"""A GRPO run: prepare, evaluate, train, evaluate, save; each a method, called in this order by a recipe."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from trlmath.data.filtering import LedgerEntry
from trlmath.plugins import notify
from trlmath.recipe import updates_of_phase
from trlmath.runs.rollouts import thin_rollouts, write_rollouts
from trlmath.sampling.sampler import Sampler
from trlmath.training.engine import sampler_factory
from trlmath.training.filter_states import FilterStates
from trlmath.training.grpo import Algorithm, MathGRPOTrainer
from trlmath.training.grpo_config import grpo_config
from trlmath.training.prepare import Prepared, prepare
from trlmath.training.stepped_run import SteppedRun
from trlmath.training.widest import FullGeneration, Widest, full_generation, widest_rollouts
from trlmath.types import Group


class GrpoRun(SteppedRun):
    """One GRPO run of a recipe, see `SteppedRun`.

    Attributes:
        trainer: the `MathGRPOTrainer`.
    """

    algorithm = "grpo"
    trainer: MathGRPOTrainer
    _prepared: Prepared

    def _prepare(self) -> Prepared:
        return prepare(self.recipe, self.processes)

    def _arguments(self, checkpoints: Path) -> Any:
        return grpo_config(self.recipe, checkpoints, self.processes)

    def _make_trainer(self, model: Any, engine: str, arguments: Any, peft: Any) -> MathGRPOTrainer:
        recipe, prepared = self.recipe, self._prepared
        return MathGRPOTrainer(
            model=model,
            args=arguments,
            processing_class=prepared.tokenizer,
            peft_config=peft,
            algorithm=Algorithm(
                rewards=prepared.rewards,
                reward_weights=[r.weight for r in prepared.rewards],
                advantage=prepared.advantage,
                advantage_label=prepared.advantage_label,
                group_filters=[f for f in prepared.filters if f.moment == "group"],
                microbatch_tokens=recipe.rollout.microbatch_tokens,
                old_logprobs=recipe.rollout.old_logprobs,
                refill_rounds=recipe.rollout.refill.max_rounds if recipe.rollout.refill else 0,
                limit=recipe.checks.reward_timeout,
                on_rollouts=self._on_rollouts,
                on_drops=self._on_drops,
            ),
            settings=prepared.settings,
            make_sampler=sampler_factory(
                recipe,
                engine,
                prepared.longest_prompt + recipe.sampling.max_tokens,
                log=self.directory / "server.log",
            ),
            problems=prepared.problems,
            prompts=prepared.prompts,
            freshness=recipe.sampling.freshness,
            correct_sampling=arguments.vllm_importance_sampling_correction,
        )

    def train(self) -> None:
        """Train for the recipe's steps."""
        why = self.trainer.padded_because
        self.display.note("update   " + (f"padded rows: {why}" if why else "rollouts share their prompts"))
        every, phase = self.recipe.run.checkpoint_every, updates_of_phase(self.recipe)
        if every % phase:
            self.display.note(
                f"save     each {self.trainer.args.save_steps} steps: run.checkpoint_every={every} is moved "
                f"up to whole rollout phases, of {phase} updates"
            )
        self.trainer.kept = [FilterStates(self.trainer.algorithm.group_filters)]
        if self.continued and not self.trainer.sampler.shares_weights:
            self.trainer.sampler.weights_version = self.continued.facts["weights_version"]
        self._fit()

    def _boundary(self, step: int) -> bool:
        # rollouts are not kept: between two updates of one phase they would have to be drawn anew
        return step % updates_of_phase(self.recipe) == 0

    def _widest(self) -> Widest:
        return widest_rollouts(self.trainer, self._prepared.longest_prompt, self.recipe.sampling.max_tokens)

    def _full_generation(self) -> FullGeneration | None:
        return full_generation(self.trainer, self._prepared.longest_prompt, self.recipe.sampling.max_tokens)

    def _noted(self) -> Mapping[str, Any]:
        return {**super()._noted(), "weights_version": self.trainer.sampler.weights_version}

    def ready_sampler(self) -> Sampler:
        """The trainer's own engine, generating from the current weights."""
        return self.trainer.ready_sampler()

    def _close(self) -> None:
        if not self.trainer.sampler.shares_weights:
            self.trainer.sampler.close()

    def _steps(self) -> int:
        arguments, rollout = self.trainer.args, self.recipe.rollout
        if arguments.max_steps > 0:
            return arguments.max_steps
        phases = len(self._prepared.problems) // rollout.prompts_per_step
        updates = phases * rollout.updates_per_rollout * rollout.epochs_per_rollout
        return math.ceil(arguments.num_train_epochs * updates)

    def _on_rollouts(self, groups: list[Group], advantages: torch.Tensor, step: int) -> None:
        if self._files:
            write_rollouts(
                self.directory, groups, advantages.tolist(), step, self.trainer.sampler.weights_version
            )
            thin_rollouts(self.directory, self.recipe.run.keep_rollouts)
            notify("rollouts_scored", batch=groups, step=step)
            show = self.recipe.run.show_every
            if show and step % show == 0:
                self.watch.rollouts(groups, step + 1)  # of the step that learns from them

    def _on_drops(self, dropped: list[LedgerEntry], step: int) -> None:
        self._record_drops(dropped, step=step)
