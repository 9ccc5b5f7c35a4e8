"""Plugins that misbehave in a real run: what ends it, what does not, what is told, and what is left."""

from __future__ import annotations

import json
import re
import sys
import textwrap
import time

import pyarrow.parquet
import pytest
from fakes import add_distribution
from launching import launch, metrics

from trlmath.errors import PluginError
from trlmath.plugins import VARIABLE, discover
from trlmath.recipe import load_recipe
from trlmath.training.grpo_run import GrpoRun

SMALL = [
    "trainer.max_steps=2",
    "rollout.prompts_per_step=2",
    "rollout.group_size=2",
    "sampling.max_tokens=8",
    "evaluation.enabled=false",
]


@pytest.fixture
def reward(tmp_path):
    """Write a reward file and return the overrides of a run with it."""

    def write(code, *more):
        (tmp_path / "mine.py").write_text(textwrap.dedent(code))
        return [*SMALL, f"rewards=['{tmp_path / 'mine.py'}:mine']", f"run.dir={tmp_path / 'run'}", *more]

    return write


def run(overrides):
    with GrpoRun(load_recipe("nano/grpo", overrides)) as grpo:
        grpo.train()
        grpo.finish()
    return grpo


@pytest.mark.slow
def test_a_reward_that_hangs_ends_the_run_which_goes_on_when_it_is_mended(reward, tmp_path):
    file = tmp_path / "hang"
    overrides = reward(
        f"""
        import os, time
        calls = []

        def mine(completions):
            calls.append(1)
            for text in completions:
                while len(calls) > 1 and os.path.exists({str(file)!r}):
                    time.sleep(3600)
            return [float(len(text)) for text in completions]
        """,
        "checks.reward_timeout=1",
        "run.checkpoint_every=1",
    )
    file.touch()
    started = time.monotonic()
    with pytest.raises(
        PluginError, match=r"no answer for 4 completions within 1 s.*It was at rollout 0 of 4"
    ):
        run(overrides)
    assert time.monotonic() - started < 60
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert "no answer for 4 completions" in manifest["error"]
    assert [row["step"] for row in metrics(tmp_path / "run")] == [1]
    file.unlink()
    assert run(overrides).continued.step == 1
    assert [row["step"] for row in metrics(tmp_path / "run")] == [1, 2]
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "finished"


def test_unscorable_rollouts_have_no_advantage_and_are_counted(reward, tmp_path, capfd):
    overrides = reward(
        """
        from itertools import count
        calls = count()

        class Mine:
            independent = True

            def __call__(self, completions):
                bad = next(calls) % 2
                return [float("nan") if i == bad else i % 3 for i, _ in enumerate(completions)]

        mine = Mine()
        """,
        "checks.on_reward_error=unscorable",
        "rollout.group_size=4",
    )
    run(overrides)
    rows = metrics(tmp_path / "run")
    assert [row["train/rewards/mine.mine/errors"] for row in rows] == [1 / 8, 1 / 8]
    assert [row["train/unscorable"] for row in rows] == [1 / 8, 1 / 8]
    table = pyarrow.parquet.read_table(tmp_path / "run" / "rollouts" / "step-000000.parquet").to_pylist()
    assert [row["reward"] for row in table] == [None, 1.0, 2.0, 0.0, 1.0, 2.0, 0.0, 1.0]
    assert table[0]["advantage"] == 0.0
    assert all(row["advantage"] for row in table[2:4])
    assert table[0]["category"] == "reward_error"
    assert "returned nan" in table[0]["reason"]
    assert capfd.readouterr().err.count("rollouts cannot be scored") == 1


def test_a_rollout_that_the_second_reward_fails_on_has_no_advantage(reward, tmp_path):
    overrides = reward(
        """
        def mine(completions):
            return [None if i == 1 else float("nan") if i == 2 else 1.0 for i, _ in enumerate(completions)]
        """,
        "checks.on_reward_error=unscorable",
        "rollout.group_size=4",
        "trainer.max_steps=1",
        "rewards.1=format",
    )
    run(overrides)
    table = pyarrow.parquet.read_table(tmp_path / "run" / "rollouts" / "step-000000.parquet").to_pylist()
    assert [row["category"] == "reward_error" for row in table] == [n == 2 for n in range(8)]
    assert table[2]["reward"] is None
    assert table[2]["advantage"] == 0.0
    assert all(row["advantage"] for row in table[:2]), "None stays out of the sum, and the rest counts"
    assert metrics(tmp_path / "run")[0]["train/unscorable"] == 1 / 8


def test_a_reward_that_raises_for_ever_ends_an_unscorable_run(reward):
    overrides = reward(
        "def mine(completions):\n    raise OSError('the judge is gone')\n",
        "checks.on_reward_error=unscorable",
        "trainer.max_steps=20",
    )
    with pytest.raises(PluginError, match=r"every rollout of 5 batches in a row.*the judge is gone"):
        run(overrides)


