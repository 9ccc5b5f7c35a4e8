"""A GRPO run: prepare, evaluate, train, evaluate, save; each a method, called in this order by a recipe."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from transformers import PrinterCallback, ProgressCallback
from transformers.utils.logging import disable_progress_bar

from trlmath.data.filtering import LedgerEntry
from trlmath.errors import RecipeError
from trlmath.evaluation.prepare import evaluation_settings
from trlmath.evaluation.report import EvaluationReport
from trlmath.evaluation.run import EvaluationSet, evaluate
from trlmath.hookspecs import RunView
from trlmath.plugins import notify
from trlmath.recipe import Recipe, check_trainer
from trlmath.recipe.schema import EvaluationSetting
from trlmath.runs.directory import RunDirectory, new_run_path
from trlmath.runs.manifest import describe
from trlmath.runs.rollouts import write_rollouts
from trlmath.sampling.choose import check_engine_options, engine_of
from trlmath.sampling.models import load_policy
from trlmath.sampling.settings import SamplingSettings
from trlmath.training.display import Display, Silent
from trlmath.training.engine import sampler_factory
from trlmath.training.grpo import Algorithm, MathGRPOTrainer
from trlmath.training.grpo_config import grpo_config
from trlmath.training.model import lora_config
from trlmath.training.observer import RunObserver
from trlmath.training.prepare import dropped_by_filter, prepare
from trlmath.types import Group


class GrpoRun:
    """One GRPO run of a recipe; a context manager that closes what it opened and records how it ended.

    Everything that can be wrong with the recipe, its parts and its data is found on construction,
    before a weight is loaded.

    Attributes:
        directory: the run directory (Path).
        recipe: the resolved recipe.
        trainer: the `MathGRPOTrainer`.

    Raises:
        RecipeError, PluginError, DataError, EngineError: saying what is wrong and what to do.
    """

    def __init__(self, recipe: Recipe, display: Display | None = None) -> None:
        self.recipe = recipe
        check_trainer(recipe)
        state = PartialState(cpu=not torch.cuda.is_available())
        self.main, processes = state.is_main_process, state.num_processes
        self.display: Display = display if display and self.main else Silent()
        engine_of(recipe, parameters=0)  # an engine that is not installed is told before anything is written
        prepared = prepare(recipe, processes)
        peft = lora_config(recipe)
        self.directory = self._shared_path()
        arguments = grpo_config(recipe, self.directory / "checkpoints", processes)
        self._files = RunDirectory(self.directory) if self.main else None
        self._view = RunView(self.directory, recipe)
        self._prepared = prepared
        self._started = time.perf_counter()
        self._manifest = describe(
            recipe=recipe.name,
            processes=processes,
            model=prepared.model_path,
            prompt={"name": prepared.prompt.name, "sha256": prepared.prompt.sha256},
            rows={
                "read": prepared.rows_read,
                "train": len(prepared.problems),
                "eval": len(prepared.eval_problems),
                "dropped": dropped_by_filter(prepared.ledger),
            },
            components={
                "rewards": [str(r.component.origin) for r in prepared.rewards],
                "advantage": prepared.advantage_label,
                "filters": [str(f.component.origin) for f in prepared.filters],
            },
        )
        self._record_start()
        self.display.note(f"run      {self.directory}")
        self.display.note(
            f"data     {len(prepared.problems)} problems to train on"
            + (
                f" ({len(prepared.ledger)} dropped: {dropped_by_filter(prepared.ledger)})"
                if prepared.ledger
                else ""
            )
            + f", {len(prepared.eval_problems)} held out"
        )
        try:
            self.trainer = self._build_trainer(arguments, peft)
        except BaseException as error:
            self._record_failure(error)
            raise

    def _build_trainer(self, arguments: Any, peft: Any) -> MathGRPOTrainer:
        recipe, prepared = self.recipe, self._prepared
        disable_progress_bar()  # transformers' own, for loading and saving, would break into ours
        model = load_policy(recipe, prepared.model_path)
        engine, why = engine_of(recipe, model.num_parameters())
        check_engine_options(engine, recipe.sampling.engine_options)
        self.display.note(f"model    {recipe.model.path}, {model.num_parameters() / 1e6:.1f} M parameters")
        self.display.note(f"engine   {engine}: {why}")
        self._manifest["engine"] = {"name": engine, "why": why}
        context = prepared.longest_prompt + recipe.sampling.max_tokens
        try:
            trainer = MathGRPOTrainer(
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
                    on_rollouts=self._on_rollouts,
                    on_drops=self._on_drops,
                ),
                settings=prepared.settings,
                make_sampler=sampler_factory(recipe, engine, context),
                problems=prepared.problems,
                prompts=prepared.prompts,
                freshness=recipe.sampling.freshness,
                correct_sampling=arguments.vllm_importance_sampling_correction,
            )
        except (ValueError, ImportError) as error:  # a package or a module that is not there, values at odds
            raise RecipeError(
                f"TRL, transformers or peft cannot build the trainer from `trainer` and `model.lora`: {error}"
            ) from error
        # progress and metrics are ours; transformers would print each log as a dict
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(ProgressCallback)
        return trainer

    def _shared_path(self) -> Path:
        """The run directory, the same on every process."""
        chosen = [
            Path(self.recipe.run.dir).expanduser() if self.recipe.run.dir else new_run_path(self.recipe.name)
        ]
        broadcast_object_list(chosen)
        return chosen[0]

    def _record_start(self) -> None:
        if not self._files:
            return
        self._files.write_text("recipe.yaml", self.recipe.to_yaml())
        self._files.write_json("manifest.json", self._manifest)
        for entry in self._prepared.ledger:
            self._files.append("filters.jsonl", entry.to_dict())
        notify("run_started", run=self._view)
        notify("rows_filtered", ledger=self._prepared.ledger)

    # -- what a recipe calls ----------------------------------------------------------------------

    def __enter__(self) -> GrpoRun:
        return self

    def evaluate(self, when: str) -> list[EvaluationReport]:
        """Evaluate the current weights with each of the recipe's settings; `when` is for the files."""
        if not self.recipe.evaluation.enabled:
            return []
        data = EvaluationSet(
            self._prepared.eval_problems,
            self._prepared.eval_prompts,
            self._prepared.eval_prompt_ids,
            self._prepared.rewards,
            [reward.weight for reward in self._prepared.rewards],
        )
        sampler = self.trainer.ready_sampler()
        accelerator = self.trainer.accelerator
        reports = []
        for setting in self.recipe.evaluation.settings:
            total = len(data.problems)
            with self.display.bar(f"evaluate {when}, {setting.name}", total) as advance:
                report = evaluate(
                    sampler,
                    data,
                    f"{when}/{setting.name}",
                    self._settings(setting),
                    setting.n,
                    self._files.samples if self._files else None,
                    share=(accelerator.process_index, accelerator.num_processes),
                    gather=gather_object if accelerator.num_processes > 1 else list,
                    progress=advance,
                    chunk=self.recipe.evaluation.chunk,
                    by=self.recipe.evaluation.by,
                )
            reports.append(report)
            self._record_evaluation(setting, report)
        return reports

    def train(self) -> None:
        """Train for the recipe's steps."""
        steps = self._steps()
        with self.display.bar("train", steps) as advance:
            observer = RunObserver(
                self._files, advance, lambda step: self._evaluate_at(step), self.recipe.evaluation.every
            )
            self.trainer.add_callback(observer)
            self.trainer.train()

    def finish(self, before: Sequence[EvaluationReport] = (), after: Sequence[EvaluationReport] = ()) -> None:
        """Save the model, show before and after, and record the end."""
        self.trainer.save_model(str(self.directory / "checkpoints" / "final"))
        if self._files:
            self._prepared.tokenizer.save_pretrained(self.directory / "checkpoints" / "final")
        seconds = time.perf_counter() - self._started
        summary = {
            "seconds": round(seconds, 1),
            "steps": self.trainer.state.global_step,
            "before": [r.to_dict() for r in before],
            "after": [r.to_dict() for r in after],
        }
        self._manifest |= {"status": "finished", "summary": summary}
        if self._files:
            self._files.write_json("manifest.json", self._manifest)
            notify("checkpoint_saved", path=self.directory / "checkpoints" / "final", step=summary["steps"])
            notify("run_finished", run=self._view, summary=summary)
        self.display.comparison(before, after)
        self.display.note(f"{summary['steps']} steps in {seconds:.0f} s; everything is in {self.directory}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._record_failure(error)
        if not self.trainer.sampler.shares_weights:
            self.trainer.sampler.close()

    def _record_failure(self, error: BaseException) -> None:
        if not self._files:
            return
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        step = self.trainer.state.global_step if hasattr(self, "trainer") else 0
        self._manifest |= {"status": status, "error": f"{type(error).__name__}: {error}", "step": step}
        self._files.write_json("manifest.json", self._manifest)

    # -- what happens in between ------------------------------------------------------------------

    def _evaluate_at(self, step: int) -> None:
        training = self.trainer.model.training
        self.evaluate(f"step-{step}")
        self.trainer.model.train(training)

    def _settings(self, setting: EvaluationSetting) -> SamplingSettings:
        own = self._prepared.settings
        return evaluation_settings(setting, own.min_tokens, own.max_tokens, own.stop, self.recipe.run.seed)

    def _steps(self) -> int:
        arguments, rollout = self.trainer.args, self.recipe.rollout
        if arguments.max_steps > 0:
            return arguments.max_steps
        phases = len(self._prepared.problems) // rollout.prompts_per_step
        updates = phases * rollout.updates_per_rollout * rollout.epochs_per_rollout
        return math.ceil(arguments.num_train_epochs * updates)

    def _record_evaluation(self, setting: EvaluationSetting, report: EvaluationReport) -> None:
        if not self._files:
            return
        step = self.trainer.state.global_step
        prefix = "eval" if setting.name == "sampled" else f"eval_{setting.name}"
        numbers = {f"{prefix}/{part}": rate.value for part, rate in report.rates.items()}
        numbers |= {f"{prefix}/category/{c}": n / report.completions for c, n in report.categories.items()}
        numbers |= {f"{prefix}/mean_length": report.mean_tokens, f"{prefix}/truncated": report.truncated}
        for part, rates in report.pass_at_k.items() if setting.n > 1 else ():
            numbers[f"{prefix}/pass@{setting.n}/{part}"] = rates[-1].value
        if report.mean_reward is not None:
            numbers[f"{prefix}/reward"] = report.mean_reward.value
        if report.entropy is not None:
            numbers[f"{prefix}/entropy"] = report.entropy
        self._files.append("metrics.jsonl", {"step": step, **numbers})
        self._files.append("evaluation/reports.jsonl", {"step": step, **report.to_dict()})
        notify("evaluated", report=report, step=step)

    def _on_rollouts(self, groups: list[Group], advantages: torch.Tensor, step: int) -> None:
        if self._files:
            write_rollouts(
                self.directory, groups, advantages.tolist(), step, self.trainer.sampler.weights_version
            )
            notify("rollouts_scored", batch=groups, step=step)

    def _on_drops(self, dropped: list[LedgerEntry], step: int) -> None:
        for entry in dropped if self._files else ():
            self._files.append("filters.jsonl", {"step": step, **entry.to_dict()})  # type: ignore[union-attr]
