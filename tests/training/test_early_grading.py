"""Finished groups are graded while others are generated, to the same grades; where a reward allows it."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from trlmath.errors import PluginError
from trlmath.training.early_grading import EarlyGrading
from trlmath.training.reward_calls import RewardCall
from trlmath.types import Grade, Group, Rollout


class Call:
    def __init__(self, reward):
        self.reward, self.early = reward, None


class Independent:
    name, independent = "independent", True

    def __init__(self):
        self.threads, self.batches = set(), []

    def __call__(self, *, completions, answer, prompts, finish_reasons, **_):
        self.threads.add(threading.current_thread().name)
        self.batches.append((prompts[0], answer, finish_reasons))
        return [Grade(len(text) + float(a)) for text, a in zip(completions, answer, strict=True)]


class Together:
    name = "together"

    def __call__(self, **_):
        raise AssertionError("it sees all or nothing")


def group(*texts):
    return Group("", (1,), tuple(Rollout(t, (1,) * len(t)) for t in texts))


def test_groups_are_graded_as_they_come_in_the_prompts_order():
    good, other = Call(Independent()), Call(Together())
    rows = [{"answer": "10"}, {"answer": "20"}]
    with EarlyGrading([good, other], rows, ["p", "q"], None) as early:
        early.take(1, group("abc", "a"))
        deadline = time.monotonic() + 5
        while not good.reward.batches and time.monotonic() < deadline:
            time.sleep(0.01)
        assert good.reward.batches == [("q", ["20", "20"], ["stop", "stop"])], "before the other has come"
        early.take(0, group("ab", "abcd"))
    assert [g.reward for g in good.early] == [12.0, 14.0, 23.0, 21.0]
    assert other.early is None
    assert all(name.startswith("grading") for name in good.reward.threads)


def test_a_reward_that_raises_is_heard_and_a_failed_engine_leaves_nothing():
    class Broken(Independent):
        def __call__(self, **_):
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"), EarlyGrading([Call(Broken())], [{}], ["p"], None) as early:
        early.take(0, group("a"))
    call = Call(Independent())
    with pytest.raises(OSError, match="gone"):
        take_and_fail(call)
    assert call.early is None


def test_a_fault_of_a_plugin_is_kept_for_the_call_and_the_rest_is_not_graded():
    class Broken(Independent):
        def __call__(self, **given):
            super().__call__(**given)
            raise PluginError("reward 'broken' gave no answer")

    calls = [RewardCall(Independent()), RewardCall(Broken())]
    with EarlyGrading(calls, [{"answer": "1"}] * 3, ["p"] * 3, None) as early:
        for number in range(3):
            early.take(number, group("a"))
    assert len(calls[1].reward.batches) == 1, "a reward that hangs would do so three times"
    for call in calls:
        with pytest.raises(PluginError, match="gave no answer"):
            call(completions=["a"])
    assert calls[1].early is None


def test_a_fault_is_held_where_other_processes_wait():
    class Broken:
        def __call__(self, **_):
            raise PluginError("no")

    call = RewardCall(Broken(), holds=True)
    assert call(completions=["a", "b"]) == [None, None]
    assert str(call.error) == "no"


def take_and_fail(call):
    with EarlyGrading([call], [{"answer": "1"}], ["p"], None) as early:
        early.take(0, group("a"))
        raise OSError("gone")


def test_a_trainer_with_a_streaming_engine_gets_the_same_rewards(make_trainer):
    """The transformers engine, made to hand out groups last first, as a server may."""

    class Letters:
        name = "letters"

        def __init__(self, independent):
            self.independent, self.sizes = independent, []

        def __call__(self, *, completions, **_):
            self.sizes.append(len(completions))
            return [Grade(text.count("e") / 10) for text in completions]

    def rewards_of(independent):
        reward = Letters(independent)
        trainer = make_trainer({"rewards": [reward]}, max_steps=2)
        plain = trainer.sampler.generate

        def streamed(prompts, settings, n=1, on_group=None):
            groups = plain(prompts, settings, n=n)
            for number in reversed(range(len(groups))):
                on_group(number, groups[number])
            return groups

        trainer.sampler.generate, trainer.sampler.streams = streamed, True
        torch.manual_seed(0)
        trainer.train()
        return reward.sizes, [row["reward"] for row in trainer.state.log_history if "reward" in row]

    sizes, early = rewards_of(True)
    whole, late = rewards_of(False)
    assert early == late
    assert (set(sizes), set(whole)) == ({4}, {8})


def test_what_is_waited_for_after_the_last_completion_is_grading(make_trainer):
    class Slow:
        name, independent = "slow", True

        def __init__(self):
            self.takes = iter([1.0, 0.2])

        def __call__(self, *, completions, **_):
            time.sleep(next(self.takes))
            return [Grade(text.count("e") / 10) for text in completions]

    trainer = make_trainer({"rewards": [Slow()]}, max_steps=1)
    plain = trainer.sampler.generate

    def streamed(prompts, settings, n=1, on_group=None):
        groups = plain(prompts, settings, n=n)
        on_group(0, groups[0])
        time.sleep(1.1)  # the second group comes later: the first one's grading is hidden
        on_group(1, groups[1])
        return groups

    trainer.sampler.generate, trainer.sampler.streams = streamed, True
    trainer.train()
    told = trainer.state.log_history[0]
    assert 0.2 <= told["time/grade"] < 1.0
    assert told["time/generate"] >= 1.1
    phases = [value for name, value in told.items() if name.startswith("time/")]
    assert told["step_time"] == pytest.approx(sum(phases), abs=0.01)
    assert told["time/optimizer"] > 0
