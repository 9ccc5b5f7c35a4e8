"""The nano generator: answers and every step are right, the splits are disjoint, the seed decides."""

import random
import re
import subprocess
import sys
import time
from fractions import Fraction

import pytest

from trlmath.data.nano import NanoDataset
from trlmath.data.nano.task import FAMILIES, LEVELS, decimal, make_item, split_of
from trlmath.errors import DataError


def arithmetic(expression: str) -> Fraction:
    """Evaluate an expression of numbers, + - * / ^ and brackets exactly."""
    tokens = re.findall(r"\d+(?:\.\d+)?|[-+*/^()]", expression)
    assert "".join(tokens) == expression, expression

    def peek() -> str:
        return tokens[0] if tokens else ""

    def total() -> Fraction:
        result = term()
        while peek() in ("+", "-"):
            result = result + term() if tokens.pop(0) == "+" else result - term()
        return result

    def term() -> Fraction:
        result = signed()
        while peek() in ("*", "/"):
            result = result * signed() if tokens.pop(0) == "*" else result / signed()
        return result

    def signed() -> Fraction:
        if peek() == "-":
            tokens.pop(0)
            return -signed()
        base = atom()
        if peek() == "^":
            tokens.pop(0)
            return base ** int(signed())
        return base

    def atom() -> Fraction:
        head = tokens.pop(0)
        if head == "(":
            inner = total()
            assert tokens.pop(0) == ")"
            return inner
        return Fraction(head)

    result = total()
    assert not tokens
    return result


def put_in(polynomial: str, x: object) -> str:
    """Put a value for x into a polynomial and take its spaces out."""
    return re.sub(r"(\d*)x(\^2)?", lambda m: f"{m[1] or 1}*({x}){m[2] or ''}", polynomial).replace(" ", "")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("level", LEVELS)
def test_every_step_of_a_trace_is_an_equality(family, level):
    rng = random.Random(f"{family}{level}")
    for _ in range(150):
        item = make_item(rng, family, level)
        assert (item.family, item.level) == (family, level)
        assert item.trace.endswith(item.answer)
        assert item.terse.endswith("=" + item.answer)
        for step in item.trace.split(", "):
            sides = step.split("=")
            if "x" in step or step.startswith("sign"):
                continue
            assert len({arithmetic(side) for side in sides}) == 1, item


def test_expressions_have_the_gold_answer():
    rng = random.Random(3)
    checked = 0
    for _ in range(3000):
        item = make_item(
            rng, rng.choice(("sums", "products", "fractions", "powers", "decimals")), rng.choice(LEVELS)
        )
        match = re.fullmatch(r"(?:Compute|Evaluate|What is|How much is) (.+)[.?]", item.question)
        assert arithmetic(match[1].replace(" ", "")) == Fraction(item.answer), item
        checked += 1
    assert checked == 3000


def test_equations_are_solved_by_their_root():
    rng = random.Random(4)
    for _ in range(600):
        item = make_item(rng, "equations", rng.choice(LEVELS))
        equation = re.search(r"-?\d*x [-+] \d+ = .*?(?=[.?]|$| for x)", item.question)[0]
        left, right = (arithmetic(put_in(part, item.answer)) for part in equation.split("="))
        assert left == right, item


def test_percents_values_and_means_have_the_gold_answer():
    rng = random.Random(5)
    for _ in range(900):
        item = make_item(rng, rng.choice(("percents", "values", "means")), rng.choice(LEVELS))
        numbers = [int(n) for n in re.findall(r"(?<![\^\d])-?\d+", item.question)]
        if item.family == "means":
            want = Fraction(sum(numbers), len(numbers))
        elif item.family == "percents":
            factor = {"rises": lambda p: 100 + p, "falls": lambda p: 100 - p}
            verb = next((v for v in factor if v in item.question), None)
            want = Fraction(numbers[0] * (factor[verb](numbers[1]) if verb else numbers[1]), 100)
        else:
            x = int(re.search(r"x = (-?\d+)", item.question)[1])
            found = re.search(r"-?\d*x(?:\^2)? [-+] [^?.=]*?\d+(?=[.?]| at| when)", item.question)
            want = arithmetic(put_in(found[0], x))
        assert Fraction(item.answer) == want, item


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (Fraction(5, 2), "2.5"),
        (Fraction(-3, 4), "-0.75"),
        (Fraction(1, 3), "1/3"),
        (7, "7"),
        (Fraction(1, 100), "0.01"),
    ],
)
def test_decimal_writes_the_shortest_form(value, written):
    assert decimal(value) == written


def test_answers_are_negative_fractional_and_decimal():
    answers = [p.answer for p in NanoDataset().load("eval")]
    assert sum(a.startswith("-") for a in answers) > 40
    assert sum("/" in a for a in answers) > 40
    assert sum("." in a for a in answers) > 25


def test_train_and_eval_share_no_problem_whatever_the_seeds():
    held_out = {p.question for p in NanoDataset(seed=0, eval_size=2000).load("eval")}
    trained = {p.question for seed in (0, 1) for p in NanoDataset(seed=seed).load("train")}
    assert not held_out & trained
    rng = random.Random(6)
    by_question: dict[str, set[str]] = {}
    for _ in range(5000):
        item = make_item(rng, rng.choice(list(FAMILIES)), 1)
        by_question.setdefault(item.question, set()).add(split_of(item.key))
    assert all(len(splits) == 1 for splits in by_question.values())


def test_another_wording_of_a_problem_is_in_the_same_split():
    rng = random.Random(7)
    wordings: dict[str, set[str]] = {}
    for _ in range(4000):
        item = make_item(rng, "means", 1)
        wordings.setdefault(item.key, set()).add(item.question)
    assert any(len(questions) > 1 for questions in wordings.values())
    assert 0.05 < sum(split_of(key) == "eval" for key in wordings) / len(wordings) < 0.15


def test_dataset_is_a_function_of_its_seed():
    assert NanoDataset(seed=3, train_size=50).load("train") == NanoDataset(seed=3, train_size=50).load(
        "train"
    )
    assert NanoDataset(seed=3, train_size=50).load("train") != NanoDataset(seed=4, train_size=50).load(
        "train"
    )


def test_dataset_rows():
    problems = NanoDataset(train_size=40, families=["means", "sums"]).load("train")
    assert len({p.question for p in problems}) == len(problems) == 40
    assert {p.metadata["family"] for p in problems} == {"means", "sums"}
    for problem in problems:
        assert problem.trace == f" {problem.solution} </think> <answer> {problem.answer} </answer>"


def test_dataset_is_quick_and_needs_no_torch():
    code = (
        "import sys, time\nfrom trlmath.data.nano import NanoDataset, MODEL_DIR\nt = time.process_time()\n"
        "NanoDataset().load('train'), NanoDataset().load('eval')\n"
        "print(time.process_time() - t, 'torch' in sys.modules)"
    )
    seconds, torch_loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert torch_loaded == "False"
    assert float(seconds) < 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"families": ["fraction"]}, "Did you mean 'fractions'"),
        ({"families": []}, "families is empty"),
        ({"train_size": 0}, "train_size is 0"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(DataError, match=message):
        NanoDataset(**options)


def test_wrong_split_and_too_many_problems():
    with pytest.raises(DataError, match="no split 'test'"):
        NanoDataset().load("test")
    began = time.monotonic()
    with pytest.raises(DataError, match="eval_size"):
        NanoDataset(eval_size=50_000, families=["powers"]).load("eval")
    assert time.monotonic() - began < 20
