"""What is there already: which runs are finished, which must run again, and the study's own record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trlmath.errors import RecipeError, TrlmathError
from trlmath.recipe import Recipe, load_recipe, parse_recipe
from trlmath.recipe.yamls import parse
from trlmath.runs.read import is_run, read_run
from trlmath.sampling.models import weights_fingerprint
from trlmath.studies.check import CheckedRun

RECORD = "study.json"
REPLACED = "replaced"
NEW = "new"
# algorithms that go on where they were interrupted, and the file that they go on from
KEPT = {
    "evaluate": "samples.jsonl",
    "expert_iteration": "state/progress.json",
    "grpo": "checkpoints/checkpoint-*/files.json",
    "sft": "checkpoints/checkpoint-*/files.json",
}


@dataclass(frozen=True)
class State:
    """What a run's directory holds.

    Attributes:
        finished: the result of this very run.
        why: in words, for a person.
    """

    finished: bool
    why: str


def states(runs: Sequence[CheckedRun], record: dict[str, Any]) -> dict[str, State]:
    """The state of every run; one whose source must run again must run again.

    Args:
        runs: each after its source.
        record: of an earlier call, `read_record`.
    """
    found: dict[str, State] = {}
    for run in runs:
        source = run.run.source
        state = _state(run.directory, run.recipe)
        if state.finished and source is not None:
            trained = next(r for r in runs if r.run.name == source).model
            weights = record.get("runs", {}).get(run.run.name, {}).get("source_weights")
            if not found[source].finished:
                state = State(False, f"{source} runs again")
            elif weights is not None and weights != weights_fingerprint(str(trained)):
                state = State(False, f"{source} has other weights now")
        found[run.run.name] = state
    return found


def _state(directory: Path, recipe: Recipe) -> State:
    if not directory.is_dir() or not is_run(directory):
        return State(False, NEW)
    status = read_run(directory).status
    if not _same(directory / "recipe.yaml", recipe):
        return State(False, f"{status}, but its recipe changed")
    return State(status == "finished", "cut off" if status in ("running", "killed") else status)


def is_finished(directory: Path) -> bool:
    """Whether the run in a directory says that it came to its end."""
    return directory.is_dir() and is_run(directory) and read_run(directory).status == "finished"


def _same(saved: Path, recipe: Recipe) -> bool:
    """Whether a saved recipe is `recipe`, keys that were added since at their defaults.

    Where the run writes does not count: it is this directory, by whatever path.
    """
    try:
        there = load_recipe(saved)
    except TrlmathError:
        return False  # of another version of trlmath, or not there
    # through YAML, so that values of TRL's types compare as plain ones
    mine = parse_recipe(parse(recipe.to_yaml(), "a recipe"))
    there.run.dir = mine.run.dir
    return there.to_dict() == mine.to_dict()


def make_room(run: CheckedRun, root: Path, other_weights: bool) -> Path | None:
    """Move what lies in the run's directory aside, unless the run goes on from there.

    Args:
        other_weights: the run starts from other weights than what lies there.

    Returns where it is now, or None when nothing had to be moved. Nothing is ever deleted.
    """
    there = run.directory
    if not there.exists() or (not other_weights and _goes_on(run)):
        return None
    number = 1
    while (root / REPLACED / f"{there.name}-{number}").exists():
        number += 1
    target = root / REPLACED / f"{there.name}-{number}"
    target.parent.mkdir(parents=True, exist_ok=True)
    there.rename(target)
    return target


def _goes_on(run: CheckedRun) -> bool:
    """Whether the same command continues what is there."""
    there = run.directory
    kept = KEPT.get(run.run.algorithm)
    unfinished = kept is not None and any(there.glob(kept)) and not is_finished(there)
    return unfinished and _same(there / "recipe.yaml", run.recipe)


def read_record(root: Path) -> dict[str, Any]:
    """The study's own record; empty where there is none. Raises RecipeError: it cannot be read."""
    file = root / RECORD
    if not file.is_file():
        return {}
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecipeError(f"{file} is not valid JSON: {error}. Remove it: results stay.") from error
