"""Each fault of a reward: contained, named with the rollout, and unscorable instead of the end if asked."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest
import torch

from trlmath import Grade
from trlmath.components import Component
from trlmath.errors import PluginError
from trlmath.recipe import RewardEntry
from trlmath.reward_faults import (
    BATCHES_IN_A_ROW,
    REWARD_ERROR,
    FaultPolicy,
    error_shares,
    left_threads,
)
from trlmath.rewards import RewardCaller
from trlmath.targets import Origin

ORIGIN = Origin("trlmath-somebody", "4.2", "somewhere.py:7")
BATCH = {"prompts": ["p"] * 4, "completions": ["one", "two", "three", "four"], "info": [{"n": [1]}] * 4}


def caller(function, timeout=0.3, on_error="stop", **entry):
    made = RewardCaller(
        RewardEntry(name="mine", **entry),
        Component("reward", "mine", function, ORIGIN),
        FaultPolicy(timeout, on_error),
    )
    made.told = []
    made.faults.tell = made.told.append
    return made


def scores(reward, **batch):
    return [grade.reward for grade in reward(**{**BATCH, **batch})]


def raising(error):
    def what():
        raise error

    return what


class Each:
    """Grades each completion by itself, and does `what` at "three"."""

    independent = True

    def __init__(self, what):
        self.what = what

    def __call__(self, completions):
        return [self.what() if text == "three" else float(len(text)) for text in completions]


def together(what):
    def reward(completions):
        longest = max(map(len, completions))
        return [what() if text == "three" else len(text) / longest for text in completions]

    return reward


def raises():
    raise ValueError("no")


def leaves():
    raise SystemExit(3)


def hangs():
    time.sleep(1e6)


def one_by_one(what):
    def reward(completion):
        return what() if completion[0]["content"] == "three" else 1.0

    return reward


@pytest.mark.parametrize("make", [together, Each, one_by_one])
def test_a_hang_is_named_with_the_rollout_and_the_line(make):
    with pytest.raises(PluginError) as caught:
        caller(make(hangs))(**BATCH)
    message = str(caught.value)
    assert "'mine' (trlmath-somebody 4.2" in message
    assert "gave no answer for 4 completions within 0.3 s (checks.reward_timeout)" in message
    assert "It was at rollout 2 of 4, 'three'" in message
    assert f"It was in {__file__}:" in message


def test_a_hang_that_cannot_be_pinned_on_a_rollout_says_so():
    with pytest.raises(PluginError, match="Which rollout it was at cannot be told"):
        caller(lambda completions: hangs())(**BATCH)


def test_a_hang_in_a_grading_thread_is_named_and_nobody_waits_for_it():
    caught = []

    def work():
        try:
            caller(together(hangs))(**BATCH)
        except PluginError as error:
            caught.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert "It was at rollout 2 of 4, 'three'" in caught[0]


@pytest.mark.parametrize(
    ("value", "told"), [(float("nan"), "nan"), (float("inf"), "inf"), ("good", "'good'")]
)
def test_a_wrong_value_costs_its_rollout_only(value, told):
    reward = caller(together(lambda: value), on_error="unscorable")
    assert scores(reward) == [0.6, 0.6, None, 0.8]
    grade = reward(**BATCH)[2]
    assert (grade.category, grade.parts) == (REWARD_ERROR, {})
    assert told in grade.reason
    assert len(reward.told) == 1, "told once"
    assert "1 of 4 rollouts cannot be scored: reward 'mine'" in reward.told[0]
    assert error_shares([reward], list) == {"rewards/mine/errors": 0.25}
    assert error_shares([reward], list) == {}, "since last asked"


@pytest.mark.parametrize("what", [raises, leaves, hangs])
def test_a_fault_of_a_reward_that_grades_each_by_itself_costs_the_rollout(what):
    reward = caller(Each(what), on_error="unscorable")
    assert scores(reward) == [3.0, 3.0, None, 4.0]


@pytest.mark.parametrize("what", [raises, leaves, hangs])
def test_a_fault_of_one_that_compares_rollouts_costs_the_batch(what):
    reward = caller(together(what), on_error="unscorable")
    assert scores(reward) == [None] * 4
    assert scores(reward, completions=["one", "four"], prompts=["p"] * 2, info=[{}] * 2) == [0.75, 1.0]


@pytest.mark.parametrize("answer", [None, "text", [1.0], 7.0])
def test_what_is_no_list_of_the_right_length_costs_the_batch(answer):
    assert scores(caller(lambda completions: answer, on_error="unscorable")) == [None] * 4


def test_a_reward_that_scores_nothing_any_more_ends_the_run():
    reward = caller(together(raises), on_error="unscorable")
    for _ in range(BATCHES_IN_A_ROW - 1):
        reward(**BATCH)
    with pytest.raises(PluginError, match=r"every rollout of 5 batches in a row.*ValueError: no"):
        reward(**BATCH)
    partly = caller(Each(raises), on_error="unscorable")
    for _ in range(2 * BATCHES_IN_A_ROW):
        assert scores(partly)[0] == 3.0


def test_no_limit_and_an_answer_in_time():
    def slow(completions):
        time.sleep(0.1)
        return [1.0] * 4

    assert scores(caller(slow, timeout=None)) == scores(caller(slow, timeout=5)) == [1.0] * 4


def test_what_a_reward_does_to_its_input_nobody_else_sees():
    batch = {"completions": ["a", "b"], "info": [{"n": [1]}, {"n": [2]}], "completion_ids": [[1], [2]]}

    def vandal(completions, info, completion_ids, **rest):
        completions.clear()
        info[0]["n"].append(9)
        info[1].clear()
        completion_ids[0][0] = 7
        rest["trainer_state"].global_step = 99
        return [0.0, 0.0]

    class State:
        global_step = 1

    state = State()
    assert [g.reward for g in caller(vandal)(**batch, trainer_state=state)] == [0.0, 0.0]
    assert batch == {
        "completions": ["a", "b"],
        "info": [{"n": [1]}, {"n": [2]}],
        "completion_ids": [[1], [2]],
    }
    assert state.global_step == 1


def test_threads_left_behind_are_named_once():
    end = threading.Event()

    def leaks(completions):
        threading.Thread(target=end.wait, name="leaky").start()
        return [0.0] * len(completions)

    reward = caller(leaks)
    try:
        for _ in range(8):
            reward(**BATCH)
        assert len(reward.told) == 1
        assert "reward 'mine' (trlmath-somebody 4.2, somewhere.py:7) leaves threads behind" in reward.told[0]
        assert "leaky" in reward.told[0]
        assert len([thread for thread in left_threads() if thread.name == "leaky"]) == 8
    finally:
        end.set()


def test_a_pool_of_its_own_is_no_leak():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        reward = caller(lambda completions: list(pool.map(len, completions)))
        for _ in range(8):
            assert scores(reward) == [3, 3, 5, 4]
    assert reward.told == []


@pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, SystemExit])
def test_what_is_raised_past_exception_is_named_as_well(error):
    with pytest.raises(PluginError, match=f"reward 'mine' .* raised {error.__name__}.*number 2 of 4"):
        caller(Each(raising(error)))(**BATCH)
    reward = caller(Each(raising(error)), on_error="unscorable")
    assert scores(reward) == [3.0, 3.0, None, 4.0]


def test_an_interrupt_is_no_fault():
    with pytest.raises(KeyboardInterrupt):
        caller(Each(raising(KeyboardInterrupt)), on_error="unscorable")(**BATCH)


def test_an_error_or_a_value_that_cannot_be_shown_is_named():
    class Unspeakable(Exception):
        def __str__(self):
            raise RuntimeError

        __repr__ = __str__

    with pytest.raises(PluginError, match="raised Unspeakable: .showing it raised RuntimeError"):
        caller(Each(raising(Unspeakable)))(**BATCH)
    with pytest.raises(PluginError, match="returned .showing it raised RuntimeError. .Unspeakable. as"):
        caller(lambda completions: [Unspeakable()] * 4)(**BATCH)


def test_what_a_reward_changes_of_the_process_is_put_back_and_told_once(tmp_path):
    def reward(completions):
        os.chdir(tmp_path)
        torch.set_grad_enabled(False)
        return [0.0] * len(completions)

    before, made = os.getcwd(), caller(reward)
    for _ in range(2):
        made(**BATCH)
        assert os.getcwd() == before
        assert torch.is_grad_enabled()
    assert ["working directory" in line for line in made.told] == [True, False]
    assert "torch.set_grad_enabled" in made.told[1]


def test_grades_pass_as_they_are():
    given = [Grade(1.0, {"format": 1.0}, "both")] * 4
    assert caller(lambda completions: given)(**BATCH) == given
