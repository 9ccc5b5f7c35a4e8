"""The command line: quick help, plugins list and show, recipes list and copy, errors without traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from fakes import add_distribution

from trlmath import __version__
from trlmath.cli import COMMANDS, cli
from trlmath.plugins import VARIABLE, discover

SHOUT = """
    from trlmath import hookimpl

    class Shout:
        "Loud answers."
        def __init__(self, share: float = 1.0):
            self.share = share

    @hookimpl
    def register_rewards(register):
        register("shout", Shout)
"""


@pytest.fixture
def run(monkeypatch):
    """Run a command in process, with the built-in plugins only."""
    monkeypatch.setenv(VARIABLE, "")
    discover.cache_clear()
    yield lambda *arguments: CliRunner().invoke(cli, arguments)
    discover.cache_clear()


def run_process(*arguments, **environment):
    """Run the command line as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "trlmath", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout, done.stderr


def test_help_names_every_command(run):
    result = run("--help")
    assert result.exit_code == 0
    for name, (_, line) in COMMANDS.items():
        assert name in result.output
        assert line.split(",")[0][:40] in result.output


def test_version(run):
    assert __version__ in run("--version").output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_has_help(run, name):
    result = run(name, "--help")
    assert result.exit_code == 0, result.exception


def test_plugins_list_shows_kind_options_and_origin(run):
    output = run("plugins", "list").output
    assert "advantages\n" in output
    assert "group  (std: bool = True, eps: float = 1e-06)" in output
    assert f"trlmath {__version__}, " in output
    assert "builtin/advantages.py:" in output
    assert "trl.rewards:accuracy_reward" in output


def test_plugins_list_as_json_and_of_one_kind(run):
    data = json.loads(run("plugins", "list", "--json", "--kind", "filter").output)
    assert {c["kind"] for c in data["components"]} == {"filter"}
    (length,) = [c for c in data["components"] if c["name"] == "prompt_length"]
    told = [(o["name"], o["type"], o["required"], o["default"]) for o in length["options"]]
    assert told == [("max", "int", True, None), ("min", "int", False, 0)]
    assert all(option["doc"] for option in length["options"])
    assert length["distribution"] == "trlmath"
    assert data["broken"] == []


def test_plugins_show_prints_the_formula_and_the_paper(run):
    output = run("plugins", "show", "rloo").output
    assert "mean(r_j, j != i)" in output
    assert "arXiv:2402.14740" in output
    assert "option" in run("plugins", "show", "length").output
    assert run("plugins", "show", "r1_zero").output.count("r1_zero\n") == 2, "a reward and a prompt"
    assert run("plugins", "show", "r1_zero", "--kind", "prompt").output.count("r1_zero\n") == 1
    told = str(run("plugins", "show", "r1_zero", "--kind", "filter").exception)
    assert "no filter is called 'r1_zero'" in told
    assert "Did you mean 'r1_zero'" not in told


def test_plugins_show_of_an_object_and_of_a_lazy_target(run):
    output = run("plugins", "show", "r1_zero", "--kind", "prompt").output
    assert "builtin/__init__.py:" in output, "an object's place is the hook that offers it"
    assert "arXiv:2501.12948" in output
    assert "think_format_reward" in run("plugins", "show", "think_format_reward").output
    assert "enclosed" in run("plugins", "show", "think_format_reward").output


def test_plugins_list_shows_a_broken_plugin_and_goes_on(tmp_path):
    add_distribution(tmp_path, "trlmath-shout", SHOUT)
    add_distribution(tmp_path, "trlmath-bad", "import nothing_of_that_name")
    code, output, _ = run_process("plugins", "list", PYTHONPATH=str(tmp_path))
    assert code == 0
    assert "shout  (share: float = 1.0)\n      trlmath-shout 1.0, " in output
    assert "broken plugins" in output
    assert "No module named 'nothing_of_that_name'" in output
    code, _, errors = run_process("plugins", "show", "bad_reward", PYTHONPATH=str(tmp_path))
    assert code == 1
    assert errors.startswith("error: no component is called 'bad_reward'")
    assert "trlmath-bad 1.0" in errors


def test_plugins_list_shows_conflicts_and_fails(tmp_path):
    add_distribution(tmp_path, "trlmath-one", SHOUT)
    add_distribution(tmp_path, "trlmath-two", SHOUT)
    code, output, _ = run_process("plugins", "list", PYTHONPATH=str(tmp_path))
    assert code == 1
    assert "trlmath-one 1.0" in output
    assert "trlmath-two 1.0" in output


def test_listing_plugins_imports_no_torch():
    code = (
        "import sys; from click.testing import CliRunner; from trlmath.cli import cli;"
        "print(CliRunner().invoke(cli, ['plugins', 'list']).exit_code, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, VARIABLE: ""}
    )
    assert done.stdout.split() == ["0", "False"], done.stderr


def test_recipes_list(run):
    output = run("recipes", "list").output
    assert "nano/grpo" in output
    assert "Qwen2.5-Math-1.5B on MATH" in output


def test_recipes_copy_all(run, tmp_path):
    result = run("recipes", "copy", str(tmp_path / "mine"))
    assert result.exit_code == 0
    assert (tmp_path / "mine" / "grpo.py").is_file()
    assert (tmp_path / "mine" / "nano" / "grpo.yaml").is_file()
    assert len(list((tmp_path / "mine").rglob("*.yaml"))) >= 5


def test_recipes_copy_one_and_never_overwrite_by_accident(run, tmp_path):
    assert run("recipes", "copy", str(tmp_path), "smollm2-135m/grpo").exit_code == 0
    assert [p.name for p in tmp_path.rglob("*.yaml")] == ["grpo.yaml"]
    (tmp_path / "smollm2-135m" / "grpo.yaml").write_text("run: {seed: 7}")
    again = run("recipes", "copy", str(tmp_path), "smollm2-135m/grpo")
    assert "already there" in str(again.exception)
    assert (tmp_path / "smollm2-135m" / "grpo.yaml").read_text() == "run: {seed: 7}"
    assert run("recipes", "copy", str(tmp_path), "smollm2-135m/grpo", "--force").exit_code == 0
    assert "seed: 7" not in (tmp_path / "smollm2-135m" / "grpo.yaml").read_text()


def test_an_error_is_printed_without_a_traceback(tmp_path):
    code, _, errors = run_process("recipes", "copy", str(tmp_path), "nano/gpro")
    assert code == 1
    assert errors == errors.strip("\n") + "\n"
    assert "Did you mean 'nano/grpo'" in errors
    assert "Traceback" not in errors
