"""Mistakes in a recipe, its data or its plugins: a clear error, most before any weight is loaded."""

from __future__ import annotations

import json

import pytest

from trlmath.errors import DataError, PluginError, RecipeError, TrlmathError
from trlmath.recipe import load_recipe
from trlmath.training import run_base
from trlmath.training.grpo_run import GrpoRun
from trlmath.training.prepare import prepare

SMALL = [
    "trainer.max_steps=1",
    "rollout.prompts_per_step=2",
    "rollout.group_size=2",
    "evaluation.enabled=false",
]


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Construct a run that must fail before weights are loaded, and hand back the error."""

    def refuse(*args):
        raise AssertionError("a weight was loaded")

    def run(*overrides, error=TrlmathError):
        monkeypatch.setattr(run_base, "load_policy", refuse)
        with pytest.raises(error) as caught:
            GrpoRun(load_recipe("nano/grpo", [*SMALL, f"run.dir={tmp_path / 'run'}", *overrides]))
        assert not (tmp_path / "run").exists()
        return str(caught.value)

    return run


def write(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("sampling.temprature=0.7", ["sampling.temprature", "temperature"]),
        ("trainer.learning_rte=1e-6", ["trainer.learning_rte", "learning_rate"]),
        ("trainer.learning_rate=fast", ["trainer.learning_rate", "'fast'", "float"]),
        ("sampling.max_tokens=many", ["sampling.max_tokens", "many"]),
        ("rollout.group_size=1", ["rollout.group_size", "2"]),
        ("sampling.max_tokens=100000", ["sampling.max_tokens", "context", "nano"]),
        ("trainer.num_generations=4", ["trainer.num_generations", "rollout.group_size"]),
        ("advantage.name=grupo", ["grupo", "group"]),
        ("advantage.options.stdd=false", ["stdd", "std"]),
        ("rewards=[r1_zer]", ["r1_zer", "r1_zero"]),
        ("filters=[zero_spred]", ["zero_spred", "zero_spread"]),
        ("data.prompt=r1zero", ["r1zero", "r1_zero"]),
        ("model.path=nanoo", ["model.path", "nanoo", "nano"]),
        ("data.train=nonsense.jsonl", ["nonsense.jsonl"]),
        ("sampling={mode: server, url: 'http://127.0.0.1:9'}", ["no vLLM server answers", "trlmath serve"]),
        ("model.lora={rank: 8}", ["model.lora.rank", "r, "]),
        ("model.lora={r: 0}", ["model.lora.r", "got 0", "at least 1"]),
        ("run.seed=4294967296", ["run.seed", "4294967296", "less than"]),
        ("trainer={x: &a [*a]}", ["alias", "stands inside what it names"]),
        ("model=" + "[" * 5000, ["nested too deeply"]),
    ],
)
def test_the_recipe_is_wrong(start, override, wanted):
    message = start(override)
    for piece in wanted:
        assert piece in message, message


def test_a_run_that_cannot_be_built_is_recorded_as_failed(tmp_path, monkeypatch):
    def broken(*args):
        raise RecipeError("no such weights")

    monkeypatch.setattr(run_base, "load_policy", broken)
    with pytest.raises(RecipeError):
        GrpoRun(load_recipe("nano/grpo", [*SMALL, f"run.dir={tmp_path / 'run'}"]))
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert "no such weights" in manifest["error"]


def test_several_wrong_keys_are_named_at_once():
    with pytest.raises(RecipeError) as caught:
        load_recipe("nano/grpo", ["sampling.temprature=1", "rollout.group_size=1"])
    assert "temprature" in str(caught.value)
    assert "group_size" in str(caught.value)


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("sampling.engine_options={max_row: 8}", "engine_options.max_row: .*Did you mean 'max_rows'"),
        ("model.lora={target_modules: [nothing]}", "cannot build the trainer.*nothing"),
    ],
)
def test_what_only_the_model_can_tell(tmp_path, override, wanted):
    with pytest.raises(RecipeError, match=wanted):
        GrpoRun(load_recipe("nano/grpo", [*SMALL, f"run.dir={tmp_path / 'run'}", override]))


def test_half_a_character_in_the_data(start, tmp_path):
    file = tmp_path / "half.jsonl"
    file.write_text('{"question": "a \\ud800", "answer": "1"}\n')
    assert "'question', row 0" in start(f"data.train={file}", error=DataError)


def test_a_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert GrpoRun(load_recipe("nano/grpo", [*SMALL, "run.dir=~/run"])).directory == tmp_path / "run"


def test_columns_named_as_what_a_reward_is_given(tmp_path):
    rewards = tmp_path / "mine.py"
    rewards.write_text(
        "from trlmath import Grade\n"
        "def first(completions, completion, prompts, answer, **columns):\n"
        "    assert completion == ['mine'] * 4 and 'column' not in prompts + completions\n"
        "    completions[:], answer[:] = ['taken'] * 4, [None] * 4\n"
        "    return [Grade(1.0, reason='\\ud800', category='a\\ud800')] * 4\n"
        "def second(completions, answer):\n"
        "    assert 'taken' not in completions and answer == ['1'] * 4\n"
        "    return [0.0] * 4\n"
    )
    row = {"question": "q", "answer": "1", "completion": "mine"}
    row |= dict.fromkeys(
        ("prompts", "completions", "completion_ids", "finish_reasons", "log_extra"), "column"
    )
    data = write(tmp_path / "data.jsonl", [row, row])
    names = [f"rewards=[{rewards}:first, {rewards}:second]", f"data.train={data}", "sampling.max_tokens=8"]
    run = GrpoRun(load_recipe("nano/grpo", [*SMALL, *names, f"run.dir={tmp_path / 'run'}"]))
    run.train()
    assert run.trainer.state.global_step == 1


def test_the_bar_counts_the_steps_of_part_of_an_epoch(tmp_path):
    data = write(tmp_path / "data.jsonl", [{"question": f"{i}", "answer": "1"} for i in range(9)])
    epochs = ["trainer.max_steps=-1", "trainer.num_train_epochs=1.3", "rollout.updates_per_rollout=2"]
    small = [*SMALL, *epochs, f"data.train={data}", "sampling.max_tokens=4", f"run.dir={tmp_path / 'run'}"]
    run = GrpoRun(load_recipe("nano/grpo", small))
    run.train()
    assert run._steps() == run.trainer.state.global_step == 11  # 4 phases of 2 updates, 1.3 times


def test_an_empty_dataset(start, tmp_path):
    empty = write(tmp_path / "empty.jsonl", [])
    assert "empty" in start(f"data.train={empty}", error=DataError)


def test_a_missing_answer_column(start, tmp_path):
    rows = write(tmp_path / "rows.jsonl", [{"question": f"{i}?", "gold": i} for i in range(4)])
    message = start(f"data.train={rows}", error=DataError)
    assert "answer" in message
    assert "gold" in message


def test_some_answers_are_none(start, tmp_path):
    rows = write(tmp_path / "rows.jsonl", [{"question": f"{i}?", "answer": i or None} for i in range(4)])
    message = start(f"data.train={rows}", error=DataError)
    assert "1 of 4 rows" in message
    assert "gradable_gold" in message


def test_too_many_golds_that_the_grader_cannot_read(start, tmp_path):
    rows = [{"question": f"{i}?", "answer": "{{{" if i == 7 else str(i)} for i in range(20)]
    data = write(tmp_path / "rows.jsonl", rows)
    message = start(f"data.train={data}", error=DataError)
    for piece in (
        "1 of 20 golds",
        "5.0 %",
        "allowed: 2 %",
        "row 7",
        "gradable_gold",
        "data.unreadable_golds",
    ):
        assert piece in message, message
    for way_out, left in (("data.unreadable_golds=0.05", 20), ("filters=[gradable_gold]", 19)):
        assert (
            len(prepare(load_recipe("nano/grpo", [*SMALL, f"data.train={data}", way_out])).problems) == left
        )


def test_one_prompt_fewer_than_a_step_needs(start, tmp_path):
    rows = write(tmp_path / "rows.jsonl", [{"question": f"{i}?", "answer": i} for i in range(3)])
    message = start(f"data.train={rows}", "rollout.prompts_per_step=4", error=DataError)
    assert "3 training rows, and a step needs 4" in message


def test_a_reward_that_reads_a_column_that_is_not_there(start, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def reward(completions, target):\n    return [0.0 for _ in completions]\n"
    )
    message = start(f"rewards=[{{name: '{tmp_path / 'mine.py'}:reward'}}]", error=RecipeError)
    assert "'target'" in message


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("raise KeyError('nope')", "KeyError"),
        ("return [0.0]", "1 values for 4"),
        ("return [float('nan')] * len(completions)", "nan"),
        ("return ['good'] * len(completions)", "good"),
    ],
)
def test_a_misbehaving_reward_stops_the_run_by_name(tmp_path, body, wanted):
    file = tmp_path / "bad.py"
    file.write_text(f"def reward(completions, **kwargs):\n    {body}\n")
    recipe = load_recipe(
        "nano/grpo", [*SMALL, f"run.dir={tmp_path / 'run'}", f"rewards=[{{name: '{file}:reward'}}]"]
    )
    with pytest.raises(PluginError) as caught, GrpoRun(recipe) as run:
        run.train()
    message = str(caught.value)
    assert "bad.py:reward" in message
    assert wanted in message
    assert "rollout" in message
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "failed"


def test_text_of_all_kinds_trains(tmp_path):
    questions = [
        "Was ist ½ + ¼?",
        "数学 {x}",
        "emoji 🧮 \u2028 ends",
        "{question} braces {{}}",
        "a" * 40,
        "\\frac{1}{2}",
    ]
    rows = write(
        tmp_path / "rows.jsonl", [{"question": q, "answer": str(i)} for i, q in enumerate(questions)]
    )
    overrides = [*SMALL, f"run.dir={tmp_path / 'run'}", f"data.train={rows}", "rollout.prompts_per_step=6"]
    overrides += ["run.checkpoint_every=1"]
    with GrpoRun(load_recipe("nano/grpo", overrides)) as run:
        run.train()
        run.finish()
    assert (tmp_path / "run" / "checkpoints" / "checkpoint-1" / "model.safetensors").is_file()
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(tmp_path / "run" / "rollouts" / "step-000000.parquet").to_pylist()
    assert sorted({row["question"] for row in table}) == sorted(questions)
    assert all(row["question"] in row["prompt"] for row in table)
