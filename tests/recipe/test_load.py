"""Loading recipes: defaults, YAML 1.2, overrides, and every error at once."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trlmath.errors import RecipeError
from trlmath.recipe import Recipe, load_recipe, parse_recipe
from trlmath.recipe.overrides import apply_overrides
from trlmath.recipe.yamls import dump, parse


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a recipe and gives its path."""

    def write(text, name="grpo.yaml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def errors_of(path, *overrides):
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, overrides)
    return str(caught.value)


def test_defaults():
    recipe = Recipe()
    assert (recipe.model.path, recipe.data.train.name, recipe.data.prompt.name) == ("nano", "nano", "r1_zero")
    assert [(r.name, r.weight) for r in recipe.rewards] == [("r1_zero", 1.0)]
    assert recipe.advantage.name == "group"
    assert (recipe.rollout.group_size, recipe.rollout.updates_per_rollout) == (8, 1)
    assert recipe.sampling.stop is None
    assert [(s.name, s.temperature, s.n) for s in recipe.evaluation.settings] == [
        ("sampled", 1.0, 1),
        ("greedy", 0.0, 1),
    ]


def test_numbers_of_yaml_1_2(write):
    recipe = load_recipe(
        write("trainer: {learning_rate: 1e-6, weight_decay: 0, max_steps: 10}\nmodel: {path: no}")
    )
    assert recipe.trainer == {"learning_rate": 1e-6, "weight_decay": 0, "max_steps": 10}
    assert recipe.model.path == "no"


def test_text_that_is_a_number_is_converted(write):
    recipe = load_recipe(write('sampling: {temperature: "7e-1"}\nrollout: {group_size: "4"}'))
    assert recipe.sampling.temperature == 0.7
    assert recipe.rollout.group_size == 4


def test_a_bare_name_means_name_it(write):
    recipe = load_recipe(
        write("rewards: [r1_zero, {name: length, weight: 0.5}]\nfilters: [duplicate]\nadvantage: rloo")
    )
    assert [(r.name, r.weight) for r in recipe.rewards] == [("r1_zero", 1.0), ("length", 0.5)]
    assert recipe.filters[0].name == "duplicate"
    assert recipe.advantage.name == "rloo"


def test_an_empty_section_means_its_defaults(write):
    assert load_recipe(write("trainer:\nmodel:\n")).to_dict() == Recipe().to_dict()


def test_overrides(write):
    path = write("rewards: [r1_zero]\nsampling: {temperature: 1}")
    recipe = load_recipe(
        path,
        [
            "sampling.temperature=0.7",
            "trainer.learning_rate=2e-6",
            "rewards.0.weight=2",
            "rewards.1=format",
            "advantage.options.std=false",
            "data.train.options.size=64",
            "evaluation.settings.1.n=4",
            "sampling.stop=</answer>",
            "run.dir=",
            "--model.dtype=bfloat16",
            "model.lora.r=8",
        ],
    )
    assert recipe.sampling.temperature == 0.7
    assert recipe.trainer["learning_rate"] == 2e-6
    assert [(r.name, r.weight) for r in recipe.rewards] == [("r1_zero", 2.0), ("format", 1.0)]
    assert (recipe.advantage.name, recipe.advantage.options) == ("group", {"std": False})
    assert (recipe.data.train.name, recipe.data.train.options) == ("nano", {"size": 64})
    assert [s.n for s in recipe.evaluation.settings] == [1, 4]
    assert recipe.sampling.stop == ["</answer>"]
    assert recipe.run.dir is None
    assert recipe.model.dtype == "bfloat16"
    assert recipe.model.lora == {"r": 8}


