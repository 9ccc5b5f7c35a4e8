"""An evaluation as a run: prepare, go on from what is saved, evaluate every setting, write the report."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from transformers.utils.logging import disable_progress_bar

from trlmath.errors import RecipeError, say
from trlmath.evaluation.display import Display, Silent
from trlmath.evaluation.engine import build, choose
from trlmath.evaluation.prepare import prepare_evaluation
from trlmath.evaluation.report import EvaluationReport
from trlmath.evaluation.run import chunks, evaluate
from trlmath.evaluation.sample import Sample
from trlmath.evaluation.store import resume
from trlmath.hookspecs import RunView
from trlmath.plugins import discover, notify
from trlmath.recipe import Recipe
from trlmath.reward_faults import tell_faults
from trlmath.runs.components import components_used, keep_one_offs
from trlmath.runs.directory import RunDirectory
from trlmath.runs.lock import open_locked
from trlmath.runs.manifest import describe
from trlmath.sampling.sampler import Sampler
from trlmath.together import from_main


class EvaluationRun:
    """One evaluation of a recipe; a context manager that closes what it opened.

    The same recipe continues where it was interrupted, and draws nothing when nothing is missing.

    Attributes:
        directory: where ``samples.jsonl`` and ``report.json`` are.

    Args:
        fit: choose ``sampling.max_tokens`` by the context, see `prepare_evaluation`.

    Raises:
        RecipeError, PluginError, DataError, EngineError: saying what is wrong and what to do; all that
            can be found without the weights is found on construction.
    """

    def __init__(self, recipe: Recipe, display: Display | None = None, fit: bool = False) -> None:
        self.recipe = recipe
        self._state = PartialState(cpu=not torch.cuda.is_available())
        self._main = self._state.is_main_process
        self.display: Display = display if display and self._main else Silent()
        self._prepared = prepare_evaluation(recipe, fit)
        self._engine, why = choose(self._prepared)
        self._identity = self._prepared.identity(self._engine)
        self.directory = (
            Path(recipe.run.dir).expanduser() if recipe.run.dir else default_directory(self._identity)
        )
        self._held = ExitStack()
        self._sampler: Sampler | None = None
        self._files = self._open() if self._main else None
        self._view = RunView(self.directory, recipe)
        tell = say if isinstance(self.display, Silent) else self.display.note
        tell_faults(self._prepared.rewards, tell, self._state.process_index)
        discover().tell = tell  # observers are called on the main process
        discover().limit = recipe.checks.reward_timeout
        self._done = self._shared_rows()
        self.display.record(self.directory / "console.log")
        self.display.note(f"run      {self.directory}")
        self.display.note(
            f"data     {len(self._prepared.data.problems)} problems of {self._identity['dataset']}"
        )
        adapter = f", an adapter on {self._prepared.files.base}" if self._prepared.files.base else ""
        self.display.note(f"model    {recipe.model.path}{adapter}")
        self.display.note(f"engine   {self._engine}: {why}; at most {self._prepared.max_tokens} tokens")
        for note in self._prepared.notes:
            self.display.note(f"note     {note}")
        if self._done:
            self.display.note(f"resume   {len(self._done)} completions are there already")
        if self._files:
            notify("run_started", run=self._view)

    def run(self) -> list[EvaluationReport]:
        """Evaluate every setting, write ``report.json`` and show the tables."""
        reports = [self._evaluate(number) for number in range(len(self.recipe.evaluation.settings))]
        if self._files:
            self._files.write_json("report.json", self._report(reports))
            self._manifest |= {"status": "finished"}
            self._files.write_json("manifest.json", self._manifest)
            notify("run_finished", run=self._view, summary={"reports": [r.to_dict() for r in reports]})
        for report in reports:
            self.display.evaluation(report)
        self.display.note(f"samples and report are in {self.directory}")
        return reports

    def __enter__(self) -> EvaluationRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._files:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            self._manifest |= {"status": status, "error": f"{type(error).__name__}: {error}"}
            self._files.write_json("manifest.json", self._manifest)
            self._files.log(f"{status}: {type(error).__name__}: {error}")
            if (self.directory / "samples.jsonl").exists():
                self.display.note(f"the same command goes on from {self.directory / 'samples.jsonl'}")
        self._held.close()

    # -- what happens in between ------------------------------------------------------------------

    def _evaluate(self, number: int) -> EvaluationReport:
        setting = self.recipe.evaluation.settings[number]
        data, size = self._prepared.data, self.recipe.evaluation.chunk
        done = [row for row in self._done if row.setting == setting.name]
        sampler = self._ready(complete=len(done) == len(data.problems) * setting.n)
        processes = self._state.num_processes
        with self.display.bar(f"evaluate {setting.name}", len(data.problems)) as advance:
            report = evaluate(
                sampler,
                data,
                setting.name,
                self._prepared.settings(setting),
                setting.n,
                self.directory / "samples.jsonl",
                share=(self._state.process_index, processes),
                gather=gather_object if processes > 1 else list,
                progress=advance,
                chunk=size,
                done=done,
                by=self.recipe.evaluation.by,
            )
        if self._files:
            notify("evaluated", report=report, step=0)
        return report

    def _ready(self, complete: bool) -> Any:
        """The engine, started when a completion is missing for the first time."""
        if self._sampler is None and not complete:
            disable_progress_bar()
            state = self._state
            self._sampler = build(
                self._prepared,
                self._engine,
                state.device,
                state.num_processes,
                state.process_index,
                self._held,
                self.directory / "server.log",
            )
        return self._sampler

    def _open(self) -> RunDirectory:
        files = open_locked(self.directory, True, self._held)
        self._check_same()
        components = components_used(self.recipe, "evaluate")
        keep_one_offs(components, files)
        self._manifest = describe(
            components=components,
            recipe=self.recipe.name,
            processes=self._state.num_processes,
            engine=self._engine,
            evaluation=self._identity,
        )
        files.write_text("recipe.yaml", self.recipe.to_yaml())
        files.write_json("manifest.json", self._manifest)
        return files

    def _check_same(self) -> None:
        manifest, recipe = self.directory / "manifest.json", self.directory / "recipe.yaml"
        if not manifest.exists():
            if recipe.exists() or (self.directory / "samples.jsonl").exists():
                raise RecipeError(f"{self.directory} holds another run. Choose another --out (run.dir).")
            return
        before = json.loads(manifest.read_text(encoding="utf-8")).get("evaluation")
        if before is None:
            raise RecipeError(f"{self.directory} holds a training run. Choose another --out (run.dir).")
        changed = [
            f"{key} was {before.get(key)!r}, is {value!r}"
            for key, value in self._identity.items()
            if before.get(key) != value
        ]
        if changed:
            raise RecipeError(
                f"{self.directory} holds another evaluation: {'; '.join(changed)}. To go on with that one, "
                "give the same command; for a new one choose another --out (run.dir). Nothing was changed."
            )

    def _shared_rows(self) -> list[Sample]:
        """Saved rows of whole chunks, the same on every process."""
        numbers = chunks(len(self._prepared.data.problems), self.recipe.evaluation.chunk)
        settings = self.recipe.evaluation.settings
        whole = [(s.name, chunk, s.n) for s in settings for chunk in numbers]
        return from_main(self._main, lambda: resume(self.directory / "samples.jsonl", whole))

    def _report(self, reports: list[EvaluationReport]) -> dict[str, Any]:
        settings = self.recipe.evaluation.settings
        return {
            **{key: self._identity[key] for key in ("model", "weights", "engine", "dataset", "dtype")},
            "prompt": self.recipe.data.prompt.name,
            "prompt_sha256": self._prepared.prompt.sha256,
            "max_tokens": self._prepared.max_tokens,
            "seed": self.recipe.run.seed,
            "settings": {
                s.name: {"temperature": s.temperature, "top_p": s.top_p, "n": s.n, **r.to_dict()}
                for s, r in zip(settings, reports, strict=True)
            },
        }


def default_directory(identity: dict[str, Any]) -> Path:
    """``runs/evaluate-<model>-<dataset>-<hash>``: the same command finds its own rows again."""
    import hashlib

    digest = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:8]
    model = Path(identity["model"])
    # checkpoints are all called `final` or `checkpoint-<step>`; their run tells them apart
    named = model.parts[-3] if len(model.parts) > 2 and model.parent.name == "checkpoints" else model.name
    named = "nano" if model.parts[-2:] == ("nano", "model") else named
    words = (named, Path(identity["dataset"]).stem)
    return Path("runs") / "-".join(["evaluate", *(re.sub(r"[^\w.]+", "_", w) for w in words), digest])
