"""Policy: the same few calls on every engine, and numbers equal to the model's own."""

from __future__ import annotations

import importlib.util

import pytest
import torch

import trlmath
from trlmath.sampling.settings import SamplingSettings
from trlmath.types import Grade, Rollout

PROMPTS = ["What is 1 + 1? <think>", "Why? <think>", "x"]


def exact(tiny, prompt, tokens):
    model, tokenizer = tiny
    ids = tokenizer(text=prompt)["input_ids"]
    with torch.no_grad():
        logps = model(torch.tensor([[*ids, *tokens]])).logits[0].float().log_softmax(-1)
    rows = logps[len(ids) - 1 : -1]
    return rows[range(len(tokens)), list(tokens)], -(rows.exp() * rows).sum(-1)


@pytest.mark.parametrize(
    "engine",
    [
        "transformers",
        pytest.param(
            "vllm",
            marks=[
                pytest.mark.slow,
                pytest.mark.vllm,
                pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM"),
            ],
        ),
    ],
)
def test_samples_and_scores_are_the_models_own(engine, tiny, tiny_dir):
    with trlmath.Policy(str(tiny_dir), engine=engine, context=96) as policy:
        assert policy.engine == engine
        settings = SamplingSettings(temperature=1.0, max_tokens=12, seed=0)
        groups = policy.sample(PROMPTS, settings, n=2)
        assert [g.prompt for g in groups] == PROMPTS
        assert all(len(g.rollouts) == 2 for g in groups)
        first = [g.rollouts[0] for g in groups]
        scores = policy.score(PROMPTS, first)
        by_ids = policy.score(PROMPTS, [r.token_ids for r in first])
    assert scores == by_ids
    for prompt, rollout, score in zip(PROMPTS, first, scores, strict=True):
        logps, entropies = exact(tiny, prompt, rollout.token_ids)
        torch.testing.assert_close(torch.tensor(score.logprobs), logps, atol=1e-4, rtol=0)
        torch.testing.assert_close(torch.tensor(rollout.logprobs), logps, atol=1e-4, rtol=0)
        if engine == "transformers":
            assert score.entropy_kind == "exact"
            torch.testing.assert_close(torch.tensor(score.entropies), entropies, atol=1e-4, rtol=0)
        else:
            assert score.entropy_kind == "estimate"
            assert score.entropies == tuple(-x for x in score.logprobs)


def test_text_and_nothing_can_be_scored(tiny, tiny_dir):
    with trlmath.Policy(str(tiny_dir), engine="transformers") as policy:
        assert policy.sample([]) == []
        assert policy.score([], []) == []
        with pytest.raises(trlmath.EngineError, match="2 prompts and 1 completions"):
            policy.score(["a", "b"], [" 2"])
        empty, text = policy.score(["a", "b"], ["", " 2"])
        assert empty.logprobs == empty.entropies == ()
        tokens = policy.tokenizer(text=" 2", add_special_tokens=False)["input_ids"]
    torch.testing.assert_close(torch.tensor(text.logprobs), exact(tiny, "b", tokens)[0], atol=1e-4, rtol=0)


def test_a_model_without_a_known_context_asks_for_one(tiny_dir, monkeypatch):
    from dataclasses import replace

    from trlmath.sampling import policy as room

    known = room.read_model_files(str(tiny_dir))
    monkeypatch.setattr(room, "read_model_files", lambda path: replace(known, context=None))
    with pytest.raises(trlmath.EngineError, match="give context, in tokens"):
        trlmath.Policy(str(tiny_dir), engine="transformers")


def test_a_rollout_reads_token_by_token():
    rollout = Rollout("abc", (5, 6, 7), grade=Grade(0.5))
    steps = list(rollout.steps((1, 2)))
    assert [s.state for s in steps] == [(1, 2), (1, 2, 5), (1, 2, 5, 6)]
    assert [s.action for s in steps] == [5, 6, 7]
    assert [s.reward for s in steps] == [0.0, 0.0, 0.5]
    assert [s.reward for s in Rollout("a", (5,)).steps()] == [0.0]
    assert [s.reward for s in Rollout("a", (5,), grade=Grade(None)).steps()] == [0.0]


def test_the_example_of_the_docs_runs_in_under_fifteen_lines(capsys):
    import re
    from pathlib import Path

    page = Path(__file__).resolve().parents[2] / "docs" / "engines.md"
    (block,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in block.splitlines() if line.strip()]) < 15
    exec(compile(block, "docs/engines.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 10
    assert all(line.endswith("nats") for line in printed)