def test_a_later_override_wins_and_the_data_given_is_untouched():
    data = {"a": {"b": 1}, "l": [1, {"x": 2}]}
    assert apply_overrides(data, ["a.b=2", "a.b=3", "l.1.x=5"]) == {"a": {"b": 3}, "l": [1, {"x": 5}]}
    assert data == {"a": {"b": 1}, "l": [1, {"x": 2}]}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("learning_rate", "not of the form dotted.key=value"),
        ("=3", "not of the form"),
        ("a..b=3", "not of the form"),
        ("rewards.first.weight=1", "'first' is no index of a list of 1"),
        ("rewards.7=length", "give 0 to 1"),
        ("rollout.group_size.x=1", "stands where 'x' should be a key"),
        ("trainer.optim=[a", "not valid YAML"),
    ],
)
def test_a_wrong_override_is_named(write, override, expected):
    message = errors_of(write("rewards: [r1_zero]\nrollout: {group_size: 8}"), override)
    assert expected in message
    assert override.split("=")[0] in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sampling: {temprature: 1}", "sampling.temprature: unknown key. Did you mean 'temperature'?"),
        ("smapling: {temperature: 1}", "smapling: unknown key. Did you mean 'sampling'?"),
        ("temperature: 1", "Did you mean 'sampling.temperature'?"),
        ("learning_rate: 1", "trainer.learning_rate"),
        ("rewards: [{name: length, wieght: 2}]", "rewards.0.wieght: unknown key. Did you mean 'weight'?"),
        ("rewards: [{weight: 2}]", "rewards.0.name: is required"),
        ("rewards: []", "rewards: got []"),
        ("rewards: [7]", "rewards.0: got 7; allowed: a mapping, {key: value}, or a component's name"),
        ("rewards: r1_zero", "rewards: got 'r1_zero'; allowed: a list"),
        ("rewards: [{name: length, as_: chat}]", "rewards.0.as_: unknown key. Did you mean 'as'?"),
        (
            "rollout: {microbatch_tokens: abc}",
            "rollout.microbatch_tokens: got 'abc'; allowed: a valid integer",
        ),
        (
            "model: {dtype: fp8}",
            "model.dtype: got 'fp8'; allowed: 'float32', 'bfloat16', 'float16' or 'auto'",
        ),
        ("model: nano", "model: got 'nano'"),
        ("rollout: {group_size: 1}", "rollout.group_size: got 1; allowed: greater than or equal to 2"),
        ("rollout: {group_size: true}", "rollout.group_size: got True"),
        ("rollout: {group_size: 8.5}", "rollout.group_size: got 8.5"),
        ("rollout: {prompts_per_step: 0}", "rollout.prompts_per_step: got 0"),
        ("sampling: {temperature: 0}", "sampling.temperature: got 0"),
        ("sampling: {temperature: .nan}", "sampling.temperature: got nan"),
        ("sampling: {top_p: 1.5}", "sampling.top_p: got 1.5"),
        ("sampling: {min_tokens: 9, max_tokens: 4}", "sampling.min_tokens: got 9; allowed: at most"),
        ("sampling: {stop: ['']}", "sampling.stop"),
        ("sampling: {mode: server, url: 'localhost:8'}", "allowed: http://host:port"),
        ("sampling: {mode: server, engine: transformers}", "'transformers' is no server"),
        ("sampling: {mode: server, url: 'http://x', devices: [1]}", "sampling.devices"),
        ("sampling: {weights_dir: /tmp/w}", "sampling.weights_dir: has no meaning"),
        ("sampling: {url: 'http://x'}", "sampling.url"),
        ("rollout: {refill: 2}", "rollout.refill"),
        (
            "rollout: {refill: {max_rounds: 2}}",
            "rollout.refill: refills dropped groups, and `filters` is empty",
        ),
        ("rollout: {old_logprobs: engine}\nsampling: {top_p: 0.9}", "rollout.old_logprobs: the engine's are"),
        (
            "rollout: {old_logprobs: engine}\ntrainer: {vllm_importance_sampling_correction: true}",
            "trainer.vllm_importance_sampling_correction: needs",
        ),
        ("rollout: {clip: false}\ntrainer: {loss_type: sapo}", "rollout.clip: sapo has no clip"),
        ("trainer: {use_adaptive_entropy: true}", "trainer.use_adaptive_entropy: its controller"),
        ("trainer: {entropy_coef: 0.1, top_entropy_quantile: 0.2}", "trainer.entropy_coef: together"),
        ("run: {resume: true}", "run.resume"),
        ("checks: {nan: halt}", "checks.nan: got 'halt'"),
        ("rollout: {updates_per_rollout: 3}", "does not divide the 128 completions"),
        ("rewards: [r1_zero, r1_zero]", "'r1_zero' is named 2 times"),
        ("rewards: [{name: r1_zero, weight: 0}]", "every weight is 0"),
        ("evaluation: {settings: [{name: 'a b'}]}", "evaluation.settings.0.name: got 'a b'"),
        ("evaluation: {settings: []}", "evaluation.settings: is empty"),
        ("evaluation: {settings: [{name: a}, {name: a}]}", "two settings are called 'a'"),
        ("data: {eval: null}", "data.eval: is null"),
        ("trainer: {num_generations: 8}", "trainer.num_generations: is decided by rollout.group_size"),
        ("trainer: {seed: 8}", "trainer.seed: is decided by run.seed"),
        ("trainer: {max_prompt_length: 8}", "the filter prompt_length"),
        ("rollout: {clip: false}\ntrainer: {epsilon: 0.1}", "trainer.epsilon: has no meaning"),
        ("1: 2", "1: "),
        ("trainer: {1: 2}", "trainer"),
        ("run: {dir: 2026-11-30}", "run.dir: got datetime.date(2026, 11, 30); allowed: text"),
        ("", "is empty"),
        ("- a\n- b", "not a mapping"),
        ("a: 1\na: 2", "line 2"),
        ("a: [1", "not valid YAML"),
    ],
)
def test_a_mistake_names_the_key_and_what_is_allowed(write, text, expected):
    assert expected in errors_of(write(text))


