"""What an expert iteration run keeps after each phase, and how it finds it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trlmath.data.filtering import NamedFilter
from trlmath.data.lineage import from_json, to_json
from trlmath.evaluation.run import chunks
from trlmath.evaluation.sample import Sample
from trlmath.evaluation.store import resume
from trlmath.recipe.schema import EvaluationSection
from trlmath.runs.directory import RunDirectory
from trlmath.training.iterated_sft import IteratedSFTTrainer
from trlmath.training.phases import Progress, read_lines, save_progress, write_lines
from trlmath.training.sampled import SampledSoFar
from trlmath.training.tensors import read_optimizer, read_weights, write_optimizer, write_weights
from trlmath.types import Problem

Writers = Mapping[str, tuple[str, Callable[[Path], None]]]

# what rows are appended to; an interrupted phase's rows are cut off again
APPENDED = ("metrics.jsonl", "filters.jsonl", "traces.jsonl", "evaluation/reports.jsonl")


class IterationState:
    """Traces, weights, optimizer and filter states of one run, beside its `Progress`.

    Args:
        directory: the run directory.
        files: the same to write to; None on processes other than the first.
        progress: how far the run has come; changed in place.
    """

    def __init__(self, directory: Path, files: RunDirectory | None, progress: Progress) -> None:
        self.folder, self.files, self.progress = directory / "state", files, progress

    def keep(self, writers: Writers | None = None, **done: Any) -> None:
        """Set the fields `done` of the progress and keep it, with what `writers` write."""
        for name, value in done.items():
            setattr(self.progress, name, value)
        if self.progress.phase != "train":
            self.progress.files.pop("traces", None)
        if self.files:
            save_progress(self.files, self.progress, writers or {}, APPENDED)

    def traces(self) -> list[Problem]:
        """The candidates of an iteration that was interrupted in its training; else none."""
        name = self.progress.files.get("traces")
        return [from_json(row) for row in read_lines(self.folder / name)] if name else []

    def sampled(self, iteration: int) -> SampledSoFar:
        """What the iteration's sampling has drawn so far; gone when a phase is kept."""
        return SampledSoFar(self.folder / f"{iteration:03d}-sampled.jsonl")

    def load_filters(self, filters: Sequence[NamedFilter]) -> None:
        """Give the filters the states that were kept."""
        name = self.progress.files.get("filters")
        states = [from_json(row) for row in read_lines(self.folder / name)] if name else []
        for named, state in zip(filters, states, strict=bool(name)):
            if state is not None:
                named.load_state_dict(state)

    def load_trainer(self, trainer: IteratedSFTTrainer) -> None:
        """Give the trainer the weights and the optimizer's state that were kept. Raises DataError."""
        names = self.progress.files
        trainer.tokens, trainer.steps = self.progress.tokens, self.progress.steps
        trainer.state.global_step = trainer.steps
        if "weights" in names:
            model = trainer.accelerator.unwrap_model(trainer.model)
            read_weights(model, self.folder / names["weights"])
        if "optimizer" in names:
            read_optimizer(trainer.create_optimizer(), self.folder / names["optimizer"])

    @staticmethod
    def of_traces(iteration: int, traces: Sequence[Problem]) -> Writers:
        """Writes candidate traces."""
        return {"traces": (f"{iteration:03d}-traces.jsonl", lambda path: write_lines(path, to_json(traces)))}

    @staticmethod
    def of_filters(iteration: int, filters: Sequence[NamedFilter]) -> Writers:
        """Writes the states of filters, a line each."""
        rows = [to_json(named.state_dict()) for named in filters]
        return {"filters": (f"{iteration:03d}-filters.jsonl", lambda path: write_lines(path, rows))}

    @staticmethod
    def of_trainer(iteration: int, trainer: IteratedSFTTrainer, optimizer: bool) -> Writers:
        """Writes the weights, and the optimizer's state when it is carried on."""
        model, name = trainer.accelerator.unwrap_model(trainer.model), f"{iteration:03d}"
        weights = {"weights": (f"{name}-weights.safetensors", lambda path: write_weights(model, path))}
        state = trainer.optimizer
        if not optimizer or state is None:
            return weights
        return {
            **weights,
            "optimizer": (f"{name}-optimizer.safetensors", lambda path: write_optimizer(state, path)),
        }


def saved_rows(
    directory: Path, evaluation: EvaluationSection, names: Sequence[str], problems: int
) -> list[Sample]:
    """Rows of the evaluations `names` of `problems` that are saved already; rows of part of a chunk go."""
    numbers = chunks(problems, evaluation.chunk)
    whole = [
        (f"{name}/{s.name}", chunk, s.n) for name in names for s in evaluation.settings for chunk in numbers
    ]
    return resume(directory / "evaluation" / "samples.jsonl", whole)
