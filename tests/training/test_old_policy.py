"""The old policy is asked only about rows whose log-probabilities the update reads."""

from __future__ import annotations

import copy

import pytest
import torch
import updating

from trlmath.sampling.transformers_engine import TransformersSampler
from trlmath.types import Grade


class EverySecondGroup:
    """A reward with spread in every second group of four."""

    name = "second"

    def __call__(self, *, completions, **columns):
        return [Grade(float(i % 2) if i // 4 % 2 else 0.5) for i in range(len(completions))]


class Engine(TransformersSampler):
    """An engine with weights of its own, somewhat off, as vLLM's arithmetic is."""

    shares_weights = False

    def load_weights(self, named_tensors):
        """The trainer's weights do not arrive: they stay a little off."""


@pytest.fixture(params=["own module", "an engine"])
def build(make_trainer, request):
    def make_sampler(trainer):
        own = TransformersSampler(trainer.model, trainer._tokenizer, trainer.eos_token_ids)
        if request.param == "own module":
            return own, own
        model = copy.deepcopy(trainer.model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1.001)
        return Engine(model, trainer._tokenizer, trainer.eos_token_ids), own

    def made(**config):
        algorithm = {"rewards": [EverySecondGroup()], "microbatch_tokens": 150, **config.pop("algorithm", {})}
        return make_trainer(algorithm, make_sampler=make_sampler, num_iterations=2, freshness="off", **config)

    return made


def prepared(trainer, rows, monkeypatch, everything):
    """A generation batch, and how many completion tokens were scored without a gradient for it."""
    scored, forward = [], type(trainer)._forward

    def watched(self, model, ids, mask, logits_to_keep, entropy):
        scored.append(int(mask[:, -logits_to_keep:].sum()))
        return forward(self, model, ids, mask, logits_to_keep=logits_to_keep, entropy=entropy)

    with monkeypatch.context() as patch:
        patch.setattr(type(trainer), "_forward", watched)
        if everything:
            patch.setattr(type(trainer), "to_score", lambda self, advantages, trained: None)
        trainer.model.train()
        torch.manual_seed(5)
        return trainer._generate_and_score_completions(rows(trainer)), sum(scored)


def test_rows_without_advantage_are_not_scored_and_the_update_is_the_same(build, rows, monkeypatch):
    trainer = build()
    whole, all_tokens = prepared(trainer, rows, monkeypatch, everything=True)
    told = {name: list(values) for name, values in trainer._metrics["train"].items()}
    part, tokens = prepared(trainer, rows, monkeypatch, everything=False)
    idle = whole["advantages"] == 0
    assert idle.tolist() == [True] * 4 + [False] * 4
    assert all_tokens == int(whole["completion_mask"].sum())
    assert tokens == int(whole["completion_mask"][~idle].sum())
    for name in ("old_per_token_logps", "importance_sampling_ratio"):
        if name in whole:
            assert torch.equal(part[name][~idle], whole[name][~idle])
            assert bool(part[name].isfinite().all())
    assert torch.equal(part["completion_ids"], whole["completion_ids"])
    expected = updating.our_gradient(trainer, whole)
    assert updating.difference(updating.our_gradient(trainer, part), expected) < 1e-6

    if "importance_sampling_ratio" not in whole:
        return
    # what is told of the correction is of scored rows
    mask = whole["completion_mask"].bool() & ~idle[:, None]
    ratio = whole["importance_sampling_ratio"].expand_as(mask)[mask]
    found = {name: values[-1] for name, values in trainer._metrics["train"].items() if "sampling/" in name}
    assert found["sampling/importance_sampling_ratio/min"] == pytest.approx(float(ratio.min()))
    off = (whole["old_per_token_logps"] - whole["sampling_per_token_logps"]).abs()[mask]
    assert found["sampling/sampling_logp_difference/mean"] == pytest.approx(float(off.mean()))
    assert found["sampling/sampling_logp_difference/max"] == pytest.approx(float(off.max()))
    assert found.keys() == {name for name in told if "sampling/" in name}


def test_a_term_that_reads_every_row_has_them_scored(build, rows, monkeypatch):
    trainer = build(beta=0.1)
    output, tokens = prepared(trainer, rows, monkeypatch, everything=False)
    counted = int(output["completion_mask"].sum())
    assert tokens == 2 * counted  # the old policy and the reference


def test_a_step_without_any_advantage_scores_nothing_and_trains_on(build, rows, monkeypatch):
    trainer = build(algorithm={"advantage": lambda rewards, **rest: torch.zeros_like(rewards)})
    output, tokens = prepared(trainer, rows, monkeypatch, everything=False)
    assert tokens == 0
    assert bool(output["old_per_token_logps"].isfinite().all())
    assert max(float(g.abs().max()) for g in updating.our_gradient(trainer, output).values()) == 0.0
