"""The reward adapter: arguments, columns, chat shape, and errors that name the plugin and the rollout."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy
import pytest
import torch

from trlmath import Grade
from trlmath.components import Component
from trlmath.errors import PluginError, RecipeError
from trlmath.recipe import RewardEntry
from trlmath.rewards import RewardCaller, build_rewards, metric_name
from trlmath.targets import Origin

ORIGIN = Origin("trlmath-somebody", "4.2", "somewhere.py:7")
BATCH = {
    "prompts": ["p1", "p2", "p3"],
    "completions": ["a", "héllo \n{x}", "c" * 999],
    "completion_ids": [[1], [1, 2], [3]],
    "finish_reasons": ["stop", "stop", "length"],
    "question": ["q1", "q2", "q3"],
    "answer": ["1", "2", "3"],
    "level": [1, 2, 3],
}


def caller(function, completions="text", **entry):
    component = Component("reward", "mine", function, ORIGIN, completions)
    return RewardCaller(RewardEntry(name="mine", **entry), component)


def rewards(function, **entry):
    return [grade.reward for grade in caller(function, **entry)(**BATCH)]


def test_only_the_arguments_that_are_named_are_passed():
    def named(completions, level):
        return [len(text) * number for text, number in zip(completions, level, strict=True)]

    assert rewards(named) == [1, 20, 2997]


def test_everything_is_passed_to_kwargs():
    seen = {}

    def all_of(completions, **kwargs):
        seen.update(kwargs)
        return [0.0] * 3

    rewards(all_of)
    assert set(seen) == set(BATCH) - {"completions"}


def test_columns_are_renamed():
    def like_trl(completions, solution, **kwargs):
        return [float(s) for s in solution]

    assert rewards(like_trl, columns={"solution": "answer"}) == [1.0, 2.0, 3.0]


def test_chat_shape():
    def chatty(completions):
        return [
            float(len(c) == 1 and c[0]["role"] == "assistant") * len(c[0]["content"]) for c in completions
        ]

    assert rewards(chatty, **{"as": "chat"}) == [1, 10, 999]
    assert [g.reward for g in caller(chatty, completions="chat")(**BATCH)] == [1, 10, 999]
    with pytest.raises(PluginError, match="add `as: chat`"):
        rewards(chatty, **{"as": "text"})


def test_chat_shape_of_prompts():
    def last_words(completions, prompts):
        return [float(p[-1] == {"role": "user", "content": f"p{i}"}) for i, p in enumerate(prompts, 1)]

    assert rewards(last_words, **{"as": "chat"}) == [1.0] * 3


def test_coroutine_functions_are_awaited():
    async def slow(completions, level):
        await asyncio.sleep(0)
        return [float(number) for number in level]

    async def raises(completions, level):
        return [1 / (2 - number) for number in level]

    assert rewards(slow) == [1.0, 2.0, 3.0]
    assert "number 1 of 3" in str(failure(raises))


def test_what_trl_hands_to_rewards_is_no_missing_column():
    def like_trl(completions, answer, trainer_state, log_extra, log_metric):
        return [0.0] * 3

    caller(like_trl).check_columns(["question", "answer"])


def test_grades_pass_with_their_parts():
    given = [Grade(1.0, {"format": 1.0}, "both", "fine"), Grade(None), Grade(0.0)]
    assert caller(lambda completions: given)(**BATCH) == given


@pytest.mark.parametrize(
    "values",
    [
        [1, 0, True],
        (1.0, 0.0, 1.0),
        numpy.array([1.0, 0, 1]),
        torch.tensor([1.0, 0, 1]),
        list(numpy.float32([1, 0, 1])),
    ],
)
def test_sequences_arrays_and_tensors_are_taken(values):
    got = rewards(lambda completions: values)
    assert got == [1.0, 0.0, 1.0]
    assert all(type(reward) is float for reward in got)


def test_none_means_it_cannot_be_scored():
    assert rewards(lambda completions: [None, 1.0, None]) == [None, 1.0, None]


def failure(function, **entry):
    with pytest.raises(PluginError) as caught:
        caller(function, **entry)(**BATCH)
    assert "'mine'" in str(caught.value)
    assert "trlmath-somebody 4.2" in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, float("nan"), 1.0], "returned nan as its reward"),
        ([1.0, float("inf"), 1.0], "returned inf as its reward"),
        ([1.0, 1e300, 1.0], "returned 1e+300 as its reward"),
        ([1.0, 10**400, 1.0], "returned a number over 3.4e38 as its reward"),
        ([1.0, "good", 1.0], "'good' (str)"),
        ([1.0, [1.0], 1.0], "[1.0] (list)"),
        ([1.0, Grade(float("nan")), 1.0], "returned nan as its reward"),
        ([1.0, Grade(1.0, {"style": float("nan")}), 1.0], "returned nan as style"),
    ],
)
def test_a_wrong_value_names_the_first_rollout(values, expected):
    message = str(failure(lambda completions: values))
    assert expected in message
    assert "number 1 of 3" in message
    assert r"'h\xe9llo \n{x}'" in message, "the text is escaped"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0, 1.0], "returned 2 values for 3 completions"),
        ([1.0] * 4, "returned 4 values for 3 completions"),
        ([], "returned 0 values"),
        (None, "returned NoneType"),
        (1.0, "returned float"),
        ("111", "returned str"),
        ({1: 1}, "returned dict"),
    ],
)
def test_a_wrong_number_of_values(values, expected):
    assert expected in str(failure(lambda completions: values))


def test_an_exception_names_the_rollout_that_raised_and_is_chained():
    def raises(completions, level):
        return [1 / (3 - number) for number in level]

    error = failure(raises)
    assert "ZeroDivisionError: division by zero" in str(error)
    assert "number 2 of 3" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert len(str(error)) < 600, "the text is shortened"


def test_a_missing_column_is_an_error_before_training():
    def needs(completions, solution, extra=None):
        return [0.0] * 3

    available = ["question", "answer", "solutions"]
    with pytest.raises(RecipeError, match="no column 'solution'. Did you mean 'solutions'"):
        caller(needs).check_columns(available)
    caller(needs, columns={"solution": "answer"}).check_columns(available)
    with pytest.raises(RecipeError, match="no column 'gold'"):
        caller(needs, columns={"solution": "gold"}).check_columns(available)
    with pytest.raises(RecipeError, match="no column 'gold'"):
        caller(needs, columns={"solution": "answer", "extra": "gold"}).check_columns(available)


def test_a_renamed_argument_must_exist():
    with pytest.raises(RecipeError, match="no argument 'solutoin' .*Did you mean 'solution'"):
        caller(lambda completions, solution: [], columns={"solutoin": "answer"})


def test_names_for_metrics():
    assert metric_name("r1_zero") == "r1_zero"
    assert metric_name("trl.rewards:accuracy_reward") == "trl.rewards.accuracy_reward"
    assert metric_name("/a/b.c/mine.py:score") == "mine.score"


def test_functions_of_verifiers_rubrics_work_one_rollout_at_a_time():
    def exact(completion, answer, **kwargs) -> float:
        return float(completion[-1]["content"].endswith(answer))

    async def brief(prompt, completion, state, info, level) -> float:
        assert prompt == [{"role": "user", "content": f"p{level}"}]
        assert state["completion"] == completion
        assert state["answer"] == str(level)
        assert info == {}
        return 1.0 / len(completion[0]["content"])

    def text_only(completion) -> float:
        return float(len(completion))

    assert [g.reward for g in caller(exact)(completions=["so 4", "so 5"], answer=["4", "4"])] == [1.0, 0.0]
    assert rewards(brief) == [1.0, 0.1, 1 / 999]
    assert rewards(text_only, **{"as": "text"}) == [1.0, 10.0, 999.0]
    caller(brief).check_columns(["question", "answer", "level"])
    with pytest.raises(RecipeError, match="no column 'level'"):
        caller(brief).check_columns(["question", "answer"])


def test_something_that_cannot_be_called():
    @dataclass
    class Nothing:
        x: int = 1

    with pytest.raises(PluginError, match="cannot be called"):
        caller(Nothing)


def test_rewards_of_trl_work_by_name_on_plain_text():
    think, accuracy = build_rewards(
        [
            RewardEntry(name="think_format_reward"),
            RewardEntry(name="accuracy_reward", columns={"solution": "answer"}, weight=0.5),
        ]
    )
    texts = ["<think>\nso\n</think>\n" + r"\boxed{2}", r"\boxed{3}"]
    batch = {"completions": texts, "answer": ["2", "2"]}
    assert [g.reward for g in think(**batch)] == [1.0, 0.0]
    assert [g.reward for g in accuracy(**batch)] == [1.0, 0.0]
    assert accuracy.weight == 0.5


def test_a_function_in_a_file_works_by_name(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def score(completions, **kwargs):\n    return [len(c) for c in completions]\n"
    )
    (built,) = build_rewards([RewardEntry(name=f"{tmp_path}/mine.py:score")])
    assert built.name == "mine.score"
    assert [g.reward for g in built(completions=["ab"])] == [2.0]


def test_a_reward_that_exits_is_an_error_of_its_own(tmp_path):
    file = tmp_path / "leaves.py"
    file.write_text("def leave(completions):\n    raise SystemExit(3)\n")
    reward = build_rewards([RewardEntry(name=f"{file}:leave")])[0]
    with pytest.raises(PluginError, match="raised SystemExit: 3"):
        reward(completions=["a"])
