"""Traces from a teacher: ask, grade and save chunk by chunk; go on after a kill; write what SFT reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from trlmath.data.prompts import Prompt
from trlmath.data.traces import after_tag
from trlmath.errors import DataError, RecipeError
from trlmath.evaluation.run import EvaluationSet, chunks, grade_groups
from trlmath.evaluation.sample import Sample, problem_key, samples_of
from trlmath.evaluation.store import append_samples, resume
from trlmath.rewards import RewardCaller
from trlmath.runs.directory import RunDirectory
from trlmath.runs.lock import RunLock
from trlmath.runs.manifest import describe
from trlmath.sampling.settings import SamplingSettings
from trlmath.sampling.teacher import Teacher
from trlmath.types import Group, Problem

SETTING = "teacher"
Keep = Literal["finished", "right"]


@dataclass(frozen=True)
class Made:
    """What came out.

    Attributes:
        samples: every completion, in order.
        written: traces that SFT can read.
        path: of the file that holds them.
    """

    samples: list[Sample]
    written: int
    path: Path

    def lines(self) -> list[str]:
        """For the person watching."""
        total = len(self.samples)
        finished = sum(sample.finish_reason == "stop" for sample in self.samples)
        told = [f"{total} completions of {len({s.problem for s in self.samples})} problems"]
        told += [f"{finished} finished ({100 * finished / total:.1f} %)"]
        for part in ("format", "answer", "both"):
            values = [s.parts[part] for s in self.samples if s.parts.get(part) is not None]
            if values:
                told.append(f"{part} {100 * sum(v or 0 for v in values) / len(values):.1f} %")
        return [", ".join(told), f"{self.written} traces are in {self.path}"]


class TraceMaker:
    """Asks a teacher about every problem; a context manager. The same arguments go on where it stopped.

    Args:
        problems: each with a question; answers are for grading.
        prompt: its rendering is what the teacher is given, and its stop string ends a trace.
        teacher: who answers.
        rewards: grade the completions; the first one's parts count.
        settings: how the teacher's completions are drawn.
        n: completions a problem.
        directory: for ``samples.jsonl`` (every completion) and ``traces.jsonl`` (what SFT reads).
        keep: which completions become traces: those that ended by themselves, or of these the right ones.
        chunk: problems asked, graded and saved at once.

    Raises:
        DataError: a row brings a prompt of its own.
        RecipeError: the directory holds something else, or is in use.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        prompt: Prompt,
        teacher: Teacher,
        rewards: Sequence[RewardCaller],
        settings: SamplingSettings,
        n: int,
        directory: Path,
        keep: Keep = "finished",
        chunk: int = 64,
    ) -> None:
        if any(problem.prompt is not None for problem in problems):
            raise DataError(
                "rows with a prompt or messages of their own cannot be given to a teacher: the traces would "
                "answer another prompt. Map their question: --column question=COLUMN."
            )
        self.problems, self.prompt, self.teacher = list(problems), prompt, teacher
        self.settings, self.n, self.keep, self.chunk, self.directory = settings, n, keep, chunk, directory
        prompts = [prompt.render(problem.question) for problem in problems]
        self.data = EvaluationSet(self.problems, prompts, [], rewards, [r.weight for r in rewards])
        self._held = ExitStack()
        self._files = self._open()

    def identity(self) -> dict[str, Any]:
        """What makes two jobs the same, so that one may go on where the other stopped."""
        keys = "".join(problem_key(p.question, p.answer) for p in self.problems)
        return {
            "teacher": self.teacher.identity,
            "problems": len(self.problems),
            "problems_sha256": hashlib.sha256(keys.encode()).hexdigest()[:16],
            "prompt_sha256": self.prompt.sha256,
            "rewards": [f"{r.name} {r.options} x {r.weight}" for r in self.data.rewards],  # type: ignore[attr-defined]
            "settings": str(self.settings),
            "n": self.n,
            "chunk": self.chunk,
        }

    def run(self, progress: Callable[..., None] | None = None) -> Made:
        """Ask for what is missing, save it as it comes, and write the traces.

        Raises:
            EngineError: the teacher does not answer; what came so far is kept.
        """
        numbers = chunks(len(self.problems), self.chunk)
        path = self.directory / "samples.jsonl"
        rows = resume(path, [(SETTING, chunk, self.n) for chunk in numbers])
        saved = {row.problem for row in rows}
        if progress and saved:
            progress(len(saved))
        for chunk in numbers:
            if chunk[0] in saved:
                continue
            new = self._ask(chunk)
            append_samples(path, new)
            rows += new
            if progress:
                progress(len(chunk), right=sum(row.parts.get("answer") == 1 for row in new) / len(new))
        rows.sort(key=lambda row: (row.problem, row.sample))
        traces = [self._trace(row) for row in rows if self._kept(row)]
        lines = (json.dumps(trace, ensure_ascii=False) + "\n" for trace in traces)
        self._files.write_text("traces.jsonl", "".join(lines))
        self._files.write_json(
            "manifest.json", self._manifest | {"status": "finished", "written": len(traces)}
        )
        return Made(rows, len(traces), self.directory / "traces.jsonl")

    def __enter__(self) -> TraceMaker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            told = {"status": status, "error": f"{type(error).__name__}: {error}"}
            self._files.write_json("manifest.json", self._manifest | told)
        self._held.close()

    # -- what happens in between ------------------------------------------------------------------

    def _ask(self, numbers: Sequence[int]) -> list[Sample]:
        own = self.settings.seed
        settings = self.settings if own is None else replace(self.settings, seed=own + (numbers[0] << 16))
        groups = self.teacher.generate([self.data.prompts[i] for i in numbers], settings, self.n)
        graded = grade_groups(self.data, numbers, [_continued(group) for group in groups])
        rows: list[Sample] = []
        for number, group in zip(numbers, graded, strict=True):
            rows += samples_of(group, self.problems[number], SETTING, number, settings.seed)
        return rows

    def _kept(self, row: Sample) -> bool:
        return row.finish_reason == "stop" and (self.keep == "finished" or row.parts.get("answer") == 1)

    def _trace(self, row: Sample) -> dict[str, Any]:
        """A row of the file that SFT reads; the dataset's other columns stay under their own names."""
        problem = self.problems[row.problem]
        columns = {"question": problem.question, "answer": problem.answer, "trace": row.completion}
        if problem.solution is not None:
            columns["solution"] = problem.solution
        lineage = {
            "teacher": self.teacher.identity,
            "prompt": self.prompt.name,
            "prompt_sha256": self.prompt.sha256,
            "problem": row.problem,
            "sample": row.sample,
            "temperature": self.settings.temperature,
            "top_p": self.settings.top_p,
            "seed": row.seed,
            "finish_reason": row.finish_reason,
            "tokens": row.tokens,
        }
        grade = {
            "reward": row.reward,
            "parts": dict(row.parts),
            "category": row.category,
            "reason": row.reason,
        }
        return {**row.to_row()["metadata"], **columns, "grade": grade, "lineage": lineage}

    def _open(self) -> RunDirectory:
        files = RunDirectory(self.directory, again=True)
        self._held.callback(RunLock(self.directory).release)
        manifest = self.directory / "manifest.json"
        identity = self.identity()
        before = json.loads(manifest.read_text(encoding="utf-8")).get("traces") if manifest.exists() else None
        if before is None and (manifest.exists() or (self.directory / "samples.jsonl").exists()):
            raise RecipeError(f"{self.directory} holds another run. Choose another --out.")
        changed = [
            f"{key} was {before[key]!r}, is {value!r}"
            for key, value in identity.items()
            if before is not None and before.get(key) != value
        ]
        if changed:
            raise RecipeError(
                f"{self.directory} holds other traces: {'; '.join(changed)}. To go on with those, give the "
                "same command; for new ones choose another --out. Nothing was changed."
            )
        self._manifest = describe(traces=identity)
        files.write_json("manifest.json", self._manifest)
        return files


def _continued(group: Group) -> Group:
    """The group without the tag that ends the prompt where a completion begins with it again."""
    rollouts = tuple(replace(r, text=after_tag(group.prompt, r.text)) for r in group.rollouts)
    return replace(group, rollouts=rollouts)
