"""Every recipe of a study, loaded and checked as its script's ``--dry-run`` does, before anything starts."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trlmath.errors import RecipeError, TrlmathError, nearest
from trlmath.recipe import Recipe, check_sections, find_recipe, load_recipe
from trlmath.recipe.shipped import recipes_folder
from trlmath.studies.expand import MODEL, StudyRun
from trlmath.studies.schema import CompareSection


@dataclass(frozen=True)
class CheckedRun:
    """A run that can start.

    Attributes:
        script: of its algorithm.
        config: the recipe's file.
        arguments: of the script, after ``--config``.
        recipe: what these two come to.
        directory: where it writes.
    """

    run: StudyRun
    script: Path
    config: Path
    arguments: tuple[str, ...]
    recipe: Recipe
    directory: Path

    @property
    def model(self) -> Path:
        """Where it leaves its model, if it trains one."""
        return self.directory / "checkpoints" / "final"


def check_runs(
    runs: Sequence[StudyRun], folder: Path, directory: Path, compare: CompareSection
) -> list[CheckedRun]:
    """Return the runs with their recipes, checked.

    A run that starts from another's result is checked with the model that the chain begins with, since
    the result is not there yet.

    Args:
        runs: each after its source.
        folder: of the study file, where its recipes are looked for first.
        directory: of the study.

    Raises:
        RecipeError: naming every run whose recipe cannot be, with all that is wrong with it.
    """
    checks: dict[str, Callable[[Recipe], None]] = {}
    found: dict[str, CheckedRun] = {}
    errors: list[str] = []
    broken: set[str] = set()
    for run in runs:
        if run.source in broken:
            broken.add(run.name)  # its own mistakes are told once its source is right
            continue
        try:
            found[run.name] = _checked(run, folder, directory, found, checks)
            _comparable(found[run.name].recipe, compare)
        except TrlmathError as error:
            broken.add(run.name)
            errors.append(f"run {run.name!r}: {error}")
    if errors:
        raise RecipeError("\n".join(errors))
    return list(found.values())


def _checked(
    run: StudyRun,
    folder: Path,
    directory: Path,
    before: Mapping[str, CheckedRun],
    checks: dict[str, Callable[[Recipe], None]],
) -> CheckedRun:
    script = script_of(run.algorithm)
    config = find_config(run.recipe, folder)
    place = directory / run.name
    arguments = [*run.arguments(), f"run.dir={json.dumps(str(place))}"]
    root = _root(run, before) if run.source else None
    start = [] if root is None else [f"{MODEL}={json.dumps(root)}"]
    recipe = load_recipe(config, [*arguments, *start])
    check_sections(recipe, run.algorithm)
    if run.algorithm not in checks:
        checks[run.algorithm] = _check_of(script)
    checks[run.algorithm](recipe)
    if run.source:
        model = before[run.source].model
        arguments.append(f"{MODEL}={json.dumps(str(model))}")
        recipe.model.path = str(model)
    return CheckedRun(run, script, config, tuple(arguments), recipe, place)


def _root(run: StudyRun, before: Mapping[str, CheckedRun]) -> str:
    """The model that the chain of runs before this one begins with."""
    while run.source:
        run = before[run.source].run
    return before[run.name].recipe.model.path


def scripts() -> dict[str, Path]:
    """The recipe scripts by algorithm."""
    folder = recipes_folder()
    return {} if folder is None else {path.stem: path for path in sorted(folder.glob("*.py"))}


def script_of(algorithm: str) -> Path:
    """The script of an algorithm. Raises RecipeError."""
    known = scripts()
    if algorithm not in known:
        raise RecipeError(
            f"algorithm: got {algorithm!r}; allowed: {', '.join(known)}.{nearest(algorithm, known)}"
        )
    return known[algorithm]


def find_config(recipe: str, folder: Path) -> Path:
    """The file of a recipe: beside the study or above it, in the working directory, or a shipped one.

    So a study that was copied together with its recipes finds the copies. Raises RecipeError.
    """
    for place in (folder, *folder.parents[:2]):
        for name in (recipe, f"{recipe}.yaml"):
            if (place / name).is_file():
                return (place / name).resolve()
    return find_recipe(recipe).resolve()


def _check_of(script: Path) -> Callable[[Recipe], None]:
    """The function ``check`` of a recipe script."""
    spec = importlib.util.spec_from_file_location(f"trlmath_recipe_{script.stem}", script)
    if spec is None or spec.loader is None:
        raise RecipeError(f"{script} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.check


def _comparable(recipe: Recipe, compare: CompareSection) -> None:
    names = [setting.name for setting in recipe.evaluation.settings]
    if not recipe.evaluation.enabled:
        raise RecipeError("evaluation.enabled is false: a study compares evaluations.")
    if compare.setting is not None and compare.setting not in names:
        raise RecipeError(
            f"compare.setting: {compare.setting!r} is none of this run's evaluation.settings: "
            f"{', '.join(names)}.{nearest(compare.setting, names)}"
        )
