"""Tokens, keys and passwords: refused in recipes, and in nothing that a run writes or says."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from launching import ROOT, command, environment

from trlmath.cli.traces import _key as teachers_key
from trlmath.errors import EngineError, RecipeError, visible
from trlmath.recipe import load_recipe
from trlmath.reward_faults import unscored
from trlmath.runs.directory import RunDirectory
from trlmath.sampling.server_http import Connection
from trlmath.secrets import hidden, secrets_in

TOKEN = "hf_" + "a1B2c3D4e5" * 3
PLANTED = {
    "HF_TOKEN": TOKEN,
    "WANDB_API_KEY": "wandb-0123456789abcdef",
    "VLLM_API_KEY": "vllm-key-zyxwvut",
    "MY_JUDGE_PASSWORD": "correct-horse-battery",
}


@pytest.fixture
def planted(monkeypatch):
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)


def test_what_is_a_secret_by_its_place(planted):
    for value in PLANTED.values():
        assert value not in hidden(f"the server said: bad key {value}!")
        assert value not in visible(ValueError(f"got {value}"))
    assert hidden("http://me:pass-word@host:80/v1") == "http://***@host:80/v1"
    assert hidden("https://host/a:b@c") == "https://host/a:b@c"
    assert hidden('{"a":"http://x","b":"y:z@w"}') == '{"a":"http://x","b":"y:z@w"}'


@pytest.mark.parametrize(
    "text", [TOKEN, "sk-proj-" + "a" * 30, "ghp_" + "b" * 36, "Authorization: Bearer abcdefghij0123456789"]
)
def test_what_is_a_secret_by_its_look(text):
    assert "***" in hidden(f"x {text} y")
    assert text not in hidden(f"x {text} y")


@pytest.mark.parametrize(
    "text", ["the answer is 42", "a bearer of good news", "hf_hub", "sk-learn", "pad_token"]
)
def test_what_is_none(text):
    assert hidden(text) == text


def test_a_secret_that_is_exchanged_is_known_at_once(monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "first-of-them")
    assert hidden("first-of-them") == "***"
    monkeypatch.setenv("SOME_TOKEN", "second-of-them")
    assert hidden("second-of-them") == "***"
    monkeypatch.delenv("SOME_TOKEN")
    monkeypatch.setenv("OTHER_TOKEN", "third-of-them")
    assert hidden("third-of-them") == "***"


def test_a_variable_that_is_named_as_holding_a_key_is_masked_whatever_it_is_called(monkeypatch):
    monkeypatch.setattr("trlmath.secrets._pointed_at", set())
    monkeypatch.setenv("TEACHER_ACCESS", "a-teachers-password")
    assert hidden("a-teachers-password") == "a-teachers-password"
    assert teachers_key("TEACHER_ACCESS") == "a-teachers-password"
    assert hidden("bad key a-teachers-password!") == "bad key ***!"
    assert "a-teachers-password" not in visible(EngineError("the server said: a-teachers-password"))


def test_secrets_in_plain_data():
    given = {
        "trainer": {"hub_token": "short", "eos_token": "</s>", "run_name": TOKEN},
        "rewards": [{"options": {"api_key": "abc", "api_key_env": "ABC", "token": "x"}}],
        "filters": [{"options": {"api_key": "JUDGE_KEY"}}],  # the name of a variable
        "sampling": {"url": ["http://me:pw@host"]},
    }
    assert list(secrets_in(given)) == [
        "trainer.hub_token",
        "trainer.run_name",
        "rewards.0.options.api_key",
        "sampling.url.0",
    ]


@pytest.mark.parametrize(
    "override",
    [f"trainer.hub_token={TOKEN}", "rewards.0.options.api_key=abc123", "sampling.url=http://a:bcd@h"],
)
def test_a_recipe_with_a_secret_is_refused_without_telling_it(override):
    key, _, value = override.partition("=")
    with pytest.raises(RecipeError, match=rf"(?s){key}: holds a secret.*environment variable") as caught:
        load_recipe("nano/grpo", ["sampling.mode=server", override])
    assert value not in str(caught.value)


def test_a_server_with_a_password_in_its_address_is_refused_without_telling_it():
    with pytest.raises(EngineError, match="VLLM_API_KEY") as caught:
        Connection("http://me:open-sesame@localhost:1")
    assert "open-sesame" not in str(caught.value)


def test_what_is_written_has_none(tmp_path, planted):
    files = RunDirectory(tmp_path / "run")
    told = " ".join(PLANTED.values())
    files.write_json("manifest.json", {"error": told, "command": ["x", "http://me:pass@host"]})
    files.append("metrics.jsonl", {"step": 1, "reason": told})
    files.log(told)
    whole = "".join(file.read_text() for file in files.path.iterdir())
    assert not any(value in whole for value in [*PLANTED.values(), "me:pass"])
    assert json.loads((files.path / "manifest.json").read_text())["command"][1] == "http://***@host"


def test_a_reward_that_fails_tells_none_in_the_rollouts(planted):
    grade = unscored(ValueError(f"401 for {TOKEN}"))
    assert grade.reason == "401 for ***"


LEAKY = """
import os

def leaky(completions, **columns):
    raise ConnectionError(f"401 for https://me:{os.environ['MY_JUDGE_PASSWORD']}@judge/?k={os.environ['HF_TOKEN']}")
"""


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True], ids=["a run", "a run whose reward tells"])
def test_a_whole_run_writes_and_says_none(tmp_path, fails):
    run = tmp_path / "run"
    (tmp_path / "judge.py").write_text(LEAKY)
    given = ["trainer.max_steps=1", "rollout.prompts_per_step=2", "rollout.group_size=2", f"run.dir={run}"]
    given += ["evaluation.limit=2", "sampling.engine=transformers", "sampling.max_tokens=16"]
    given += [f"rewards.0.name={tmp_path / 'judge.py'}:leaky"] if fails else []
    done = subprocess.run(
        command("--config", "nano/grpo", *given),
        cwd=ROOT,
        env=environment() | PLANTED | {"HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode != 0) == fails, done.stderr
    written = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    assert len(written) > 3
    if fails:
        assert "***" in done.stderr
        assert b"***" in written[run / "manifest.json"]
    for value in PLANTED.values():
        assert value not in done.stdout + done.stderr
        leaks = [str(file.relative_to(run)) for file, held in written.items() if value.encode() in held]
        assert not leaks, leaks
    assert os.environ.get("HF_TOKEN") != TOKEN  # planted in the run's environment alone
