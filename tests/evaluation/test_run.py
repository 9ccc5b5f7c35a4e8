"""Evaluating with a made-up engine: every problem once, on any number of processes, after any stop."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from trlmath.evaluation.run import EvaluationSet, chunks, evaluate
from trlmath.evaluation.store import read_samples, resume
from trlmath.sampling.settings import SamplingSettings
from trlmath.types import Grade, Group, Problem, Rollout

SETTINGS = SamplingSettings(temperature=1.0, seed=3)


class Engine:
    """Draws numbers from the batch's seed: what it writes depends on the batch, as with a real engine."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.calls, self.fail_after = 0, fail_after

    def generate(self, prompts, settings, n=1):
        self.calls += 1
        if self.fail_after is not None and self.calls > self.fail_after:
            raise KeyboardInterrupt
        draw = random.Random(settings.seed)
        return [
            Group("", tuple(p), tuple(self._rollout(draw.randrange(4)) for _ in range(n))) for p in prompts
        ]

    def _rollout(self, number):
        return Rollout(str(number), (number,) * (number + 1), (-0.5,) * (number + 1), "stop")


def reward(completions, answer, **columns):
    assert len(completions) == len(answer) == len(columns["level"])
    return [
        Grade(float(c == a), {"format": 1.0, "answer": float(c == a), "both": float(c == a)}, "both")
        for c, a in zip(completions, answer, strict=True)
    ]


def data(size=10, **changes):
    problems = [Problem(f"q{i}", str(i % 4), metadata={"level": i % 2}) for i in range(size)]
    given = EvaluationSet(
        problems, [f"P {p.question}" for p in problems], [[i] for i in range(size)], [reward]
    )
    return replace(given, **changes)


def without_speed(report):
    return {k: v for k, v in report.to_dict().items() if k != "tokens_per_second"}


def test_chunks_hold_every_problem_once():
    assert chunks(5, 2) == [[0, 1], [2, 3], [4]]
    assert chunks(0, 2) == []


def test_rows_are_saved_as_they_come_and_say_all(tmp_path):
    path = tmp_path / "s.jsonl"
    lengths = []
    evaluate(
        Engine(),
        data(),
        "s",
        SETTINGS,
        2,
        path,
        chunk=4,
        progress=lambda n, **_: lengths.append((n, len(read_samples(path)))),
    )
    assert lengths == [(4, 8), (4, 16), (2, 20)]
    row = read_samples(path)[3]
    assert (row.setting, row.problem, row.sample, row.question, row.gold) == ("s", 1, 1, "q1", "1")
    assert (row.prompt, row.metadata, row.category) == ("P q1", {"level": 1}, "both")
    assert row.logprob == -0.5 * row.tokens
    assert {r.seed for r in read_samples(path)} == {3, 3 + (4 << 16), 3 + (8 << 16)}


@pytest.mark.parametrize("stop", [0, 1, 2])
def test_a_stopped_evaluation_ends_with_the_same_numbers(tmp_path, stop):
    path, whole = tmp_path / "s.jsonl", [("s", c, 2) for c in chunks(10, 4)]
    expected = evaluate(Engine(), data(), "s", SETTINGS, 2, tmp_path / "one.jsonl", chunk=4)
    with pytest.raises(KeyboardInterrupt):
        evaluate(Engine(fail_after=stop), data(), "s", SETTINGS, 2, path, chunk=4)
    done = resume(path, whole)
    assert len(done) == 8 * stop
    engine = Engine()
    report = evaluate(engine, data(), "s", SETTINGS, 2, path, chunk=4, done=done)
    assert engine.calls == 3 - stop
    assert without_speed(report) == without_speed(expected)
    assert read_samples(path) == read_samples(tmp_path / "one.jsonl")


@pytest.mark.parametrize("processes", [2, 3, 5])
def test_processes_share_the_problems(tmp_path, processes):
    """Each process in turn, with what the others would have gathered."""
    expected = evaluate(Engine(), data(), "s", SETTINGS, 1, chunk=4, by=["level"])
    parts: list[list[list]] = []
    for process in range(processes):
        mine: list[list] = []
        evaluate(
            Engine(),
            data(),
            "s",
            SETTINGS,
            1,
            share=(process, processes),
            chunk=4,
            gather=lambda v, m=mine: m.append(v) or v,
        )
        parts.append(mine[:-1])  # the last gathers the times
    assert len({len(rounds) for rounds in parts}) == 1, "every process gathers equally often"
    gathered = [sum(turn, []) for turn in zip(*parts, strict=True)]
    replay = iter([*gathered, [0.0]])
    report = evaluate(
        Engine(),
        data(),
        "s",
        SETTINGS,
        1,
        tmp_path / "s.jsonl",
        (0, processes),
        lambda v: next(replay),
        chunk=4,
        by=["level"],
    )
    assert without_speed(report) == without_speed(expected)
    assert sorted(r.cell for r in read_samples(tmp_path / "s.jsonl")) == [("s", i, 0) for i in range(10)]


def test_a_prompt_without_room_is_counted_and_not_generated():
    report = evaluate(Engine(), data(too_long=frozenset({2, 7})), "s", SETTINGS, 2, chunk=4)
    assert report.categories == {"both": 16, "prompt_too_long": 4}
    assert report.completions == 20


def test_several_rewards_add_up_by_weight():
    def half(completions, **_):
        return [0.5 for _ in completions]

    def as_grades(**given):
        return [Grade(x) for x in half(**given)]

    report = evaluate(Engine(), data(rewards=[reward, as_grades], weights=[1.0, 2.0]), "s", SETTINGS)
    assert report.mean_reward.value == pytest.approx(report.rates["both"].value + 1.0)


def test_a_plugin_names_the_category(monkeypatch):
    from trlmath.evaluation import categories

    monkeypatch.setattr(
        categories, "decide", lambda hook, rollout, grade: "zero" if rollout.text == "0" else None
    )
    report = evaluate(Engine(), data(), "s", SETTINGS)
    assert report.categories["zero"] > 0
    assert sum(report.categories.values()) == 10
