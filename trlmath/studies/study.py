"""A study from its file to its table: check everything, run what is not finished, read the results."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from trlmath.errors import RecipeError, nearest
from trlmath.runs.directory import RunDirectory
from trlmath.sampling.models import weights_fingerprint
from trlmath.studies.check import check_runs
from trlmath.studies.children import Child, check_launcher, command_line, stop, tail
from trlmath.studies.expand import expand
from trlmath.studies.results import Row, RunResult, read_result, rows, settings_of
from trlmath.studies.schedule import run_all
from trlmath.studies.schema import load_study, study_name
from trlmath.studies.state import NEW, RECORD, State, is_finished, make_room, read_record, states

TAIL = 12  # lines of a failed run's log
UNENDED = 70  # stands for exit status 0 of a run that did not finish


class StudyDisplay(Protocol):
    """Who is told how a study goes."""

    def note(self, text: str) -> None:
        """Say one line."""

    def running(self, lines: Sequence[tuple[str, float, str]]) -> None:
        """Show (run, seconds, last line of its log) of the running ones; called often."""


class Study:
    """A study that can start: every run's recipe is loaded and checked.

    Args:
        path: the study file, or a shipped name.
        overrides: ``key=value`` for every run, ``RUN:key=value`` for those of that name or algorithm.
        directory: where it writes; default: the file's ``dir``, else ``runs/<study>``.

    Attributes:
        runs: each after the one it starts from.
        states: what is there already, by run.

    Raises:
        RecipeError: everything that is wrong with the study and its recipes.
    """

    def __init__(
        self, path: str | Path, overrides: Sequence[str] = (), directory: Path | None = None
    ) -> None:
        self.spec, self.file = load_study(path)
        check_launcher(self.spec.launcher)
        folder = self.file.resolve().parent
        chosen = directory or Path(self.spec.dir or Path("runs") / study_name(self.file))
        self.directory = chosen.expanduser().resolve()
        planned = expand(self.spec, folder, overrides)
        groups = list(dict.fromkeys(run.group for run in planned))
        self.baseline = self.spec.baseline or planned[0].group
        named = [("baseline", self.baseline), *((f"{r.name}: against", r.against) for r in planned)]
        for where, name in named:
            if name is not None and name not in groups:
                raise RecipeError(
                    f"{where}: no run is called {name!r}.{nearest(name, groups)} "
                    f"There are: {', '.join(groups)}."
                )
        self.runs = check_runs(planned, folder, self.directory, self.spec.compare)
        self._record = read_record(self.directory)
        self.states: dict[str, State] = states(self.runs, self._record)
        self._by_name = {run.run.name: run for run in self.runs}
        self._ended: dict[str, str] = {}

    def log(self, name: str) -> Path:
        """Where a run's output goes."""
        return self.directory / "logs" / f"{name}.log"

    def run(self, display: StudyDisplay, jobs: int = 1) -> None:
        """Run what is not finished; a KeyboardInterrupt stops the runs and comes back.

        Raises:
            RecipeError: another process runs this study, or the launcher cannot be started.
        """
        with ExitStack() as held:
            self.directory.mkdir(parents=True, exist_ok=True)
            lock = held.enter_context((self.directory / ".lock").open("w"))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RecipeError(
                    f"another process is running this study in {self.directory}, or a run that it has left "
                    "behind still goes on. Wait for it, or choose another --dir."
                ) from error
            watcher = _Watcher(self, display, jobs, lock.fileno())
            try:
                run_all(
                    [run.run.name for run in self.runs],
                    {run.run.name: run.run.source for run in self.runs},
                    [name for name, state in self.states.items() if state.finished],
                    watcher.start,
                    stop,  # type: ignore[arg-type]  # the children are ours
                    watcher,
                    jobs,
                )
            except BaseException:
                for name in watcher.children:
                    self._end(name, "interrupted", watcher.children[name].seconds)
                raise
            finally:
                display.running(())
                self.write()

    def _end(self, name: str, status: str, seconds: float | None = None) -> None:
        self._ended[name] = status
        entry = self._record.setdefault("runs", {}).setdefault(name, {})
        entry["status"] = status
        if seconds is not None:
            entry["seconds"] = round(seconds, 1)

    def _status(self, name: str) -> str:
        there = self.states[name]
        return self._ended.get(name, "not run" if there.why == NEW else there.why)

    # -- results ----------------------------------------------------------------------------------

    def results(self) -> list[RunResult]:
        """Every run with what it came to."""
        found = []
        for run in self.runs:
            name = run.run.name
            status = self._status(name)
            seconds = self._record.get("runs", {}).get(name, {}).get("seconds")
            empty = RunResult(
                name,
                run.run.group,
                run.run.algorithm,
                run.directory,
                status,
                seconds if status == "finished" else None,
                seed=run.run.seed,
                against=None if run.run.group == self.baseline else run.run.against or self.baseline,
            )
            found.append(read_result(empty))
        return found

    def tables(self) -> dict[str, list[Row]]:
        """The table's lines for each evaluation setting, the compared one first."""
        results = self.results()
        names = settings_of(results)
        first = self.spec.compare.setting
        names.sort(key=lambda name: name != first)
        return {name: rows(results, name, self.spec.compare.part) for name in names}

    def write(self) -> None:
        """Write ``study.json``: the runs, how they ended, and every table."""
        record = self._record.setdefault("runs", {})
        for run in self.runs:
            name = run.run.name
            record.setdefault(name, {}).update(
                group=run.run.group,
                seed=run.run.seed,
                algorithm=run.run.algorithm,
                recipe=str(run.config),
                arguments=list(run.arguments),
                source=run.run.source,
                directory=str(run.directory),
                log=str(self.log(name)),
                status=self._status(name),
            )
        self._record |= {
            "study": str(self.file),
            "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "baseline": self.baseline,
            "compare": self.spec.compare.model_dump(),
            "runs": {run.run.name: record[run.run.name] for run in self.runs},
            "tables": {name: [row.to_dict() for row in lines] for name, lines in self.tables().items()},
        }
        RunDirectory(self.directory, again=True).write_json(RECORD, self._record)

    def write_text(self, name: str, text: str) -> None:
        """Write a file of the study."""
        RunDirectory(self.directory, again=True).write_text(name, text)

    @property
    def failed(self) -> list[str]:
        """Runs that failed or were skipped in this call."""
        return [name for name, status in self._ended.items() if status in ("failed", "skipped")]


