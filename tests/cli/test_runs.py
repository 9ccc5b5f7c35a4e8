"""``trlmath runs``: list, show, diff, and a repeat that is the same to the last bit."""

from __future__ import annotations

import hashlib
import json
import shlex

import pytest
from click.testing import CliRunner
from launching import environment, launch, metrics
from run_files import make_run

from trlmath.cli import cli
from trlmath.errors import RecipeError
from trlmath.runs.compare import fact_differences, last_numbers, recipe_differences
from trlmath.runs.read import find_runs, read_run
from trlmath.runs.reproduce import repeat_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "b-second", seed=1, advantage={"name": "group", "options": {"std": False}})
    make_run(folder / "a-first", seed=0)
    make_run(folder / "c-now", seed=2, steps=2, status="running")
    (folder / "no-run").mkdir()
    return folder


def run(*arguments):
    done = CliRunner().invoke(cli, ["runs", *map(str, arguments)], env={"COLUMNS": "120"})
    assert done.exit_code == 0, done.output
    return done.output


def test_names_stay_whole_in_a_pipe_and_in_80_columns(tmp_path):
    name = "nano-grpo-with-a-long-name-20260131-101500"
    make_run(tmp_path / name)
    with (tmp_path / name / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "train/completions/mean_terminated_length": 3.0, "train/loss": 0.1}\n')
    piped = CliRunner().invoke(cli, ["runs", "list", str(tmp_path)], env={"COLUMNS": None})
    assert f" {name} " in piped.output
    assert piped.output.startswith("1 run in")
    shown = CliRunner().invoke(cli, ["runs", "show", str(tmp_path / name)], env={"COLUMNS": "80"})
    rows = [line for line in shown.output.splitlines() if "train/completions/mean_terminated_length" in line]
    assert len(rows) == 1
    assert "tokens" in rows[0]


def test_list(folder):
    rows = json.loads(run("list", folder, "--json"))
    assert [row["name"] for row in rows] == ["a-first", "b-second", "c-now"]  # by their start
    assert [row["status"] for row in rows] == ["finished", "finished", "running"]
    assert rows[0]["after"] > rows[0]["before"]
    assert rows[2]["after"] is None
    text = CliRunner().invoke(cli, ["runs", "list", str(folder)], env={"COLUMNS": "80"}).output
    assert all(name in text for name in ("a-first", "b-second", "c-now"))
    assert max(map(len, text.splitlines())) <= 80
    assert [path.name for path in find_runs(folder)] == ["a-first", "b-second", "c-now"]


def test_a_run_that_cannot_be_read_hides_no_other(tmp_path):
    make_run(tmp_path / "fine", steps=1)
    for name, file in (("no-manifest", "manifest.json"), ("no-metrics", "metrics.jsonl")):
        (make_run(tmp_path / name, steps=1) / file).write_text("{cut\n{}\n")
    done = CliRunner().invoke(cli, ["runs", "list", str(tmp_path)], env={"COLUMNS": "120"})
    assert done.exit_code == 0
    assert "finished" in done.output
    assert done.output.count("unreadable") == 2
    assert "manifest.json is no JSON" in done.output
    rows = {row["name"]: row for row in json.loads(run("list", tmp_path, "--json"))}
    assert rows["no-metrics"]["status"] == "unreadable"
    assert "metrics.jsonl, line 1" in rows["no-metrics"]["error"]


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("manifest.json", '{"rows": "x"}', "'rows' is str"),
        ("manifest.json", '{"rows": {"train": "x"}}', "rows.train is str"),
        ("manifest.json", '{"command": 7}', "'command' is int"),
        ("metrics.jsonl", '{"train/loss": 2}', "line 1 has no number as its 'step': None"),
        ("metrics.jsonl", '{"step": "<script>"}', "'step': '<script>'"),
        ("evaluation/reports.jsonl", '{"name": 5}', "needs a 'name'"),
        ("evaluation/reports.jsonl", '{"name": "a/b", "rates": [1]}', "'rates' is list"),
        ("evaluation/reports.jsonl", '{"name": "a/b", "rates": {"both": 5}}', "'both' is int"),
        (
            "evaluation/reports.jsonl",
            '{"name": "a/b", "rates": {"both": {"value": "x"}}}',
            "both.value is 'x'",
        ),
    ],
)
def test_files_of_another_form_are_named(tmp_path, file, text, told):
    run_directory = make_run(tmp_path / "run", steps=1)
    (run_directory / file).write_text(text + "\n")
    for command in (["runs", "show"], ["report"]):
        done = CliRunner().invoke(cli, [*command, str(run_directory)])
        assert done.exit_code == 1
        assert told in str(done.exception) + done.output


def test_a_recipe_that_is_gone_is_not_taken_for_the_defaults(tmp_path):
    one, two = make_run(tmp_path / "one", steps=1), make_run(tmp_path / "two", steps=1)
    (two / "recipe.yaml").unlink()
    differences = recipe_differences(read_run(one), read_run(two))
    assert ("sampling.temperature", 1.0, None) in differences


def test_show(folder):
    text = run("show", folder / "b-second")
    assert "advantage.options.std" in text
    assert "train/reward" in text
    assert "zero_spread" in text


