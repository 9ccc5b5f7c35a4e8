"""An expert iteration run: sample, select, SFT, evaluate, again; each a method, called by a recipe.

After each phase the run keeps what the next one needs (`phases.Progress`), and every phase draws from
seeds of its own: a killed run goes on with the phase it was in, and ends as if nothing had happened.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object

from trlmath.data.filtering import NamedFilter
from trlmath.evaluation.report import EvaluationReport
from trlmath.evaluation.sample import Sample
from trlmath.plugins import notify
from trlmath.recipe import Recipe
from trlmath.recipe.schema import BatchSection, EvaluationSetting, ExpertIterationSection
from trlmath.reward_faults import error_shares
from trlmath.runs.appended import cut_back
from trlmath.runs.directory import RunDirectory
from trlmath.runs.lock import open_locked
from trlmath.runs.rollouts import write_rollouts
from trlmath.sampling.sampler import Sampler
from trlmath.together import from_main
from trlmath.training import expert_iteration as pieces
from trlmath.training.averaging import NOT_AVERAGED, WeightAverage
from trlmath.training.display import Display
from trlmath.training.early_stop import EarlyStop
from trlmath.training.engine import sampler_factory
from trlmath.training.evaluation_numbers import evaluation_numbers
from trlmath.training.expert_iteration import Selection
from trlmath.training.health_callback import HealthCheck
from trlmath.training.iterated_sft import IteratedSFTTrainer, guard
from trlmath.training.iteration_metrics import sampling_metrics
from trlmath.training.iteration_state import APPENDED, IterationState, Writers, saved_rows
from trlmath.training.live_engine import LiveEngine
from trlmath.training.observer import RunObserver
from trlmath.training.phases import Progress, read_progress
from trlmath.training.prepare import Prepared
from trlmath.training.prepare_iterations import prepare_iterations, training_set
from trlmath.training.resume import find_unfinished
from trlmath.training.roll_out import roll_out
from trlmath.training.run_base import TrainingRun
from trlmath.training.seeds import seed_of
from trlmath.training.sft_config import sft_config
from trlmath.types import Group, Problem


class ExpertIterationRun(TrainingRun):
    """One expert iteration run of a recipe.

    Attributes:
        progress: how far it has come.
        section: the recipe's `expert_iteration`.
        reports: name of an evaluation (``before``, ``iteration-0``, ...) -> its reports.

    See `TrainingRun` for the rest.
    """

    algorithm = "expert_iteration"
    trainer: IteratedSFTTrainer
    _prepared: Prepared

    def __init__(self, recipe: Recipe, display: Display | None = None) -> None:
        self.section = recipe.expert_iteration or ExpertIterationSection()
        self.progress, self._passed = Progress(), list[str]()
        self._continued = self._kept = False  # there is a run to go on with; it has kept something
        self.reports: dict[str, list[EvaluationReport]] = {}
        self._rows: list[Sample] = []
        self._batch = recipe.batch or BatchSection()
        self._early_stop = EarlyStop(recipe.early_stop) if recipe.early_stop else None
        self._loaded = -1  # the weights version that the engine holds
        self._health = HealthCheck(
            recipe, self._tell, lambda: self.directory, lambda: len(self._prepared.held_out.problems)
        )
        super().__init__(recipe, display)

    # -- what a recipe calls ----------------------------------------------------------------------

    def iterations(self) -> Iterator[int]:
        """Yield the number of each iteration still to do, from the one an interrupted run was in."""
        while not self.progress.stopped and self.progress.iteration < self.section.iterations:
            iteration = self.progress.iteration
            yield iteration
            if self.progress.iteration == iteration:  # the recipe has left the evaluation out
                self._keep(iteration=iteration + 1, phase="sample")

    def sample(self, iteration: int) -> list[Problem]:
        """Draw the iteration's questions, sample and grade G rollouts for each: its candidate traces."""
        progress, recipe = self.progress, self.recipe
        if progress.phase != "sample":
            return self._state.traces()
        started = time.perf_counter()
        asked = self.section.problems_per_iteration
        drawn = pieces.draws(len(self._prepared.problems), asked, recipe.run.seed)
        rows = next(islice(drawn, iteration, None))
        base = self._prepared.settings
        temperature = pieces.temperature_at(self.section, base.temperature, iteration, progress.raised)
        sampler = self.ready_sampler()
        with self.display.bar(f"iteration {iteration}: sample", len(rows)) as advance:
            groups, seeds = roll_out(
                sampler,
                self._training_set,
                rows,
                replace(base, temperature=temperature),
                recipe.rollout.group_size,
                recipe.rollout.prompts_per_step,
                lambda chunk: seed_of(recipe.run.seed, "sample", iteration, chunk),
                (self.trainer.accelerator.process_index, self.processes),
                gather_object if self.processes > 1 else list,
                advance,
                self._state.sampled(iteration),
            )
        traces = pieces.traces_of(groups, rows, seeds, iteration, progress.weights_version, temperature)
        self._record_rollouts(groups, iteration, temperature, time.perf_counter() - started)
        self._keep(IterationState.of_traces(iteration, traces), phase="train")
        return traces

    def select(self, iteration: int, traces: Sequence[Problem]) -> Selection:
        """Let the `trace` filters decide what the iteration trains on, of `traces` and of their own pools."""
        if self.progress.phase != "train":
            return Selection([], 0, 0, 0, [])

        def choose() -> Selection:
            fitting, over = pieces.fitting(traces, self._training_set.prompt_ids, self._batch.max_length)
            selection = pieces.select(fitting, self._filters, iteration, self.progress.pool)
            return replace(selection, candidates=len(traces), dropped=[*over, *selection.dropped])

        selection = from_main(self.main, choose)
        self._record_drops(selection.dropped, iteration=iteration)
        self._log(iteration, pieces.selection_metrics(selection))
        self.display.note(
            f"iteration {iteration}: kept {selection.new} of {selection.candidates} traces"
            + (f", {len(selection.traces) - selection.new} of earlier ones" if selection.recalled else "")
        )
        return selection

    def sft(self, iteration: int, selection: Selection) -> None:
        """Train on the selection; where nothing new was kept, raise the temperature or stop instead."""
        if self.progress.phase != "train":
            return
        if selection.new == 0:
            self._nothing_kept(iteration)
            return
        started, recipe = time.perf_counter(), self.recipe
        for trace in selection.traces if self._files else ():
            self._files.append("traces.jsonl", pieces.trained_row(trace, iteration))  # type: ignore[union-attr]
        prompts, eos = self._training_set.prompt_ids, self._prepared.tokenizer.eos_token_id
        examples = [pieces.example_of(trace, i, prompts, eos) for i, trace in enumerate(selection.traces)]
        steps = self.section.epochs * -(-len(examples) // self._batch.size)
        average = WeightAverage(recipe.averaging) if recipe.averaging else None
        with self.display.training(f"iteration {iteration}: SFT", steps) as self.watch:
            observer = RunObserver(self._files, self.watch, taken=self.progress.steps)
            watching = [observer, self._health, *([average] if average else [])]
            taken = self.trainer.train_on(
                examples,
                self.section.epochs,
                seed_of(recipe.run.seed, "sft", iteration),
                fresh=self.section.optimizer == "fresh",
                watching=watching,
            )
        if average:
            if average.empty:
                self.display.note(NOT_AVERAGED.format(steps=taken, every=average.section.every))
            average.keep(self.trainer.model)
        self.progress.steps, self.progress.tokens = self.progress.steps + taken, self.trainer.tokens
        self._log(iteration, {}, **{"time/sft": time.perf_counter() - started})
        self._keep(
            {
                **IterationState.of_trainer(iteration, self.trainer, self.section.optimizer == "carried"),
                **IterationState.of_filters(iteration, self._filters),
            },
            phase="evaluate",
            weights_version=self.progress.weights_version + 1,
            pool=len(selection.traces),
        )

    def evaluate(self, when: str | int) -> list[EvaluationReport]:
        """Evaluate the current weights: ``before``, or after an iteration, which this ends.

        What was evaluated before an interruption is read back; weights that an iteration has not changed
        are not evaluated again.
        """
        name = when if isinstance(when, str) else f"iteration-{when}"
        if name in self.progress.evaluated:
            return self._reports_of(name)
        if isinstance(when, int) and self.progress.phase != "evaluate":
            return []
        self.numbers = {}
        self.reports[name] = super().evaluate(name)
        self.progress.evaluated[name] = dict(self.numbers)
        if isinstance(when, int):
            stop = self._early_stop is not None and self._early_stop.record(self.numbers)
            self._keep(iteration=when + 1, phase="sample", stopped="no improvement" if stop else "")
            if stop and self._early_stop:
                metric = self._early_stop.section.metric
                self.display.note(f"iteration {when}: {metric} has not improved: the run ends here")
        else:
            if self._early_stop:
                self._early_stop.record(self.numbers)
            self._keep()
        return self.reports[name]

    def train(self) -> None:
        """All iterations."""
        for iteration in self.iterations():
            traces = self.sample(iteration)
            self.sft(iteration, self.select(iteration, traces))
            self.evaluate(iteration)

    def finish(self, before: Sequence[EvaluationReport] = (), after: Sequence[EvaluationReport] = ()) -> None:
        """Save the model, show the first and the last evaluation, and record the end."""
        names = list(self.progress.evaluated)
        before = before or (self._reports_of(names[0]) if names else [])
        after = after or (self._reports_of(names[-1]) if names else [])
        self._manifest["iterations"] = self.progress.iteration
        self._manifest["stopped"] = self.progress.stopped
        super().finish(before, after)
        if self._files:
            # the model is in checkpoints/final
            shutil.rmtree(self.directory / "state", ignore_errors=True)

    def _drawn_in_all(self) -> int:
        """See the base."""
        problems = min(self.section.problems_per_iteration, len(self._prepared.problems))
        return self.section.iterations * problems * self.recipe.rollout.group_size

    # -- what the base asks for -------------------------------------------------------------------

    def _prepare(self) -> Prepared:
        prepared = prepare_iterations(self.recipe)
        self._training_set = training_set(prepared)
        self._filters: list[NamedFilter] = [f for f in prepared.filters if f.moment == "trace"]
        return prepared

    def _shared_path(self) -> Path:
        path = super()._shared_path()
        found = from_main(self.main, lambda: find_unfinished(self.recipe, path, self._tell))
        if found is not None:
            path, self._continued = found, True
            kept, self._passed = read_progress(path)
            self._kept, self.progress = kept is not None, kept or Progress()
        return path

    def _arguments(self, checkpoints: Path) -> Any:
        return sft_config(self.recipe, checkpoints, self.processes, checkpoints=False)

    def _open(self) -> RunDirectory:
        return open_locked(self.directory, self._continued, self._held)

    def _record_start(self) -> None:
        self._state = IterationState(self.directory, self._files, self.progress)
        progress = self.progress
        if self._continued:
            self._check_same(self._kept, iteration=progress.iteration, phase=progress.phase)
        if self._continued and self._files:
            cut_back(self.directory, progress.sizes or dict.fromkeys(APPENDED, 0))
        if not self._kept:
            super()._record_start()
            self._keep()
            return
        if self._files:
            if self._passed:
                self._keep()  # in the place of what is damaged
            self._record_going_on()
        names = ["before", *(f"iteration-{i}" for i in range(self.section.iterations))]
        problems = len(self._prepared.held_out.problems)
        self._rows = from_main(
            self.main, lambda: saved_rows(self.directory, self.recipe.evaluation, names, problems)
        )
        self._health.recall(self.main)
        self._state.load_filters(self._filters)
        for numbers in progress.evaluated.values() if self._early_stop else ():
            self._early_stop.record(numbers)  # type: ignore[union-attr]

    def _data_notes(self) -> Iterator[str]:
        yield from super()._data_notes()
        if self._continued:
            progress = self.progress
            yield from (f"resume   {line}" for line in self._passed)
            yield f"resume   iteration {progress.iteration}, phase {progress.phase}"

    def _make_trainer(self, model: Any, engine: str, arguments: Any, peft: Any) -> IteratedSFTTrainer:
        recipe, prepared = self.recipe, self._prepared
        trainer = IteratedSFTTrainer(
            batch=self._batch,
            model=model,
            args=arguments,
            processing_class=prepared.tokenizer,
            peft_config=peft,
        )
        self._state.load_trainer(trainer)
        guard(trainer, recipe, prepared.longest_prompt, self.display.note)
        factory = sampler_factory(
            recipe,
            engine,
            prepared.longest_prompt + recipe.sampling.max_tokens,
            completions=recipe.rollout.prompts_per_step * recipe.rollout.group_size * self.processes,
            log=self.directory / "server.log",
        )
        ids = self._training_set.prompt_ids[0]
        self.engine = LiveEngine(trainer, factory, ids, recipe.sampling.freshness)
        return trainer

    def ready_sampler(self) -> Sampler:
        """The engine, generating from the current weights: loaded and proven once for each SFT."""
        if self._loaded != self.progress.weights_version:
            self.engine.ready()
            self._loaded = self.progress.weights_version
            numbers = self.engine.numbers()
            if numbers:  # the version that the traces name, which a continued run counts on
                numbers["engine/weights_version"] = self.progress.weights_version
                self._log(self.progress.iteration, {}, **numbers)
        return self.engine.sampler

    def _steps(self) -> int:
        return self.progress.steps

    @property
    def step(self) -> int:
        """Optimizer steps taken in all iterations."""
        return self.progress.steps

    def _saved_rows(self, setting: str) -> Sequence[Sample]:
        return [row for row in self._rows if row.setting == setting]

    def _close(self) -> None:
        if hasattr(self, "engine"):
            self.engine.close()
        self._held.close()

    def _record_evaluation(self, setting: EvaluationSetting, report: EvaluationReport) -> None:
        if report.name.split("/")[0] not in self.progress.evaluated:
            super()._record_evaluation(setting, report)
            self._health.look(evaluation_numbers(setting, report), self.step)

    # -- what happens in between ------------------------------------------------------------------

    def _nothing_kept(self, iteration: int) -> None:
        section, raised = self.section, self.progress.raised
        stop = section.nothing_kept == "stop"
        self._keep(
            IterationState.of_filters(iteration, self._filters),
            iteration=iteration + 1,
            phase="sample",
            raised=raised if stop else raised + 1,
            stopped="nothing kept" if stop else "",
        )
        base = self._prepared.settings.temperature
        hotter = pieces.temperature_at(section, base, iteration + 1, raised + 1)
        then = "the run ends here" if stop else f"the next questions are sampled at temperature {hotter:g}"
        self.display.note(f"iteration {iteration}: nothing new was kept, so nothing is trained: {then}")

    def _keep(self, writers: Writers | None = None, **done: Any) -> None:
        """Note what is done and keep it, before any process goes on."""
        self._state.keep(writers, **done)
        if hasattr(self, "trainer"):
            self.trainer.accelerator.wait_for_everyone()

    def _reports_of(self, name: str) -> list[EvaluationReport]:
        """The reports of an evaluation that was made: as made, or from its saved rows."""
        if name not in self.reports:
            self.reports[name] = super().evaluate(name)
        return self.reports[name]

    def _record_rollouts(
        self, groups: list[Group], iteration: int, temperature: float, seconds: float
    ) -> None:
        numbers = sampling_metrics(groups, temperature)
        numbers |= error_shares(self._prepared.rewards, gather_object if self.processes > 1 else list)
        row = self._log(iteration, numbers, **{"time/generate": seconds})
        if self._files:
            version = self.progress.weights_version
            write_rollouts(self.directory, groups, None, self.step, version, f"iteration-{iteration:03d}")
            notify("rollouts_scored", batch=groups, step=self.step)
        self._health.look(row, self.step)

    def _log(self, iteration: int, numbers: dict[str, float], **more: float) -> dict[str, float]:
        named = {f"train/{name}": value for name, value in numbers.items()}
        row = {"step": self.step, "train/iteration": iteration, **named, **more}
        if self._files:
            self._files.append("metrics.jsonl", row)
        return row
