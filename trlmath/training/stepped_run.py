"""SteppedRun: a run of one trainer that counts steps; kept in checkpoints, and continued to the bit."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from transformers import TrainerCallback, TrainerState

from trlmath.evaluation.report import EvaluationReport
from trlmath.evaluation.run import EvaluationLeft
from trlmath.evaluation.sample import Sample
from trlmath.recipe import Recipe
from trlmath.recipe.schema import EvaluationSetting
from trlmath.runs.appended import cut_back, flushed_sizes
from trlmath.runs.checkpoints import Checkpoint, to_continue
from trlmath.runs.directory import RunDirectory
from trlmath.runs.lock import open_locked
from trlmath.runs.rollouts import drop_rollouts
from trlmath.together import from_main
from trlmath.training.boundary import StopAtBoundary
from trlmath.training.display import Display
from trlmath.training.early_stop import measured
from trlmath.training.evaluation_numbers import evaluation_numbers
from trlmath.training.health_callback import HealthCheck
from trlmath.training.iteration_state import saved_rows
from trlmath.training.memory import GiveBack
from trlmath.training.observer import RunObserver
from trlmath.training.out_of_memory import explained
from trlmath.training.preflight import NOT_TRIED, Preflight
from trlmath.training.resume import find_unfinished
from trlmath.training.run_base import TrainingRun
from trlmath.training.stopping import stopping_at_step_end
from trlmath.training.widest import FullGeneration, Widest

APPENDED = ("metrics.jsonl", "filters.jsonl", "evaluation/reports.jsonl")


class SteppedRun(TrainingRun):
    """See `TrainingRun`. The same command goes on with an unfinished run of the same recipe in `run.dir`.

    Attributes:
        continued: the checkpoint that the run goes on from; None from the beginning.
    """

    def __init__(self, recipe: Recipe, display: Display | None = None) -> None:
        self.continued: Checkpoint | None = None
        self._again = False
        self._rows: list[Sample] = []
        self._evaluated: dict[str, dict[str, float]] = {}
        self._evaluating = ""
        self._best: tuple[float, str] | None = None
        # the evaluation that a stop has left to the run that goes on: what was to be noted before it
        self._left: Mapping[str, Any] | None = None
        self._leaves = False
        self._health = HealthCheck(
            recipe, self._tell, lambda: self.directory, lambda: len(self._prepared.held_out.problems)
        )
        super().__init__(recipe, display)

    def _boundary(self, step: int) -> bool:
        """Whether a run can go on from after `step` optimizer steps."""
        return True

    def _ended_early(self) -> bool:
        """Whether the run had ended before its last step where it goes on from."""
        return False

    @abstractmethod
    def _widest(self) -> Widest:
        """The widest micro-batch of the update."""

    def _full_generation(self) -> FullGeneration | None:
        """The widest generation of a step; None where a step has none, or not in this process."""
        return None

    # -- finding what there is ----------------------------------------------------------------------

    def _shared_path(self) -> Path:
        path = super()._shared_path()
        found = from_main(self.main, lambda: find_unfinished(self.recipe, path, self._tell))
        self._again = found is not None
        return found or path

    def _open(self) -> RunDirectory:
        return open_locked(self.directory, self._again, self._held)

    def _record_start(self) -> None:
        passed: list[str] = []
        if self._again:
            self.continued, passed = from_main(self.main, lambda: to_continue(self.directory / "checkpoints"))
        for line in passed:
            self.display.note(f"resume   {line}")
        if not self._again:
            super()._record_start()
            return
        sizes = self.continued.facts["sizes"] if self.continued else dict.fromkeys(APPENDED, 0)
        step = self.continued.step if self.continued else 0
        self._check_same(self.continued is not None, step=step)
        if self._files:
            cut_back(self.directory, sizes)
            drop_rollouts(self.directory, step)
        if self.continued is None:
            super()._record_start()
        else:
            self._record_going_on()
        self._evaluated = dict(self.continued.facts["evaluated"]) if self.continued else {}
        best = self.continued.facts["best"] if self.continued else None
        self._best = tuple(best) if best else None
        names = list(dict.fromkeys(["before", *self._evaluated, f"step-{step}", "after"]))
        problems = len(self._prepared.held_out.problems)
        self._rows = from_main(
            self.main, lambda: saved_rows(self.directory, self.recipe.evaluation, names, problems)
        )
        self._health.recall(self.main)

    def _show_data(self) -> None:
        super()._show_data()
        if self._again:
            self.display.note(f"resume   after step {self.continued.step if self.continued else 0}")

    # -- training -----------------------------------------------------------------------------------

    def _fit(self) -> None:
        self.trainer.facts, self.trainer.keep_last = self._saved_with, self.recipe.run.keep_last
        self.trainer.keep_best = lambda: self._best[1] if self._best else None
        path, done = None, 0
        if self.continued:
            path, done = self.continued.path, self.continued.step
            for part in self.trainer.kept:
                part.load(path)
            if (numbers := self.continued.facts.get("left")) is not None:
                self._make_up(path, done, numbers)
        with (
            self.display.training("train", self._steps()) as self.watch,
            stopping_at_step_end(self.display.note) as request,
        ):
            self._stop = StopAtBoundary(request, self._boundary, self.processes, self.trainer.args.device)
            self._watch(self._stop, self._health, GiveBack())
            if self.recipe.checks.preflight:
                tried = Preflight(
                    *(self.trainer, self._widest, self.recipe, self.algorithm, self.display.note),
                    generation=self._full_generation,
                )
                self.trainer.add_callback(tried)
            ended = done >= self._steps() or self._ended_early()
            # where training goes on, the observer tells of the step before again
            self.watch.advance(done if ended else done - 1) if done else None
            if path and ended:
                self._load(path)
            else:
                with explained(self.recipe, self.algorithm, lambda: f"after {self.step} steps"):
                    self.trainer.train(resume_from_checkpoint=str(path) if path else None)
        if self._stop.stopped:
            raise KeyboardInterrupt

    def _load(self, path: Path) -> None:
        self.trainer._load_from_checkpoint(str(path))
        self.trainer.state = TrainerState.load_from_json(str(path / "trainer_state.json"))

    def _watch(self, stop: StopAtBoundary, *callbacks: TrainerCallback) -> None:
        every = self.recipe.evaluation.every
        self._observer = RunObserver(self._files, self.watch, self._evaluate_or_leave, every)
        for callback in (stop, self._observer, *callbacks):
            self.trainer.add_callback(callback)

    def _saved_with(self) -> Mapping[str, Any]:
        """What a checkpoint notes: of the run, and the step's numbers if its evaluation was left."""
        noted = self._noted()
        if self._left is None:
            return {**noted, "left": None}
        shown = self._observer.shown == self.step
        return {**noted, **self._left, "left": self._observer.last if shown else {}}

    def _noted(self) -> Mapping[str, Any]:
        """What a checkpoint notes of the run."""
        return {
            "step": self.step,
            "sizes": flushed_sizes(self.directory, APPENDED),
            "evaluated": self._evaluated,
            "best": self._best,
        }

    # -- evaluations --------------------------------------------------------------------------------

    def _evaluate_or_leave(self, step: int) -> None:
        """Evaluate; but once a stop is asked for, save first and leave it to the run that goes on."""
        kind = self.trainer.accelerator.distributed_type
        self._leaves = self._boundary(step) and kind not in NOT_TRIED
        before = self._noted() if self._leaves else None
        if self._leaves and self._stop.stopped:
            self._left = before
            return
        try:
            self._evaluate_at(step)
        except EvaluationLeft:
            self._left = before
        self._leaves = False
        self._stop.look(self.trainer.state, self.trainer.control)

    def _given_up(self) -> bool:
        return self._leaves and self._stop.asked()

    def _make_up(self, path: Path, step: int, numbers: Mapping[str, Any]) -> None:
        """Evaluate after the step of the checkpoint, then log its `numbers`, as a run without a stop does."""
        self._load(path)
        self._evaluate_at(step)
        if self._files and numbers:
            self._files.append("metrics.jsonl", {"step": step, **numbers})
        self._health.look(numbers, step)

    def evaluate(self, when: str) -> list[EvaluationReport]:
        """As `TrainingRun.evaluate`; what was recorded before an interruption is not recorded again."""
        self._evaluating = when
        reports = super().evaluate(when)
        if reports and when not in self._evaluated:
            self._evaluated[when] = dict(self.numbers)
            self._note_best()
        return reports

    def _saved_rows(self, setting: str) -> Sequence[Sample]:
        return [row for row in self._rows if row.setting == setting]

    def _record_evaluation(self, setting: EvaluationSetting, report: EvaluationReport) -> None:
        if self._evaluating in self._evaluated:
            self.numbers |= self._evaluated[self._evaluating]
            return
        super()._record_evaluation(setting, report)
        self._health.look(evaluation_numbers(setting, report), self.step)

    def _note_best(self) -> None:
        metric = self.recipe.run.keep_best
        if metric is None:
            return
        value = measured("run.keep_best", metric, self.numbers)
        if math.isnan(value) or not self.step:
            return
        if self._best is None or value > self._best[0]:
            self._best = (value, f"checkpoint-{self.step}")
            # where training goes on from, it is there already
            there = self.continued.step if self.continued else None
            if self._evaluating == f"step-{self.step}" and self.step != there:
                self.trainer.control.should_save = True

    # -- the end ------------------------------------------------------------------------------------

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._held.close()