def test_several_mistakes_are_listed_at_once(write):
    message = errors_of(write("rollout: {group_size: 1}\nmodel: {dtyp: x}"), "sampling.top_p=3", "stop=x")
    for key in ("rollout.group_size", "model.dtyp", "sampling.top_p", "stop"):
        assert f"\n{key}: " in message


def test_a_file_that_is_not_utf8_or_not_there(tmp_path):
    (tmp_path / "latin.yaml").write_bytes("run: {dir: \xe9}".encode("latin-1"))
    assert "not UTF-8" in errors_of(tmp_path / "latin.yaml")
    assert "Did you mean 'nano/grpo'" in errors_of("nano/gpro")


def test_file_names_beside_the_recipe_become_absolute(write, tmp_path, monkeypatch):
    for name in ("mine.py", "rows.jsonl", "my.prompt"):
        (tmp_path / name).write_text("")
    path = write("rewards: [mine.py:score]\ndata: {train: rows.jsonl, eval: other.jsonl, prompt: my.prompt}")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    recipe = load_recipe(path)
    assert recipe.rewards[0].name == f"{tmp_path / 'mine.py'}:score"
    assert recipe.data.train.name == str(tmp_path / "rows.jsonl")
    assert recipe.data.prompt.name == str(tmp_path / "my.prompt")
    assert recipe.data.eval.name == "other.jsonl"
    (elsewhere / "rows.jsonl").write_text("")
    assert load_recipe(path).data.train.name == "rows.jsonl", "the working directory comes first"


def test_the_resolved_recipe_loads_back_as_the_same(write):
    recipe = load_recipe(
        write(
            "rewards: [{name: length, as: chat, columns: {solution: answer}, options: {target: 1, max: 2}}]"
        ),
        ["trainer.learning_rate=1e-6", "sampling.stop=['é', '{x}', 'a: b']"],
    )
    again = load_recipe(write(recipe.to_yaml(), "again.yaml"))
    assert again.to_dict() == recipe.to_dict()
    assert again.trainer["learning_rate"] == 1e-6


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(min_size=1), plain, max_size=4))
def test_what_is_dumped_parses_back(data):
    assert parse(dump({"x": data}), "here") == {"x": data}


def test_the_name_of_a_recipe(write, tmp_path):
    assert load_recipe("nano/grpo").name == "nano-grpo"
    assert load_recipe(write("run: {seed: 1}", "mine.yaml")).name == f"{tmp_path.name}-mine"
    assert parse_recipe({}).name == "recipe"


def test_loading_a_recipe_imports_neither_torch_nor_trl():
    code = "import sys; from trlmath import load_recipe; load_recipe('nano/grpo'); print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "trlmath.recipe" in modules
    assert not {"torch", "trl", "transformers", "datasets"} & set(modules)


def test_rewards_left_empty_are_not_the_default():
    with pytest.raises(RecipeError, match="rewards: is empty, .* leave the key out"):
        parse_recipe({"rewards": None})
    assert parse_recipe({"trainer": None}).rewards[0].name == "r1_zero"