def test_a_name_in_runs_will_do(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    (folder.parent / "runs").symlink_to(folder)
    assert "finished" in run("show", "a-first")


def test_differences(folder, tmp_path):
    first, second = read_run(folder / "a-first"), read_run(folder / "b-second")
    assert ("advantage.options.std", None, False) in recipe_differences(first, second)
    assert all(key.startswith("advantage.options") for key, _, _ in recipe_differences(first, second))
    assert ("packages.torch", "2.13.0", "2.13.1") in fact_differences(first, second)
    assert recipe_differences(first, first) == fact_differences(first, first) == []
    text = run("diff", folder / "a-first", folder / "b-second", "--out", tmp_path / "d.json")
    assert "advantage.options.std" in text
    assert "McNemar" in text
    told = json.loads((tmp_path / "d.json").read_text())
    assert told["evaluations"]["sampled"]["problems"] == 50
    low, high = (told["evaluations"]["sampled"]["difference"][end] for end in ("low", "high"))
    assert low <= told["evaluations"]["sampled"]["difference"]["value"] <= high


def test_what_models_and_plugins_wrote_is_text(tmp_path):
    hostile = "[red]\x1b[31m\u202e[/red]"
    one = make_run(tmp_path / "one", steps=2, hostile=hostile, text=hostile)
    two = make_run(tmp_path / "two", steps=2, seed=1, hostile=hostile, text=hostile)
    for arguments in (("show", one), ("diff", one, two, "--all"), ("list", tmp_path)):
        text = run(*arguments)
        assert "\x1b[31m" not in text
        assert "\u202e" not in text
    assert "[red]" in run("show", one)


def test_the_last_numbers(folder):
    run = read_run(folder / "a-first")
    numbers = last_numbers(run)
    rewards = [row["train/reward"] for row in run.training]
    assert numbers["train/reward"] == pytest.approx(sum(rewards[-10:]) / 10)
    assert numbers["eval/both"] == run.metrics[-1]["eval/both"]
    assert "train/grad_norm" not in numbers  # null in every row


def test_a_repeat_needs_to_know_its_script(folder, tmp_path):
    repeat = repeat_of(read_run(folder / "a-first"), tmp_path / "again")
    assert repeat.command[1].endswith("grpo.py")
    assert ("packages.torch" in [what for what, _, _ in repeat.changed]) is True
    odd = make_run(tmp_path / "odd", steps=1)
    told = json.loads((odd / "manifest.json").read_text()) | {"command": ["mine.py"]}
    (odd / "manifest.json").write_text(json.dumps(told))
    with pytest.raises(RecipeError, match=r"does not say which script.*mine\.py"):
        repeat_of(read_run(odd), tmp_path / "again")


def test_a_repeat_starts_where_the_run_did(folder, tmp_path, monkeypatch):
    """A recipe may name files from there: my_reward.py:digits."""
    path, start = make_run(tmp_path / "run", steps=1), tmp_path / "where it was"
    start.mkdir()
    told = json.loads((path / "manifest.json").read_text()) | {"cwd": str(start), "algorithm": "grpo"}
    (path / "manifest.json").write_text(json.dumps(told))
    monkeypatch.chdir(tmp_path)
    printed = run("reproduce", "run", "--dir", "again").splitlines()[-1]
    assert printed.startswith(f"cd '{start}' && ")
    words = shlex.split(printed)
    assert f"run.dir={tmp_path / 'again'}" in words
    assert str(path / "recipe.yaml") in words
    monkeypatch.chdir(start)
    assert repeat_of(read_run(path), tmp_path / "again").cwd is None
    start.rmdir()
    monkeypatch.chdir(tmp_path)
    assert repeat_of(read_run(path), tmp_path / "again").cwd is None


def test_a_repeat_does_not_write_into_a_run(folder):
    done = CliRunner().invoke(cli, ["runs", "reproduce", str(folder / "a-first"), "--dir", str(folder)])
    assert done.exit_code == 1
    assert "is there already" in done.output


@pytest.mark.slow
def test_a_repeat_is_the_same_to_the_last_bit(tmp_path):
    small = [
        "trainer.max_steps=3",
        "rollout.prompts_per_step=4",
        "rollout.group_size=4",
        "evaluation.limit=8",
    ]
    first, again = tmp_path / "first", tmp_path / "first-again"
    done = launch(*small, "run.seed=7", f"run.dir={first}")
    assert done.returncode == 0, done.stderr
    printed = run("reproduce", first)
    words = shlex.split(printed.splitlines()[-1])
    assert "OMP_NUM_THREADS=1" in words
    assert f"run.dir={again}" in words
    repeated = CliRunner().invoke(cli, ["runs", "reproduce", str(first), "--run"], env=environment())
    assert repeated.exit_code == 0, repeated.output

    def told(directory):
        return [
            {k: v for k, v in row.items() if not k.startswith(("time/", "memory/"))}
            for row in metrics(directory)
        ]

    def weights(directory):
        return hashlib.sha256((directory / "checkpoints/final/model.safetensors").read_bytes()).hexdigest()

    assert told(first) == told(again)
    assert any(row.get("train/grad_norm") for row in told(first))
    assert weights(first) == weights(again)
    one, two = read_run(first), read_run(again)
    assert recipe_differences(one, two) == []
    assert one.manifest["data"] == two.manifest["data"]
    assert one.manifest["rows"]["filters"] == []
    assert one.manifest["seeds"] == {"run": 7}
