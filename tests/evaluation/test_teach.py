"""Traces from a teacher: what is asked, graded and written, and going on after a kill."""

from __future__ import annotations

import json

import pytest

from trlmath import Group, Problem, Rollout
from trlmath.data.load import load_problems
from trlmath.data.prompts import load_prompt
from trlmath.errors import DataError, RecipeError
from trlmath.evaluation.teach import TraceMaker
from trlmath.recipe.schema import RewardEntry
from trlmath.rewards import build_rewards
from trlmath.sampling.settings import SamplingSettings

PROMPT = load_prompt("r1_zero")
PROBLEMS = [Problem(f"What is {i}?", str(i), metadata={"level": i}) for i in range(5)]


class Scripted:
    """Answers right, wrong and without an end, in turn; may die at a given call."""

    def __init__(self, dies_at=None, name="scripted"):
        self.identity, self.calls, self.dies_at = {"model": name}, [], dies_at

    def generate(self, prompts, settings, n):
        if len(self.calls) == self.dies_at:
            raise KeyboardInterrupt
        self.calls.append((tuple(prompts), settings.seed))
        return [Group(prompt, (), tuple(self.rollout(prompt, k) for k in range(n))) for prompt in prompts]

    def rollout(self, prompt, k):
        number = prompt.split("User: What is ")[1].split("?")[0]
        if k == 2:
            return Rollout(" and on and on", (1, 2), finish_reason="length")
        stated = number if k == 0 else "99"
        return Rollout(f"<think> {stated} </think> <answer> {stated} </answer>", (1, 2, 3))


def maker(folder, teacher, keep="finished", **changes):
    given = {"problems": PROBLEMS, "settings": SamplingSettings(seed=7), "n": 3, "chunk": 2} | changes
    rewards = build_rewards([RewardEntry(name="r1_zero")])
    return TraceMaker(
        given["problems"],
        PROMPT,
        teacher,
        rewards,
        given["settings"],
        given["n"],
        folder,
        keep,
        given["chunk"],
    )


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_what_is_written_is_what_sft_reads(tmp_path):
    with maker(tmp_path / "t", Scripted()) as job:
        made = job.run()
    assert (len(made.samples), made.written) == (15, 10)
    problems = load_problems(str(made.path))
    assert [(p.question, p.answer) for p in problems[:2]] == [("What is 0?", "0")] * 2
    # graded and trained without the tag that the prompt ends with
    assert problems[0].trace == " 0 </think> <answer> 0 </answer>"
    row = rows(made.path)[3]
    assert row["level"] == 1
    assert row["grade"]["parts"] == {"format": 1.0, "answer": 0.0, "both": 0.0}
    lineage = row["lineage"]
    assert lineage["teacher"] == {"model": "scripted"}
    assert (lineage["problem"], lineage["sample"], lineage["finish_reason"]) == (1, 1, "stop")
    assert (lineage["prompt_sha256"], lineage["seed"], lineage["tokens"]) == (PROMPT.sha256, 7, 3)
    assert made.lines()[0].startswith("15 completions of 5 problems, 10 finished (66.7 %), format 66.7 %")


def test_only_the_right_ones_on_request(tmp_path):
    with maker(tmp_path, Scripted(), keep="right") as job:
        made = job.run()
    assert [row["lineage"]["sample"] for row in rows(made.path)] == [0] * 5


def test_a_killed_job_goes_on_and_ends_the_same(tmp_path):
    with maker(tmp_path / "whole", Scripted()) as job:
        whole = job.run()
    with pytest.raises(KeyboardInterrupt), maker(tmp_path / "killed", Scripted(dies_at=2)) as job:
        job.run()
    assert json.loads((tmp_path / "killed" / "manifest.json").read_text())["status"] == "interrupted"
    assert len(rows(tmp_path / "killed" / "samples.jsonl")) == 12
    with (tmp_path / "killed" / "samples.jsonl").open("a") as file:
        file.write('{"setting": "teacher", "prob')  # a write cut short
    teacher, seen = Scripted(), []
    with maker(tmp_path / "killed", teacher) as job:
        again = job.run(lambda count, **numbers: seen.append(count))
    assert len(teacher.calls) == 1
    assert seen == [4, 1]
    assert again.path.read_bytes() == whole.path.read_bytes()
    with maker(tmp_path / "killed", Scripted(dies_at=0)) as job:
        assert job.run().written == 10


def test_another_job_in_the_same_place_is_refused(tmp_path):
    with maker(tmp_path, Scripted()) as job:
        with pytest.raises(RecipeError, match="another process writes to"):
            maker(tmp_path, Scripted())
        job.run()
    with pytest.raises(RecipeError, match="n was 3, is 4"):
        maker(tmp_path, Scripted(), n=4)
    with pytest.raises(RecipeError, match="teacher was .*scripted.* is .*other"):
        maker(tmp_path, Scripted(name="other"))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    with pytest.raises(RecipeError, match="holds another run"):
        maker(tmp_path / "run", Scripted())


def test_rows_with_their_own_prompt_are_refused(tmp_path):
    with pytest.raises(DataError, match="would answer another prompt"):
        maker(tmp_path, Scripted(), problems=[Problem("q", prompt="Q: q")])
