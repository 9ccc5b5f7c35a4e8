"""The study file: named runs, what they have in common, and what is compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from trlmath.errors import RecipeError, nearest
from trlmath.recipe.explain import explain
from trlmath.recipe.schema import Int, Section
from trlmath.recipe.shipped import shipped_studies
from trlmath.recipe.yamls import read


class RunEntry(Section):
    """One run, or one for each combination of `vary` and `seeds`.

    `algorithm`: a recipe script, such as ``grpo``. `recipe`: a YAML file or a shipped name. `set`: overrides,
    dotted key to value as on the command line. `vary`: dotted key to the values to try, a list, or a mapping
    that gives each value its label. `seeds`: values of ``run.seed``; the table tells their mean. `against`:
    the run that its difference is told to; null: the study's `baseline`.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")
    algorithm: str
    recipe: str
    set: dict[str, Any] = {}
    vary: dict[str, list[Any] | dict[Any, Any]] = {}
    seeds: list[Int] = []
    against: str | None = None


class CompareSection(Section):
    """What the difference to the baseline is of. `setting`: of the evaluation; null: its first."""

    setting: str | None = None
    part: str = "both"


class StudyFile(Section):
    """A whole study.

    `dir`: where it writes; null means ``runs/<study>``. `base`: overrides of every run. `evaluation`: keys of
    the recipes' section, for every run. `baseline`: the run that differences are told to; null: the first.
    `launcher`: a command that starts a run instead of this Python, see `trlmath.studies.children`.
    """

    dir: str | None = None
    base: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    baseline: str | None = None
    compare: CompareSection = CompareSection()
    launcher: str | None = None
    runs: list[RunEntry] = Field(min_length=1)


def load_study(path: str | Path) -> tuple[StudyFile, Path]:
    """Return a study and its file, given by path or shipped name.

    Raises RecipeError naming every wrong key.
    """
    file = find_study(path)
    data = read(file)
    if not isinstance(data, dict) or "runs" not in data:
        raise RecipeError(
            f"{file} is not a study: it has no list of `runs:`. A single recipe is started with its script, "
            "such as `accelerate launch recipes/grpo.py --config FILE`."
        )
    data = {key: value for key, value in data.items() if value is not None}
    try:
        study = StudyFile.model_validate(data)
    except ValidationError as error:
        raise RecipeError(
            f"{file} is not a valid study:\n{explain(error, data, StudyFile, 'a study')}"
        ) from error
    return study, file


def find_study(path: str | Path) -> Path:
    """Return the file of a study given by path or shipped name. Raises RecipeError."""
    file = Path(path).expanduser()
    shipped = shipped_studies()
    name = str(path).removeprefix("recipes/").removesuffix(".yaml")
    found = file if file.is_file() else shipped.get(name)
    if found is None:
        raise RecipeError(
            f"there is no study {str(path)!r}.{nearest(name, shipped)} Give a YAML file, or a shipped one: "
            f"{', '.join(shipped) or 'none found'}."
        )
    return found


def study_name(file: Path) -> str:
    """A short name for the study's directory: ``nano-road`` for ``recipes/nano/road.yaml``."""
    path = file.resolve().with_suffix("")
    for name, shipped in shipped_studies().items():
        if shipped.resolve() == file.resolve():
            return name.replace("/", "-")
    folder = path.parent.name
    return path.name if folder in ("", "recipes") else f"{folder}-{path.name}"
