"""Files that came from elsewhere: recipes, models, checkpoints, datasets, runs and servers run nothing."""

from __future__ import annotations

import json
import os
import pickle
import time

import pytest
import torch
from made_up_server import send, serving
from run_files import make_run

from trlmath.data.files import read_rows
from trlmath.data.nano import MODEL_DIR
from trlmath.errors import DataError, EngineError, RecipeError
from trlmath.recipe import check_trainer, load_recipe, parse_recipe
from trlmath.recipe.yamls import parse
from trlmath.runs.read import read_run
from trlmath.runs.reproduce import repeat_of
from trlmath.sampling.models import load_policy, read_model_files
from trlmath.sampling.server_http import Connection


class Bomb:
    """Leaves a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['touch pwned']",
        "a: !!python/name:os.system",
        "!!python/object/new:type {}",
    ],
)
def test_yaml_builds_plain_data_only(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match="not valid YAML"):
        parse(text, "recipe.yaml")
    assert not list(tmp_path.iterdir())


def test_yaml_that_multiplies_is_refused_quickly():
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 30)]
    started = time.perf_counter()
    with pytest.raises(RecipeError, match=r"aliases .* multiply to more than 100,000 values"):
        parse("\n".join(lines), "recipe.yaml")
    assert time.perf_counter() - started < 10
    assert parse("a: &x [1, 2]\nb: *x", "recipe.yaml") == {"a": [1, 2], "b": [1, 2]}


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a": ' + "1" * 10_000 + "}"], ids=["nested", "a long number"]
)
def test_json_that_python_cannot_read_is_told(text, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(text + "\n")
    with pytest.raises(DataError, match=r"rows\.jsonl, line 1 is JSON that"):
        read_rows(file)


@pytest.fixture
def model(tmp_path):
    """The nano model, with code of its own that it asks to be run."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in MODEL_DIR.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_code_that_comes_with_a_model_never_runs(model, tmp_path):
    config = json.loads((model / "config.json").read_text())
    config |= {
        "model_type": "own",
        "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"},
    }
    (model / "config.json").write_text(json.dumps(config))
    (model / "own.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'pwned')!r})\nclass Config: pass\n")
    with pytest.raises(RecipeError, match="cannot be read as a model"):
        read_model_files(str(model))
    assert not (tmp_path / "pwned").exists()
    recipe = parse_recipe({"trainer": {"trust_remote_code": True}})
    with pytest.raises(RecipeError, match=r"trainer\.trust_remote_code: has no effect"):
        check_trainer(recipe)


def test_pickled_weights_are_not_unpickled(model, tmp_path):
    for file in model.glob("*.safetensors"):
        file.unlink()
    torch.save({"lm_head.weight": Bomb(tmp_path / "pwned")}, model / "pytorch_model.bin")
    with pytest.raises(RecipeError, match="cannot be loaded"):
        load_policy(parse_recipe({}), str(model))
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_checkpoint_is_not_unpickled(name, tmp_path):
    """What transformers reads when a run goes on: tensors and plain data only."""
    from transformers import Trainer, TrainingArguments

    layer = torch.nn.Linear(1, 1)
    arguments = TrainingArguments(str(tmp_path / "out"), use_cpu=True, report_to=[])
    trainer = Trainer(layer, arguments, train_dataset=[0])
    trainer.create_optimizer_and_scheduler(1)
    for file, state in (("optimizer.pt", trainer.optimizer), ("scheduler.pt", trainer.lr_scheduler)):
        torch.save(state.state_dict(), tmp_path / file)
    torch.save({"state": Bomb(tmp_path / "pwned")}, tmp_path / name)
    load = trainer._load_rng_state if name == "rng_state.pth" else trainer._load_optimizer_and_scheduler
    with pytest.raises(pickle.UnpicklingError):
        load(str(tmp_path))
    assert not (tmp_path / "pwned").exists()


def test_a_manifest_names_no_program(tmp_path):
    run = make_run(tmp_path / "run", steps=1)
    manifest = json.loads((run / "manifest.json").read_text())
    (tmp_path / "evil.py").write_text("")
    told = {
        "algorithm": f"../../../../../../../../..{tmp_path / 'evil'}",
        "variables": {"PYTHONPATH": "/tmp"},
    }
    (run / "manifest.json").write_text(json.dumps(manifest | told))
    with pytest.raises(RecipeError, match="does not say which script it was of"):
        repeat_of(read_run(run), tmp_path / "again")
    told = {"algorithm": "grpo", "variables": {"LD_PRELOAD": "x", "a; touch b": "y", "OMP_NUM_THREADS": "1"}}
    (run / "manifest.json").write_text(json.dumps(manifest | told))
    assert repeat_of(read_run(run), tmp_path / "again").environment == {"OMP_NUM_THREADS": "1"}


def test_evaluation_settings_and_study_runs_cannot_leave_their_folder():
    from trlmath.studies.schema import RunEntry

    for name in ("../x", "/etc/x", "a/b", "..", "a\nb", "a\x00"):
        with pytest.raises(RecipeError, match=r"evaluation\.settings\.0\.name"):
            parse_recipe({"evaluation": {"settings": [{"name": name}]}})
        with pytest.raises(ValueError, match="name"):
            RunEntry(name=name, algorithm="grpo", recipe="nano/grpo")


@pytest.mark.parametrize("key", ["output_dir", "logging_dir", "resume_from_checkpoint", "log_completions"])
def test_what_would_write_elsewhere_or_past_us_is_refused(key):
    with pytest.raises(RecipeError, match=rf"trainer\.{key}: is decided by run\."):
        load_recipe("nano/grpo", [f"trainer.{key}=/tmp/elsewhere"])


@pytest.fixture
def server():
    """Answers with `answer`, arguments of `send`; `asked` holds paths."""

    def answer(handler, _):
        http.asked.append(handler.path)
        send(handler, *http.answer[:2], **http.answer[2])

    with serving(answer) as http:
        http.asked = []
        yield http


def test_a_server_cannot_send_us_and_the_key_elsewhere(server):
    server.answer = b"", 302, {"Location": f"{server.url}/elsewhere"}
    with pytest.raises(EngineError, match="answered 302"):
        Connection(server.url, 10.0, "a-key-of-ours").ask("/v1/models")
    assert server.asked == ["/v1/models"]


def test_a_server_that_sends_too_much_or_too_deep_is_told(server, monkeypatch):
    monkeypatch.setattr("trlmath.sampling.server_http.MOST_BYTES", 1 << 20)
    server.answer = b"[" + b" " * (2 << 20) + b"]", 200, {}
    with pytest.raises(EngineError, match="more than 1 MiB"):
        Connection(server.url, 10.0).ask("/v1/models")
    server.answer = b"[" * 200_000, 200, {}
    with pytest.raises(EngineError, match="nested too deeply"):
        Connection(server.url, 10.0).ask("/v1/models")