class _RunChild(Child):
    """A child that must leave a finished run: a launcher that only queues it has not run it."""

    directory: Path

    def poll(self) -> int | None:
        status = super().poll()
        return UNENDED if status == 0 and not is_finished(self.directory) else status


class _Watcher:
    """Starts runs, keeps the record and says what happens."""

    def __init__(self, study: Study, display: StudyDisplay, jobs: int, lock: int) -> None:
        self.study, self.display, self.lock = study, display, lock
        self.children: dict[str, Child] = {}
        self.threads = max(1, (os.cpu_count() or 1) // jobs)

    def start(self, name: str, slot: int) -> Child:
        study = self.study
        run = study._by_name[name]
        entry = study._record.setdefault("runs", {}).setdefault(name, {})
        before, weights = entry.get("source_weights"), None
        if run.run.source is not None:
            weights = weights_fingerprint(str(study._by_name[run.run.source].model))
            entry["source_weights"] = weights
        moved = make_room(run, study.directory, before != weights)
        if moved is not None:
            self.display.note(f"moved    what was in {run.directory} to {moved}")
        arguments = ["--config", str(run.config), *run.arguments]
        command = command_line(study.spec.launcher, run.script, arguments, name, run.directory, slot)
        # kept open by the run: while it lives, nobody else runs this study, even if this process is killed
        child = _RunChild(command, study.log(name), self.threads, keep=(self.lock,))
        child.directory = run.directory
        self.children[name] = child
        return child

    def started(self, name: str) -> None:
        self.display.note(f"started  {name}")

    def ended(self, name: str, status: int) -> None:
        child = self.children.pop(name)
        log = self.study.log(name)
        if status == 0:
            self.study._end(name, "finished", child.seconds)
            self.display.note(f"finished {name} in {child.seconds:.0f} s")
        else:
            self.study._end(name, "failed", child.seconds)
            told = "ended without finishing its run" if status == UNENDED else f"exit status {status}"
            self.display.note(f"failed   {name}: {told}; the end of {log}:")
            for line in tail(log, TAIL):
                self.display.note(f"    {line}")
        self.study.write()

    def skipped(self, name: str, because: str) -> None:
        self.study._end(name, "skipped")
        self.display.note(f"skipped  {name}: it starts from {because}")

    def waiting(self) -> None:
        self.display.running([(n, c.seconds, c.last_line()) for n, c in self.children.items()])
