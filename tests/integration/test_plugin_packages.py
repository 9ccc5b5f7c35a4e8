"""The packages under plugins/, as a user has them: wheels in a fresh environment, trained with, taken out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))
RECIPE = """
data:
  train: {name: countdown, options: {size: 64, numbers: 2, most: 9}}
  eval: {name: countdown, options: {size: 64, numbers: 2, most: 9}}
  prompt: countdown
sampling: {engine: transformers, max_tokens: 12}
rollout: {prompts_per_step: 2, group_size: 4}
rewards:
  - {name: countdown, options: {partial: 0.1}}
  - {name: overlong, weight: 0.5, options: {max_tokens: 12, buffer: 11}, schedule: {0: 0.5, 2: 1.0}}
  - {name: arithmetic, weight: 0.2, only_if: format}
  - {name: format_steps, weight: 0.2, clip: [0, 0.5]}
  - {name: "mine.py:bonus", scale: 0.001}
advantage: {name: quantile, options: {k: 0.4}}
filters:
  - {name: difficulty, options: {patience: 9}}
  - {name: mostly_cut, options: {share: 0.99}}
trainer: {max_steps: 2, learning_rate: 1.0e-4}
evaluation: {limit: 4, settings: [{name: sampled}]}
run: {dir: run}
"""


def run(*command, cwd, status=0, **environment):
    """Run a process and return its output and errors; a wrong status is the failure's message."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment},
    )
    assert done.returncode == status, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a fresh environment beside ours, into which the built wheels are installed."""
    folder = tmp_path_factory.mktemp("user")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env", cwd=folder)
    python = folder / "env" / "bin" / "python"
    site = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    )
    # searched last, and the .pth files in there are not read: so the checkout is named as well
    (site / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n{ROOT}\n")
    wheels = folder / "wheels"
    built = ["wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", wheels]
    run(sys.executable, "-m", "pip", *built, *PACKAGES, cwd=folder)
    pip(folder, "install", *sorted(wheels.glob("*.whl")))
    (folder / "all.yaml").write_text(RECIPE)
    (folder / "mine.py").write_text(
        "def bonus(completions):\n    return [float(len(c)) for c in completions]\n"
    )
    return folder


def pip(folder, *arguments):
    """pip in the fresh environment, without any index."""
    python = folder / "env" / "bin" / "python"
    more = ["--no-deps", "--no-index", "--no-build-isolation"] if arguments[0] == "install" else []
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        arguments[0],
        "--quiet",
        *more,
        *arguments[1:],
        cwd=folder,
    )


def trlmath(folder, *arguments, status=0, **environment):
    python = folder / "env" / "bin" / "python"
    return run(python, "-m", "trlmath", *arguments, cwd=folder, status=status, **environment)


def recipe(folder, *arguments, status=0, **environment):
    python = folder / "env" / "bin" / "python"
    command = [python, ROOT / "recipes" / "grpo.py", "--config", "all.yaml", *arguments]
    return run(*command, cwd=folder, status=status, **environment)


def test_wheels_hold_one_module_and_the_entry_point(home):
    for wheel in (home / "wheels").glob("*.whl"):
        names = zipfile.ZipFile(wheel).namelist()
        (module,) = [name for name in names if ".dist-info" not in name]
        points = next(name for name in names if name.endswith("entry_points.txt"))
        assert f"= {module.removesuffix('.py')}\n" in zipfile.ZipFile(wheel).read(points).decode()


def test_all_are_listed_and_none_is_in_trouble(home):
    data = json.loads(trlmath(home, "plugins", "list", "--json"))
    found = {c["distribution"]: c["version"] for c in data["components"]}
    assert {p.name for p in PACKAGES} <= set(found)
    assert "nothing is wrong." in trlmath(home, "plugins", "doctor")


def test_two_steps_with_all_of_them_and_one_taken_out(home):
    told = recipe(home, TRLMATH_TRACE_PLUGINS="1")
    assert "[plugins] register_rewards(register=<register>) of trlmath" in told
    assert "of trlmath-countdown 0.1.0 (entry point countdown = trlmath_countdown) returned None" in told
    manifest = json.loads((home / "run" / "manifest.json").read_text())
    assert manifest["status"] == "finished"
    used = manifest["components"]
    parts = [*used["rewards"], used["advantage"], *used["filters"], used["prompt"], used["train"]]
    assert [p["distribution"] for p in parts] == [
        *("trlmath-countdown", "trlmath-overlong", "trlmath-process", "trlmath-format-steps", None),
        *("trlmath-quantile-advantage", "trlmath-difficulty", "trlmath-overlong"),
        *("trlmath-countdown", "trlmath-countdown"),
    ]
    one_off = used["rewards"][4]
    assert (home / "run" / one_off["copy"]).read_text() == (home / "mine.py").read_text()

    rows = [json.loads(line) for line in (home / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "train/loss" in row]
    assert [row["step"] for row in steps] == [1, 2]
    for row in steps:
        for reward in ("countdown", "overlong", "arithmetic", "format_steps", "mine.bonus"):
            assert f"train/rewards/{reward}/mean" in row
        for part in ("format", "numbers", "value", "in_time", "steps_any", "think_end"):
            assert f"train/{part}" in row, sorted(row)
        assert row["train/rewards/format_steps/mean"] <= 0.5
    # at step 0 overlong counts a quarter, as its schedule says
    weighted = {"countdown": 1.0, "overlong": 0.25, "arithmetic": 0.2, "format_steps": 0.2, "mine.bonus": 1.0}
    total = sum(w * steps[0][f"train/rewards/{name}/mean"] for name, w in weighted.items())
    assert steps[0]["train/reward"] == pytest.approx(total, abs=1e-4)

    pip(home, "uninstall", "--yes", "trlmath-process")
    error = recipe(home, "run.dir=again", status=1)
    assert "error: rewards.2: no reward is called 'arithmetic'." in error
    assert "Available: accuracy, " in error
    assert "Traceback" not in error
    assert not (home / "again").exists()


def test_a_new_plugin_installed_editable_is_listed_and_passes(home):
    trlmath(home, "plugins", "new", "brief", "--kind", "filter")
    pip(home, "install", "--editable", home / "brief")
    listed = trlmath(home, "plugins", "list", "--kind", "filter")
    assert "brief  (most: int = 1000)" in listed
    assert f"trlmath-brief 0.1.0, {home / 'brief' / 'trlmath_brief.py'}:" in listed
    assert "0 failures" in trlmath(home, "plugins", "check", "trlmath-brief")
    module = home / "brief" / "trlmath_brief.py"
    module.write_text(module.read_text().replace("most: int = 1000", "most: int = 77"))
    assert "brief  (most: int = 77)" in trlmath(home, "plugins", "list"), "an edit counts at once"
    python = home / "env" / "bin" / "python"
    tested = run(
        python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "trlmath.pytest_plugin",
        cwd=home / "brief",
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )
    assert "2 passed" in tested
