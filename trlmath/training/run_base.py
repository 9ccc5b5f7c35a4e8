"""What every training run shares: its directory and manifest, evaluation, saving, and how it ended."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers import PrinterCallback, ProgressCallback
from transformers.trainer_utils import align_special_tokens
from transformers.utils.logging import disable_progress_bar

from trlmath.data.filtering import LedgerEntry
from trlmath.data.fingerprint import fingerprint
from trlmath.errors import RecipeError, say
from trlmath.evaluation.display import Unwatched, Watch
from trlmath.evaluation.prepare import evaluation_settings
from trlmath.evaluation.report import EvaluationReport
from trlmath.evaluation.run import EvaluationSet, evaluate
from trlmath.evaluation.sample import Sample
from trlmath.hookspecs import RunView
from trlmath.plugins import discover, notify
from trlmath.recipe import Recipe, check_reward_timeout, check_trainer
from trlmath.recipe.schema import EvaluationSetting
from trlmath.reward_faults import tell_faults
from trlmath.runs.checkpoints import saved_whole
from trlmath.runs.components import components_used, keep_one_offs
from trlmath.runs.directory import RunDirectory, new_run_path
from trlmath.runs.manifest import describe
from trlmath.sampling.choose import check_engine, engine_of
from trlmath.sampling.models import load_policy, parameters_of
from trlmath.sampling.sampler import Sampler
from trlmath.sampling.serving import check_servers
from trlmath.sampling.settings import SamplingSettings
from trlmath.together import from_first, from_main
from trlmath.training import trackers
from trlmath.training.display import Display, Silent
from trlmath.training.evaluation_numbers import evaluation_numbers
from trlmath.training.model import lora_config
from trlmath.training.prepare import PreparedRun, dropped_by_filter, rows_by_filter
from trlmath.training.same_run import compare, in_words


class TrainingRun(ABC):
    """One run of a recipe; a context manager that closes what it opened and records how it ended.

    Everything that can be wrong with the recipe, its parts and its data is found on construction,
    before a weight is loaded.

    Attributes:
        algorithm: which `recipes/<algorithm>.py` it is of.
        directory: the run directory (Path).
        recipe: the resolved recipe.
        trainer: TRL's trainer, or ours on it.
        numbers: of the last evaluation, as they stand in ``metrics.jsonl``; the same on every process.

    Raises:
        RecipeError, PluginError, DataError, EngineError: saying what is wrong and what to do.
    """

    algorithm: ClassVar[str]
    trainer: Any

    def __init__(self, recipe: Recipe, display: Display | None = None) -> None:
        self.recipe = recipe
        self.numbers: dict[str, float] = {}
        self._held = ExitStack()  # the run directory, as its only writer
        self._changed: list[str] = []  # since the run that is gone on with
        self.watch: Watch = Unwatched()
        check_trainer(recipe, self.algorithm)
        # transformers gives its own timeout too late: the group is made here
        timeout = timedelta(seconds=recipe.trainer.get("ddp_timeout", 1800))
        state = PartialState(cpu=not torch.cuda.is_available(), timeout=timeout)
        self.main, self.processes = state.is_main_process, state.num_processes
        check_reward_timeout(recipe, self.processes, timeout.total_seconds())
        self.display: Display = display if display and self.main else Silent()
        # an engine that is not installed, a server that is not there: told before anything is written
        engine_of(recipe, parameters=0)
        check_servers(recipe)
        self._prepared = self._prepare()
        tell = say if isinstance(self.display, Silent) else self.display.note
        tell_faults(self._prepared.rewards, tell, state.process_index)
        discover().tell = tell  # observers are called on the main process
        discover().limit = recipe.checks.reward_timeout
        self._engine_chosen = engine_of(
            recipe, parameters_of(self._prepared.model_path), self._drawn_in_all()
        )
        if self.generates:
            check_engine(recipe, self._engine_chosen[0], trains=True)
        peft = lora_config(recipe)
        self.directory = self._shared_path()
        arguments = self._arguments(self.directory / "checkpoints")
        self._files = self._open() if self.main else None
        self._view = RunView(self.directory, recipe)
        self._started = time.perf_counter()
        self._manifest = describe(
            recipe=recipe.name,
            algorithm=self.algorithm,
            seeds={"run": recipe.run.seed},
            processes=self.processes,
            model=self._prepared.model_path,
            prompt={"name": self._prepared.prompt.name, "sha256": self._prepared.prompt.sha256},
            **self._facts(),
        )
        try:
            self._record_start()
        except BaseException:  # refused: whoever goes on in this process may try again
            self._held.close()
            raise
        self.display.record(self.directory / "console.log")
        self.display.note(f"run      {self.directory}")
        self._show_data()
        try:
            self._build(arguments, peft)
        except BaseException as error:
            self._record_failure(error)
            raise

    # -- what an algorithm fills in ---------------------------------------------------------------

    @abstractmethod
    def _prepare(self) -> PreparedRun:
        """Resolve the recipe's parts and data, loading no weight."""

    @abstractmethod
    def _arguments(self, checkpoints: Path) -> Any:
        """TRL's config."""

    @abstractmethod
    def _make_trainer(self, model: Any, engine: str, arguments: Any, peft: Any) -> Any:
        """The trainer around `model`, generating with `engine`."""

    @abstractmethod
    def ready_sampler(self) -> Sampler:
        """The engine, generating from the current weights."""

    @abstractmethod
    def _steps(self) -> int:
        """Optimizer steps of the run."""

    @abstractmethod
    def train(self) -> None:
        """Train for the recipe's steps."""

    @abstractmethod
    def _close(self) -> None:
        """Free what is not the trainer's own."""

    def _facts(self) -> dict[str, Any]:
        """What the manifest says of data and parts."""
        prepared = self._prepared
        return {
            "rows": {
                "read": prepared.rows_read,
                "train": len(prepared.problems),
                "eval": len(prepared.held_out.problems),
                "dropped": dropped_by_filter(prepared.ledger),
                "filters": rows_by_filter(
                    prepared, ("example", "trace") if self.algorithm == "sft" else ("example",)
                ),
            },
            "data": {
                "train": {"name": prepared.recipe.data.train.name, "sha256": fingerprint(prepared.problems)},
                "eval": {
                    "name": prepared.recipe.data.eval.name if prepared.recipe.data.eval else None,
                    "sha256": fingerprint(prepared.held_out.problems),
                },
            },
            "components": components_used(prepared.recipe, self.algorithm),
        }

    def _data_notes(self) -> Iterable[str]:
        """Lines about the data for the person watching."""
        prepared = self._prepared
        dropped = f" ({len(prepared.ledger)} dropped: {dropped_by_filter(prepared.ledger)})"
        yield (
            f"data     {len(prepared.problems)} problems to train on{dropped if prepared.ledger else ''}, "
            f"{len(prepared.held_out.problems)} held out"
        )

    def _show_data(self) -> None:
        """Tell the person watching what is trained on."""
        for line in [*self._data_notes(), *self._changed]:
            self.display.note(line)

    def _drawn_in_all(self) -> int | None:
        """Completions that the run draws, where it needs no old log-probabilities of them; else None."""
        return None

    # -- construction -----------------------------------------------------------------------------

    def _build(self, arguments: Any, peft: Any) -> None:
        recipe, prepared = self.recipe, self._prepared
        disable_progress_bar()  # transformers' own, for loading and saving, would break into ours
        model = load_policy(recipe, prepared.model_path)
        engine, why = self._engine_chosen
        self.display.note(f"model    {recipe.model.path}, {model.num_parameters() / 1e6:.1f} M parameters")
        if self.generates:
            self.display.note(f"engine   {engine}: {why}")
        self._manifest["engine"] = {"name": engine, "why": why}
        try:
            self.trainer = self._make_trainer(model, engine, arguments, peft)
        except (ValueError, ImportError) as error:  # a package or a module that is not there, values at odds
            raise RecipeError(
                f"TRL, transformers or peft cannot build the trainer from `trainer` and `model.lora`: {error}"
            ) from error
        # progress and metrics are ours; transformers would print each log as a dict
        self.trainer.remove_callback(PrinterCallback)
        self.trainer.remove_callback(ProgressCallback)
        trackers.attach(self.trainer, self.directory)

    def _shared_path(self) -> Path:
        """The run directory, the same on every process."""
        given = self.recipe.run.dir
        return from_first(Path(given).expanduser() if given else new_run_path(self.recipe.name))

    def _open(self) -> RunDirectory:
        """Make the run directory; on the main process."""
        return RunDirectory(self.directory)

    def _saved_rows(self, setting: str) -> Sequence[Sample]:
        """Rows of an evaluation's setting that an interrupted run has left; they are not drawn again."""
        return ()

    def _record_start(self) -> None:
        if not self._files:
            return
        keep_one_offs(self._manifest["components"], self._files)
        self._files.write_json("manifest.json", self._manifest)
        # last: a directory with a recipe is taken, and to go on in it takes the manifest
        self._files.write_text("recipe.yaml", self.recipe.to_yaml())
        self._record_drops(self._prepared.ledger)
        notify("run_started", run=self._view)
        notify("rows_filtered", ledger=self._prepared.ledger)

    def _check_same(self, begun: bool, **where: Any) -> None:
        """Refuse to go on, from `where`, with what would be another run; note what else has changed."""
        changes, earlier = from_main(
            self.main, lambda: compare(self.directory, self._manifest, self._engine_chosen[0], begun)
        )
        self._changed = [f"resume   changed: {in_words(change)}" for change in changes]
        self._manifest["resumed"] = [*earlier, {**where, "changed": changes}]

    def _record_going_on(self) -> None:
        if self._files:
            keep_one_offs(self._manifest["components"], self._files)
            self._files.write_json("manifest.json", self._manifest)
            notify("run_started", run=self._view)

    def _record_drops(self, dropped: Iterable[LedgerEntry], **more: Any) -> None:
        for entry in dropped if self._files else ():
            self._files.append("filters.jsonl", {**more, **entry.to_dict()})  # type: ignore[union-attr]

    # -- what a recipe calls ----------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    @property
    def generates(self) -> bool:
        """Whether the run needs an engine at all."""
        return True

    @property
    def step(self) -> int:
        """Optimizer steps taken."""
        return self.trainer.state.global_step

    def evaluate(self, when: str) -> list[EvaluationReport]:
        """Evaluate the current weights with each of the recipe's settings; `when` is for the files."""
        if not self.recipe.evaluation.enabled:
            return []
        prepared, accelerator = self._prepared, self.trainer.accelerator
        data = EvaluationSet(
            prepared.held_out.problems,
            prepared.held_out.prompts,
            prepared.held_out.prompt_ids,
            prepared.rewards,
            [reward.weight for reward in prepared.rewards],
        )
        sampler = self.ready_sampler()
        reports = []
        for setting in self.recipe.evaluation.settings:
            with self.display.bar(f"evaluate {when}, {setting.name}", len(data.problems)) as advance:
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
                    done=self._saved_rows(f"{when}/{setting.name}"),
                    by=self.recipe.evaluation.by,
                    given_up=self._given_up,
                )
            reports.append(report)
            self._record_evaluation(setting, report)
        return reports

    def finish(self, before: Sequence[EvaluationReport] = (), after: Sequence[EvaluationReport] = ()) -> None:
        """Save the model, show before and after, and record the end."""
        final = self.directory / "checkpoints" / "final"
        # as transformers does before training: a run continued after its last step has not trained
        align_special_tokens(self.trainer.model, self._prepared.tokenizer)
        with saved_whole(final, self.main, self.trainer.accelerator.wait_for_everyone) as beside:
            self.trainer.save_model(str(beside))
            if self._files:
                self._prepared.tokenizer.save_pretrained(beside)
        seconds = time.perf_counter() - self._started
        summary = {
            "seconds": round(seconds, 1),
            "steps": self.step,
            "before": [r.to_dict() for r in before],
            "after": [r.to_dict() for r in after],
        }
        self._manifest |= {"status": "finished", "summary": summary}
        if self._files:
            self._files.write_json("manifest.json", self._manifest)
            notify("checkpoint_saved", path=final, step=self.step)
            notify("run_finished", run=self._view, summary=summary)
            trackers.close(self.trainer)
        self.display.comparison(before, after)
        if self.recipe.run.report:
            self.display.report(self.directory)
        self.display.note(f"{self.step} steps in {seconds:.0f} s; everything is in {self.directory}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._record_failure(error)
            if self._files and self.recipe.run.report:
                self.display.report(self.directory)  # how far it came, and why it ended
            if isinstance(error, KeyboardInterrupt) and self._files and self.recipe.run.resume is not False:
                self.display.note(f"go on    with the same command and run.dir={self.directory}")
        self._close()

    def _record_failure(self, error: BaseException) -> None:
        if not self._files:
            return
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        step = self.step if hasattr(self, "trainer") else 0
        self._manifest |= {"status": status, "error": f"{type(error).__name__}: {error}", "step": step}
        try:
            self._files.write_json("manifest.json", self._manifest)
            self._files.log(f"{status}: {type(error).__name__}: {error}")
        except OSError:
            pass  # the disk is full or gone: `error` is what the user has to see

    # -- what happens in between ------------------------------------------------------------------

    def _tell(self, line: str) -> None:
        self.display.note(line)

    def _evaluate_at(self, step: int) -> None:
        training = self.trainer.model.training
        try:
            self.evaluate(f"step-{step}")
        finally:
            self.trainer.model.train(training)

    def _given_up(self) -> bool:
        """Whether to leave the evaluation in progress; asked before each round, on every process alike."""
        return False

    def _settings(self, setting: EvaluationSetting) -> SamplingSettings:
        own = self._prepared.settings
        return evaluation_settings(setting, own.min_tokens, own.max_tokens, own.stop, self.recipe.run.seed)

    def _record_evaluation(self, setting: EvaluationSetting, report: EvaluationReport) -> None:
        numbers = evaluation_numbers(setting, report)
        self.numbers |= numbers
        if not self._files:
            return
        self._files.append("metrics.jsonl", {"step": self.step, **numbers})
        trackers.send(self.trainer, numbers)
        self._files.append("evaluation/reports.jsonl", {"step": self.step, **report.to_dict()})
        notify("evaluated", report=report, step=self.step)
