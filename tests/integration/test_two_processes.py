"""Two processes (DDP, gloo) do the work of one: the same prompts, whole groups, no rollout twice."""

from __future__ import annotations

import importlib.util
import json
from statistics import mean, stdev

import pyarrow.parquet
import pytest
from launching import launch, metrics
from tiny import ODD, save_tiny_model

pytestmark = pytest.mark.slow

REWARD = '''
"""Counts vowels, and writes down which process graded what, and which learns from what."""
import json, os, pathlib
from trlmath.training.grpo import MathGRPOTrainer

def note(name, rows):
    with (pathlib.Path(__file__).parent / f"{name}-{os.environ.get('RANK', '0')}.jsonl").open("a") as file:
        file.write("".join(json.dumps(row) + "\\n" for row in rows))

def vowels(completions, answer):
    rewards = [float(sum(text.count(c) for c in "aeiou")) for text in completions]
    note("graded", zip(answer, completions, rewards))
    return rewards

drawn = MathGRPOTrainer._generate_and_score_completions

def watched(self, inputs):
    batch = drawn(self, inputs)
    ids = [i[m.bool()] for i, m in zip(batch["completion_ids"], batch["completion_mask"])]
    texts = [self.processing_class.decode(i, skip_special_tokens=True) for i in ids]
    note("learnt", zip(texts, batch["advantages"].tolist()))
    return batch

MathGRPOTrainer._generate_and_score_completions = watched
'''
GROUP, PROMPTS = 4, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("tiny"), **ODD)


@pytest.fixture(scope="module")
def run(tmp_path_factory, folder):
    """Runs the recipe so, once; (run directory, rows each process graded, rows it learnt from)."""
    done = {}

    def start(processes, *more):
        if (processes, more) not in done:
            place = tmp_path_factory.mktemp("run")
            (place / "mine.py").write_text(REWARD)
            # every question is the same: two processes that draw alike would be seen to
            rows = [{"question": "Say something.", "answer": str(i)} for i in range(16)]
            (place / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            ended = launch(
                f"model.path={folder}",
                f"data.train={place}/data.jsonl",
                f"data.eval={place}/data.jsonl",
                "data.prompt=question_only",
                f"rewards=[{place}/mine.py:vowels]",
                f"rollout.prompts_per_step={PROMPTS}",
                f"rollout.group_size={GROUP}",
                "sampling.max_tokens=24",
                "sampling.min_tokens=16",
                "sampling.stop=[]",
                "evaluation.limit=8",
                "evaluation.settings=[{name: greedy, temperature: 0.0, n: 1}]",
                "trainer.max_steps=2",
                "trainer.learning_rate=1e-3",
                "run.report=false",
                f"run.dir={place}/run",
                *more,
                processes=processes,
                timeout=450,
            )
            assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-3000:]
            noted = [
                [
                    [json.loads(line) for line in (place / f"{name}-{rank}.jsonl").read_text().splitlines()]
                    for rank in range(processes)
                ]
                for name in ("graded", "learnt")
            ]
            done[processes, more] = place / "run", *noted
        return done[processes, more]

    return start


def whole(text):
    """Without the half of a character that engines tell differently."""
    return text.rstrip("\ufffd")


def rollouts(directory, step):
    return pyarrow.parquet.read_table(directory / "rollouts" / f"step-{step:06d}.parquet").to_pylist()


def evaluated(directory):
    """Problem -> what the untrained model answers to it; each once."""
    lines = (directory / "evaluation" / "samples.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["setting"] == "before/greedy"]
    found = {row["problem"]: whole(row["completion"]) for row in rows}
    assert len(found) == len(rows)
    return found


SERVER = pytest.param(
    ("sampling.mode=server",),
    marks=[
        pytest.mark.vllm,
        pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM here"),
    ],
    id="server",
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", [pytest.param((), id="transformers"), SERVER])
def test_two_processes_do_the_work_of_one(run, engine):
    alone, *_ = run(1)
    directory, seen, learnt = run(2, *engine)
    graded = {json.dumps(row): rank for rank, rows in enumerate(seen) for row in rows}
    advantages = [{whole(text): told for text, told in rows} for rows in learnt]
    drawn = []
    for step in range(2):
        rows = rollouts(directory, step)
        assert [r["gold"] for r in rows] == [r["gold"] for r in rollouts(alone, step)], "the same prompts"
        for at in range(0, len(rows), GROUP):
            group = rows[at : at + GROUP]
            assert len({r["gold"] for r in group}) == 1
            # whole on the process that graded it: the first half of the prompts on the first one
            (rank,) = {graded[json.dumps([r["gold"], r["completion"], r["reward"]])] for r in group}
            assert rank == at // GROUP // (PROMPTS // 2)
            rewards = [r["reward"] for r in group]
            spread = stdev(rewards) + 1e-6
            expected = [(reward - mean(rewards)) / spread for reward in rewards]
            assert [r["advantage"] for r in group] == pytest.approx(expected, abs=1e-3)
            # and the process that graded it learns from it
            found = [advantages[rank][whole(r["completion"])] for r in group]
            assert found == pytest.approx(expected, abs=1e-3)
        drawn += [r["completion"] for r in rows]
    assert len(drawn) == len(set(drawn)) == 2 * PROMPTS * GROUP, "none twice, though every prompt is the same"
    before = evaluated(directory)
    assert len(before) == 8
    assert before == evaluated(alone)
    if engine:
        training = [row for row in metrics(directory) if "train/loss" in row]
        assert all(row["engine/freshness"] < 1e-5 for row in training)
