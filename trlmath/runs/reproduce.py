"""The command line that repeats a run, and what is not as it was then."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trlmath.errors import RecipeError
from trlmath.recipe.shipped import recipes_folder
from trlmath.runs.manifest import VARIABLES, describe, git_state
from trlmath.runs.read import StoredRun, flat


@dataclass(frozen=True)
class Repeat:
    """How to run it again.

    Attributes:
        command: as a list of arguments.
        environment: variables that the run had and that change numbers.
        cwd: where it was started: a recipe may name files from there. None: where we are.
        changed: (what, then, now) of versions and code that are not as they were.
    """

    command: list[str]
    environment: Mapping[str, str]
    cwd: Path | None
    changed: list[tuple[str, Any, Any]]


def repeat_of(run: StoredRun, directory: Path) -> Repeat:
    """Build the command that repeats `run` into `directory`.

    Raises:
        RecipeError: the directory does not say which script it was, or the script is not to be found.
    """
    recipe = run.path / "recipe.yaml"
    if not recipe.is_file():
        raise RecipeError(f"{run.path} has no recipe.yaml: there is nothing to repeat.")
    given = ["--config", str(recipe.resolve()), f"run.dir={directory.resolve()}", "run.resume=null"]
    if "evaluation" in run.manifest and "algorithm" not in run.manifest:
        command = [sys.executable, "-m", "trlmath", "evaluate", *given]
    else:
        command = [*_launcher(int(run.manifest.get("processes") or 1)), str(_script(run)), *given]
    now, start = describe(), _started_from(run)
    if start:
        now["git"]["here"] = git_state(start)
    then = {name: run.manifest.get(name) for name in ("python", "machine", "packages", "git", "cpus")}
    changed = [
        (key, value, flat(now).get(key)) for key, value in flat(then).items() if value != flat(now).get(key)
    ]
    told = run.manifest.get("variables") or {}
    # those alone that a manifest records: a variable can also start a program
    variables = {name: str(told[name]) for name in VARIABLES if name in told}
    return Repeat(command, variables, start, changed)


def _started_from(run: StoredRun) -> Path | None:
    """The folder that the run was started from, if it is there and another than ours."""
    told = run.manifest.get("cwd")
    there = Path(told) if isinstance(told, str) else None
    return there if there and there.is_dir() and there != Path.cwd() else None


def _launcher(processes: int) -> list[str]:
    if processes == 1:
        return [sys.executable]
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1"]
    return [*launch, "--num_processes", str(processes), "--mixed_precision", "no", "--dynamo_backend", "no"]


def _script(run: StoredRun) -> Path:
    name = run.manifest.get("algorithm") or Path(str((run.manifest.get("command") or [""])[0])).stem
    folder = recipes_folder() or Path("recipes")
    script = folder / f"{name}.py"
    if script not in folder.glob("*.py"):  # a name with slashes in it would be another program
        raise RecipeError(
            f"{run.path / 'manifest.json'} does not say which script it was of (algorithm: {name!r}), or "
            f"there is no {script}. Its command was: {' '.join(map(str, run.manifest.get('command') or []))}"
        )
    return script