def test_a_group_filter_and_an_advantage_that_fail_are_named(reward, tmp_path):
    code = """
        class Filter:
            moment = "group"
            def __call__(self, item):
                item.problem.metadata["mine"] = 1
                raise KeyError("nope")

        def advantage(rewards):
            return rewards[:, :1]

        def mine(completions):
            return [0.0 for _ in completions]
    """
    file = tmp_path / "mine.py"
    with pytest.raises(PluginError, match=r"advantage .*mine.py:advantage.*returned \(2, 1\); expected"):
        run(reward(code, f"advantage={{name: '{file}:advantage', options: {{}}}}"))
    with pytest.raises(PluginError, match=r"filter .*mine.py:Filter.*raised KeyError"):
        run(reward(code, f"filters=['{file}:Filter']", f"run.dir={tmp_path / 'other'}"))


def test_an_observer_that_fails_ends_no_run_and_the_others_still_see_it(reward, tmp_path, monkeypatch, capfd):
    site = tmp_path / "site"
    observer = """
        from trlmath import hookimpl

        @hookimpl
        def rollouts_scored(batch, step):
            {body}
    """
    add_distribution(site, "trlmath-exits", observer.format(body="raise SystemExit(0)"))
    add_distribution(site, "trlmath-fails", observer.format(body="raise ValueError('disk full')"))
    seen = tmp_path / "seen"
    add_distribution(
        site, "trlmath-sees", observer.format(body=f"print(step, file=open({str(seen)!r}, 'a'))")
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delenv(VARIABLE, raising=False)
    discover.cache_clear()
    try:
        run(reward("def mine(completions):\n    return [float(len(c)) for c in completions]\n"))
    finally:
        discover.cache_clear()
        for name in ("trlmath_exits", "trlmath_fails", "trlmath_sees"):
            sys.modules.pop(name, None)
    told = [line for line in capfd.readouterr().err.splitlines() if "not called again" in line]
    assert len(told) == 2
    assert sum("trlmath-fails 1.0" in line and "ValueError: disk full" in line for line in told) == 1
    assert sum("trlmath-exits 1.0" in line and "SystemExit: 0" in line for line in told) == 1
    assert seen.read_text() == "0\n1\n"
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["status"] == "finished"


@pytest.mark.slow
def test_a_fault_on_one_of_two_processes_ends_both_with_the_same_words(reward, tmp_path):
    overrides = reward(
        """
        import os, time

        def mine(completions):
            if os.environ["RANK"] == "1":
                time.sleep(3600)
            return [float(len(text)) for text in completions]
        """,
        "checks.reward_timeout=2",
    )
    started = time.monotonic()
    done = launch(*overrides, processes=2, timeout=200)
    assert done.returncode != 0
    assert time.monotonic() - started < 120, "nobody waits for ddp_timeout"
    told = "no answer for 2 completions within 2 s"
    assert re.search(rf"^error: process 1: reward .*mine.py:mine.*{told}", done.stderr, re.M), done.stderr
    assert "another process of this run is gone" not in done.stderr
    assert "All reward functions returned None" not in done.stderr
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "failed"
    assert told in manifest["error"]


@pytest.mark.slow
def test_a_check_that_strikes_leaves_the_last_rollouts_and_threads_left_running_delay_no_exit(
    reward, tmp_path
):
    """A learning rate that destroys the model, and a reward that leaves a thread in every call."""
    overrides = reward(
        """
        import threading

        def mine(completions):
            threading.Thread(target=threading.Event().wait, name="leaky").start()
            return [float(len(text)) - len(completions[0]) for text in completions]
        """,
        "trainer.learning_rate=1e30",
        "trainer.optim=sgd",
        "trainer.max_grad_norm=1e30",
        "trainer.warmup_steps=0",
        "trainer.max_steps=20",
        "run.keep_rollouts=2",
        "checks.exploding_ratio=off",
        "run.checkpoint_every=1",
    )
    done = launch(*overrides, timeout=120)
    assert done.returncode == 1
    run = tmp_path / "run"
    (step,) = re.findall(r"^error: stopped at step (\d+) by the check nan: train/", done.stderr, re.M)
    assert "Lower trainer.learning_rate" in done.stderr
    last = run / "rollouts" / f"step-{int(step) - 1:06d}.parquet"
    assert f"The last rollouts are in {last}" in done.stderr
    assert pyarrow.parquet.read_table(last).num_rows == 4
    assert metrics(run)[-1]["step"] == int(step)
    # no checkpoint of the step that went wrong
    assert not (run / "checkpoints" / f"checkpoint-{step}").exists()
    assert "not waiting for threads that rewards have left running: leaky" in done.stderr
