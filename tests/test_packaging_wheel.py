"""The wheel holds what an installed user needs, and works away from the checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def _run(*command: str | Path, cwd: Path) -> str:
    """Run a command, return its standard output; its error output is the assertion's message."""
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Path:
    """The wheel, built as a release is: source archive first, the wheel from the unpacked archive."""
    pytest.importorskip("hatchling")
    pytest.importorskip("build")
    out = tmp_path_factory.mktemp("dist")
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, checkout, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a fresh environment: the wheel, and the dependencies of this one."""
    folder = tmp_path_factory.mktemp("environment")
    _run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    _run(
        sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", wheel, cwd=folder
    )
    site = Path(
        _run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    )
    # A path in a .pth file is searched last, and the .pth files in it (our editable install) are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


@pytest.mark.parametrize(
    "name",
    [
        "trlmath/py.typed",
        "trlmath/cli/__init__.py",
        "trlmath/runs/__init__.py",
        "trlmath/pytest_plugin.py",
        "trlmath/scaffold/templates/reward.py.jinja",
        "trlmath/_recipes/grpo.py",
        "trlmath/_recipes/nano/grpo.yaml",
        "trlmath/_recipes/qwen2.5-math-1.5b/grpo.yaml",
        "trlmath/data/nano/model/config.json",
        "trlmath/data/nano/model/model.safetensors",
        "trlmath/data/nano/model/tokenizer.json",
    ],
)
def test_wheel_holds(wheel: Path, name: str):
    names = zipfile.ZipFile(wheel).namelist()
    assert name in names, f"not in the wheel; it has {sorted(names)}"


def test_wheel_holds_every_prompt_and_recipe_of_the_checkout(wheel: Path, checkout: Path):
    names = set(zipfile.ZipFile(wheel).namelist())
    prompts = {str(path.relative_to(checkout)) for path in (checkout / "trlmath").rglob("*.prompt")}
    recipes = {
        f"trlmath/_recipes/{path.relative_to(checkout / 'recipes')}"
        for path in (checkout / "recipes").rglob("*")
        if path.suffix in {".py", ".yaml"}
    }
    assert prompts
    assert recipes
    assert prompts | recipes <= names


def test_wheel_holds_nothing_else_and_is_small(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"trlmath", next(top for top in tops if top.endswith(".dist-info"))}
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]
    assert wheel.stat().st_size < 8e6, "the embedded model is at most 5 MB; what else is in there?"


def test_installed_package_is_the_wheels(installed: Path, tmp_path: Path):
    where = _run(installed / "python", "-c", "import trlmath; print(trlmath.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(installed.parent)


@pytest.mark.parametrize(
    ("command", "shows"),
    [
        (["--help"], "plugins"),
        (["recipes", "list"], "qwen2.5-math-1.5b"),
        (["plugins", "list"], "r1_zero"),
    ],
)
def test_installed_command_works_away_from_the_checkout(
    installed: Path, tmp_path: Path, command: list[str], shows: str
):
    assert shows in _run(installed / "trlmath", *command, cwd=tmp_path)


def test_installed_recipes_can_be_copied_and_run(installed: Path, tmp_path: Path):
    _run(installed / "trlmath", "recipes", "copy", tmp_path / "mine", cwd=tmp_path)
    script = next((tmp_path / "mine").rglob("grpo.py"))
    assert "prompts_per_step" in _run(installed / "python", script, "--dry-run", cwd=tmp_path)
