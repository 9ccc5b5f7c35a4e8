"""Filters applied to rows and groups, the ledger of drops, and filters that misbehave."""

from __future__ import annotations

import pytest

from trlmath import Drop, Grade, Group, Keep, Problem, Prompt, Rollout
from trlmath.components import Component
from trlmath.data.filtering import NamedFilter, apply_filters, build_filters, filter_problems
from trlmath.errors import DataError, PluginError
from trlmath.recipe import Ref
from trlmath.targets import Origin

PROBLEMS = [Problem("a", "1"), Problem("b", None), Problem("A ", "1"), Problem("c", "2")]


def named(function, moment="example"):
    function.moment = moment
    return NamedFilter(
        "mine", Component("filter", "mine", function, Origin("trlmath-x", "1.0", "x.py:1")), function
    )


def test_kept_rows_and_the_ledger():
    filters = build_filters([Ref(name="gradable_gold"), Ref(name="duplicate"), Ref(name="zero_spread")])
    result = filter_problems(PROBLEMS, filters, "rows")
    assert result.kept == [PROBLEMS[0], PROBLEMS[3]]
    assert result.indices == [0, 3]
    assert [e.to_dict() for e in result.dropped] == [
        {
            "moment": "example",
            "filter": "gradable_gold",
            "reason": "no gold answer",
            "index": 1,
            "question": "b",
        },
        {
            "moment": "example",
            "filter": "duplicate",
            "reason": "duplicate question",
            "index": 2,
            "question": "A ",
        },
    ]
    assert result.counts() == {"gradable_gold: no gold answer": 1, "duplicate: duplicate question": 1}


def test_the_first_drop_decides_and_later_filters_do_not_see_the_row():
    seen = []

    def drop_b(item):
        return Drop("b") if item.question == "b" else Keep()

    def watch(item):
        seen.append(item.question)
        return Keep()

    apply_filters(PROBLEMS, [named(drop_b), named(watch)], "example")
    assert seen == ["a", "A ", "c"]


def test_filters_of_another_moment_are_left_out():
    def never(item):
        raise AssertionError

    assert apply_filters(PROBLEMS, [named(never, "group")], "example").kept == PROBLEMS
    groups = [Group("p", (), (), PROBLEMS[0]), Group("q", (), ())]
    dropped = apply_filters(groups, [named(lambda item: Drop("no"), "group")], "group").dropped
    assert [e.question for e in dropped] == ["a", "q"]


def test_dropping_every_row_is_an_error_with_the_reasons():
    with pytest.raises(DataError, match=r"drop all 4 rows of 'rows': mine: too long \(4\)"):
        filter_problems(PROBLEMS, [named(lambda item: Drop("too long"))], "rows")


def test_bind_hands_over_what_is_named():
    class Tokenizer:
        def __call__(self, text):
            return {"input_ids": list(text)}

    (built,) = build_filters(
        [Ref(name="prompt_length", options={"max": 5})],
        tokenizer=Tokenizer(),
        prompt=Prompt("p", "Q:{question}"),
    )
    assert built(Problem("123")) == Keep()
    assert built(Problem("1234")) == Drop("prompt over 5 tokens")


def test_a_filter_that_wants_what_there_is_not():
    class Greedy:
        moment = "example"

        def bind(self, tokeniser):
            raise AssertionError

        def __call__(self, item):
            return Keep()

    greedy = NamedFilter("greedy", Component("filter", "greedy", Greedy, Origin("d", "1", "x")), Greedy())
    with pytest.raises(PluginError, match="asks for 'tokeniser'. Did you mean 'tokenizer'"):
        greedy.bind(tokenizer=1, prompt=2)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda item: True, "returned True; return Keep"),
        (lambda item: None, "returned None"),
        (lambda item: 1 / 0, "raised ZeroDivisionError.*The item: 'a'"),
    ],
)
def test_a_filter_that_misbehaves_is_named(function, expected):
    with pytest.raises(PluginError, match=expected) as caught:
        apply_filters(PROBLEMS, [named(function)], "example")
    assert "trlmath-x 1.0" in str(caught.value)


@pytest.mark.parametrize("moment", ["exmaple", None])
def test_a_filter_without_a_known_moment_is_refused(moment):
    with pytest.raises(PluginError, match="allowed: example, group, trace"):
        named(lambda item: Keep(), moment)


class Best:
    """Keeps the longest question only: it has to see all of them."""

    moment = "trace"

    def select(self, items):
        longest = max(len(item.question) for item in items) if items else 0
        return [Keep() if len(item.question) == longest else Drop("shorter") for item in items]

    def __call__(self, item):
        raise AssertionError("select() answers for all items")


def of(target):
    return NamedFilter(
        "mine", Component("filter", "mine", target, Origin("trlmath-x", "1.0", "x.py:1")), target
    )


def test_what_a_filter_does_to_an_item_nobody_else_sees():
    def vandal(item):
        problem = getattr(item, "problem", item)
        problem.metadata["n"].append(9)
        problem.metadata["mine"] = 1
        for rollout in getattr(item, "rollouts", ()):
            rollout.grade.parts.clear()
        return Keep()

    problem = Problem("a", "1", metadata={"n": [1]})
    group = Group("a", (1,), (Rollout("x", (1,), grade=Grade(1.0, {"both": 1.0})),), problem)
    for item, moment in ((problem, "example"), (group, "group")):
        assert apply_filters([item], [named(vandal, moment)], moment).kept == [item]
    assert problem.metadata == {"n": [1]}
    assert group.rollouts[0].grade.parts == {"both": 1.0}


def test_a_filter_may_decide_over_all_items_that_the_others_kept():
    rows = [Problem("aaa"), Problem("bb"), Problem("c")]
    no_a = named(lambda item: Drop("a") if "a" in item.question else Keep(), "trace")
    result = apply_filters(rows, [of(Best()), no_a], "trace")
    assert result.kept == []
    result = apply_filters(rows, [no_a, of(Best())], "trace")
    assert (result.kept, result.indices) == ([rows[1]], [1])
    # the ledger lies in the order of the items, not of the filters
    assert [(e.index, e.reason) for e in result.dropped] == [(0, "a"), (2, "shorter")]


@pytest.mark.parametrize("answer", [[Keep()], Keep(), [Keep(), True]])
def test_a_select_that_does_not_answer_for_every_item_is_named(answer):
    target = Best()
    target.select = lambda items: answer
    with pytest.raises(PluginError, match=r"'mine' \(trlmath-x 1.0"):
        apply_filters([Problem("a"), Problem("b")], [of(target)], "trace")


def test_begin_recall_and_state_are_optional_and_guarded():
    plain = named(lambda item: Keep(), "trace")
    plain.begin(0, 0)
    assert (plain.recall(), plain.state_dict()) == ([], None)
    target = Best()
    target.begin = lambda iteration, pool: (_ for _ in ()).throw(KeyError("x"))
    with pytest.raises(PluginError, match="'mine'.*KeyError.*Iteration 3"):
        of(target).begin(3, 0)
