"""Saved completions of every kind, graded again; the disagreements of two graders."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from trlmath.cli import cli
from trlmath.errors import DataError
from trlmath.evaluation.regrade import regrade
from trlmath.evaluation.sample import Sample, problem_key
from trlmath.evaluation.saved import read_saved
from trlmath.evaluation.store import append_samples, read_samples
from trlmath.recipe.schema import RewardEntry
from trlmath.rewards import build_rewards
from trlmath.runs.rollouts import write_rollouts
from trlmath.types import Grade, Group, Problem, Rollout

GOOD = "2 + 2 = 4 </think> <answer>4</answer>"
LOOSE = "it is 4 </think> so <answer>4</answer>"
WRONG = "no </think> <answer>5</answer>"


def saved(problem, completion, reward=0.0, category="neither"):
    """A row as another grader left it."""
    question = f"{problem}?"
    return Sample(
        "s", problem, 0, problem_key(question, "4"), question, "4", "P", completion, 9, "stop",
        reward, {"both": reward}, category, "said so",
    )  # fmt: skip


def reward(name="r1_zero", **options):
    return build_rewards([RewardEntry(name=name, options=options)])[0]


def test_rows_are_graded_again_and_disagreements_found():
    rows = [saved(0, GOOD, 1.0, "both"), saved(1, WRONG, 1.0, "both"), saved(2, WRONG, 0.0, "format_only")]
    found = regrade(rows, reward())
    assert [new.reward for new in found.new] == [1.0, 0.0, 0.0]
    assert found.table() == {
        ("both", "both"): 1,
        ("both", "format_only"): 1,
        ("format_only", "format_only"): 1,
    }
    ((old, new),) = found.disagreements
    assert (old.problem, old.reason) == (1, "said so")
    assert new.reason
    assert new.extracted == "5"
    assert new.parts["format"] == 1.0


def test_what_was_never_generated_stays_so():
    late = replace(saved(1, "", 0.0, "prompt_too_long"), finish_reason="length")
    found = regrade([saved(0, GOOD, 1.0, "both"), late, saved(2, WRONG)], reward("boxed"))
    assert [new.category for new in found.new] == ["answer_only", "prompt_too_long", "no_box"]
    assert found.new[1] == late
    assert regrade([late], reward()).new == [late]


def test_columns_named_as_what_a_reward_is_given():
    row = replace(saved(0, GOOD), metadata={"prompts": "a column", "completions": "another"})
    assert regrade([row], reward()).new[0].reward == 1.0


def test_a_setting_that_is_not_there_is_named(tmp_path):
    append_samples(tmp_path / "samples.jsonl", [replace(saved(0, GOOD), setting="before/greedy")])
    arguments = [str(tmp_path / "samples.jsonl"), "--reward", "r1_zero", "--setting", "before/gredy"]
    done = CliRunner().invoke(cli, ["regrade", *arguments])
    assert done.exit_code == 1
    assert "Did you mean 'before/greedy'" in done.output


def test_rewards_see_the_datasets_columns(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def level(completions, level):\n    return [float(x) for x in level]\n"
    )
    from dataclasses import replace

    row = replace(saved(0, GOOD), metadata={"level": 3})
    assert regrade([row], reward(f"{tmp_path / 'mine.py'}:level")).new[0].reward == 3.0


def test_our_rollouts(tmp_path):
    problem = Problem("2+2?", "4")
    rollouts = tuple(
        Rollout(text, (1, 2), None, "stop", Grade(1.0, {"both": 1.0}, "both")) for text in (GOOD, WRONG)
    )
    write_rollouts(tmp_path, [Group("P", (0,), rollouts, problem)], [[0.1, -0.1]], 0, 0)
    found = regrade(read_saved(tmp_path / "rollouts"), reward())
    assert [(old.setting, new.reward) for old, new in found.pairs] == [("step-0", 1.0), ("step-0", 0.0)]
    assert len(found.disagreements) == 1
    assert [row.cell for row in found.new] == [("step-0", 0, 0), ("step-0", 0, 1)]


def trl_parquet(folder, **columns):
    """A file as TRL's log_completions writes it."""
    given = {
        "step": [1, 1],
        "prompt": ["P 2+2?", "P 1+1?"],
        "completion": [GOOD, WRONG],
        "accuracy_reward": [0.0, 0.0],
        "advantage": [0.1, -0.1],
        **columns,
    }
    folder.mkdir(exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(given), folder / "completions_00001.parquet")
    return folder


PROBLEMS = {"P 2+2?": Problem("2+2?", "4"), "P 1+1?": Problem("1+1?", "2")}


def test_trls_completions(tmp_path):
    rows = read_saved(trl_parquet(tmp_path / "completions"), PROBLEMS)
    assert [(r.question, r.gold, r.reward) for r in rows] == [("2+2?", "4", 0.0), ("1+1?", "2", 0.0)]
    found = regrade(rows, reward())
    assert [new.reward for new in found.new] == [1.0, 0.0]
    assert [old.question for old, _ in found.disagreements] == ["2+2?"]


def test_trls_conversations_with_a_gold_column(tmp_path):
    prompts = [[{"role": "system", "content": "S"}, {"role": "user", "content": q}] for q in ("2+2?", "1+1?")]
    answers = [[{"role": "assistant", "content": text}] for text in (GOOD, WRONG)]
    folder = trl_parquet(tmp_path / "c", prompt=prompts, completion=answers, answer=["4", "2"])
    rows = read_saved(folder)
    assert [(r.question, r.completion, r.gold) for r in rows] == [("2+2?", GOOD, "4"), ("1+1?", WRONG, "2")]


def test_what_trls_files_lack_is_said(tmp_path):
    with pytest.raises(DataError, match="no gold is known for 2 of 2 .*--dataset"):
        read_saved(trl_parquet(tmp_path / "a"))
    folder = trl_parquet(tmp_path / "b", other=[1.0, 0.0])
    with pytest.raises(DataError, match="several reward columns: accuracy_reward, other"):
        read_saved(folder, PROBLEMS)
    assert read_saved(folder, PROBLEMS, "other")[0].reward == 1.0
    with pytest.raises(DataError, match="Did you mean 'other'"):
        read_saved(folder, PROBLEMS, "othr")


def test_the_command(tmp_path):
    append_samples(tmp_path / "samples.jsonl", [saved(0, GOOD), saved(1, LOOSE), saved(2, WRONG)])
    out = tmp_path / "new.jsonl"
    done = CliRunner().invoke(cli, ["regrade", str(tmp_path), "--reward", "r1_zero", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "1 graded differently" in " ".join(done.output.split())
    assert "said so" in done.output
    assert [row.reward for row in read_samples(out)] == [1.0, 0.0, 0.0]
    again = CliRunner().invoke(cli, ["regrade", str(tmp_path), "--reward", "r1_zero", "--out", str(out)])
    assert again.exit_code == 1


def test_the_command_on_trls_files(tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text(
        "".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in (("2+2?", "4"), ("1+1?", "2")))
    )
    prompt = tmp_path / "p.prompt"
    prompt.write_text("P {question}")
    folder = trl_parquet(tmp_path / "completions")
    done = CliRunner().invoke(
        cli, ["regrade", str(folder), "--reward", "r1_zero", "--dataset", str(data), "--prompt", str(prompt)]
    )
    assert done.exit_code == 0, done.output
    assert "2 completions graded again, 1" in " ".join(done.output.split())
    # TRL saves neither lengths nor finish reasons: no number is made up for them
    assert "tokens, all" not in done.output
    assert "truncated" not in done.output
