"""The problems can be solved, the reward knows when they are, and nothing of an answer is executed."""

from fractions import Fraction

import pytest
import trlmath_countdown
from trlmath_countdown import LONGEST, TEMPLATE, CountdownData, CountdownReward, evaluate

from trlmath import RecipeError


def test_it_conforms(check_plugin):
    check_plugin(trlmath_countdown)


@pytest.mark.parametrize("numbers", [2, 3, 4])
def test_every_problem_is_solved_by_its_own_solution(numbers):
    data = CountdownData(size=64, numbers=numbers)
    problems = [*data.load("train"), *data.load("eval")]
    assert len({p.question for p in problems}) == 64 + 8
    for problem in problems:
        given, target = problem.metadata["numbers"], problem.metadata["target"]
        text = f"so </think> <answer> {problem.solution} </answer>"
        (grade,) = CountdownReward()(completions=[text], numbers=[given], target=[target])
        assert grade.reward == 1.0, (problem, grade)
        assert problem.answer == str(target)
        assert f"equals {target}." in problem.question


def grade(answer, numbers=(3, 5, 2), target=21, **options):
    text = f"so </think> <answer>{answer}</answer>"
    return CountdownReward(**options)(completions=[text], numbers=[list(numbers)], target=[target])[0]


@pytest.mark.parametrize(
    ("answer", "category", "reward"),
    [
        ("(5 + 2) * 3", "right", 1.0),
        ("3 * (2 + 5) = 21", "right", 1.0),
        ("3 \u00d7 (2 + 5)", "right", 1.0),
        ("5 + 2 * 3", "wrong_value", 0.1),
        ("21", "wrong_numbers", 0.1),
        ("3 * (2 + 5) + 5 - 5", "wrong_numbers", 0.1),
        ("3 * 7", "wrong_numbers", 0.1),
        ("5 / (2 - 2)", "unreadable", 0.0),
        ("3 ** 5", "unreadable", 0.0),
        ("3 5 2", "unreadable", 0.0),
        ("(3 + 5", "unreadable", 0.0),
        ("three", "unreadable", 0.0),
        ("", "no_answer", 0.0),
    ],
)
def test_what_an_answer_earns(answer, category, reward):
    found = grade(answer, partial=0.1)
    assert (found.category, found.reward) == (category, reward)


def test_an_answer_before_the_thinking_ends_or_twice_is_none():
    reward = CountdownReward()
    columns = {"numbers": [[3, 5, 2]], "target": [21]}
    for text in (
        "<answer> (5 + 2) * 3 </answer>",
        "</think> <answer> (5 + 2) * 3 </answer> <answer> 1 </answer>",
        "</think> (5 + 2) * 3",
    ):
        assert reward(completions=[text], **columns)[0].category == "no_answer"


@pytest.mark.parametrize(
    "wild",
    [
        "__import__('os').system('touch x')",
        "9**9**9",
        "1 if 1 else 2",
        "lambda: 1",
        "1e9",
        "0x10",
        "a",
        "1_000",
        "[1]",
    ],
)
def test_only_numbers_operators_and_brackets_are_read(wild):
    with pytest.raises(ValueError, match="operator|expected"):
        evaluate(wild)


def test_values_are_exact_and_bounded():
    assert evaluate("1 / 3 + 1 / 3 + 1 / 3") == (Fraction(1), [1, 3, 1, 3, 1, 3])
    assert evaluate("-(2 - 5)")[0] == 3
    with pytest.raises(ValueError, match="characters"):
        evaluate("(" * (LONGEST + 1))
    with pytest.raises(ValueError, match="ends too early"):
        evaluate("(" * LONGEST)


def test_the_prompt_has_the_form_that_the_reward_reads(offered):
    prompt = offered(trlmath_countdown, "prompt", "countdown")
    text = prompt.render("Using the numbers 1 and 2, each exactly once, write an expression that equals 3.")
    assert text.endswith("equals 3.\nAssistant: <think>")
    assert "\\" not in TEMPLATE


@pytest.mark.parametrize("options", [{"size": 1}, {"numbers": 9}, {"most": 1}])
def test_options_that_cannot_be(options):
    with pytest.raises(RecipeError, match="countdown needs"):
        CountdownData(**options)


def test_more_problems_than_there_are():
    with pytest.raises(RecipeError, match="lower size or raise most"):
        list(CountdownData(size=5000, numbers=2, most=5).load("train"))
