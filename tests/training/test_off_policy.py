"""Rollouts of an older policy: its log-probabilities computed once, cut like the rest, or the engine's."""

from __future__ import annotations

import tempfile

import pytest
import torch
import updating

from trlmath.errors import EngineError
from trlmath.recipe import parse_recipe
from trlmath.training.grpo_config import grpo_config

BUDGET = 120


class Forwards:
    """Counts what goes through a model's fused head: rows, and the widest forward in tokens."""

    def __init__(self, model):
        self.scored, self.widest, self.graded = 0, 0, 0
        model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, module, args, kwargs):
        if not kwargs.get("fused_lm_head"):
            return
        self.widest = max(self.widest, kwargs["input_ids"].numel())
        if torch.is_grad_enabled():
            self.graded += 1
        else:
            self.scored += 1


@pytest.mark.parametrize("shared", [True, False])
def test_log_probabilities_are_trls_and_no_forward_is_wider_than_the_budget(make_trainer, shared):
    trainer = make_trainer({"microbatch_tokens": BUDGET})
    trainer.model.get_input_embeddings().weight.data.mul_(0.2)
    plain = updating.plain_trl(
        trainer.model, output_dir=tempfile.gettempdir(), use_cpu=True, bf16=False, report_to=[]
    )
    if not shared:
        trainer.padded_because = "the test wants it"
    batch = updating.make_batch()
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    keep = batch["completion_ids"].size(1)
    with torch.no_grad():
        expected = plain._get_per_token_logps_and_entropies(plain.model, ids, mask, keep, 20, True)
        forwards = Forwards(trainer.model)
        found = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, keep, 20, True)
    counted = batch["completion_mask"].bool()
    for ours, theirs in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(ours[counted], theirs[counted], atol=1e-6, rtol=1e-6)
    assert forwards.scored > 2
    assert forwards.widest <= BUDGET


@pytest.mark.parametrize(("updates", "epochs"), [(1, 1), (2, 1), (1, 3), (2, 2)])
@pytest.mark.parametrize("budget", [None, BUDGET])
def test_old_log_probabilities_are_computed_once_a_rollout(make_trainer, updates, epochs, budget):
    trainer = make_trainer(
        {"microbatch_tokens": budget},
        per_device_train_batch_size=8 // updates,
        steps_per_generation=updates,
        num_iterations=epochs,
        max_steps=2 * updates * epochs,
    )
    forwards, rollouts = Forwards(trainer.model), []
    trainer.algorithm.on_rollouts = lambda groups, advantages, step: rollouts.append(step)
    trainer.train()
    assert rollouts == [0, updates * epochs]
    if updates * epochs == 1:
        assert forwards.scored == 0  # the policy that drew them is the one that is updated
    elif budget is None:
        assert forwards.scored == len(rollouts)
    else:
        assert forwards.scored > len(rollouts)
        assert forwards.widest <= budget
    assert "time/old_logprobs" in trainer.state.log_history[0] or updates * epochs == 1


def test_updates_on_one_rollout_keep_its_old_log_probabilities(make_trainer):
    trainer = make_trainer(num_iterations=3, max_steps=3, learning_rate=1e-2, lr_scheduler_type="constant")
    seen = []
    original = trainer.compute_loss

    def spy(model, inputs, **rest):
        seen.append(inputs["old_per_token_logps"].clone())
        return original(model, inputs, **rest)

    trainer.compute_loss = spy
    trainer.train()
    assert len(seen) == 3
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])


def test_the_engines_log_probabilities_save_the_forward(make_trainer, rows):
    trainer = make_trainer({"old_logprobs": "engine"}, num_iterations=2, max_steps=2)
    forwards = Forwards(trainer.model)
    trainer.model.train()
    output = trainer._generate_and_score_completions(rows(trainer))
    assert forwards.scored == 0
    drawn = [r.logprobs for r in trainer._rollouts]
    for row, logps in zip(output["old_per_token_logps"], drawn, strict=True):
        assert row[: len(logps)].tolist() == pytest.approx(list(logps))
    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
    mask = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
    with torch.no_grad():
        again, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, output["completion_ids"].size(1), len(ids)
        )
    torch.testing.assert_close(output["old_per_token_logps"], again, atol=1e-4, rtol=0)
    trainer.train()


def test_log_probabilities_that_are_no_numbers_stop_the_run(make_trainer, rows):
    from dataclasses import replace

    trainer = make_trainer({"old_logprobs": "engine"}, num_iterations=2)
    generate = trainer.sampler.generate

    def broken(*args, **kwargs):
        groups = generate(*args, **kwargs)
        first = groups[0].rollouts[0]
        bad = replace(first, logprobs=(float("nan"), *first.logprobs[1:]))
        return [replace(groups[0], rollouts=(bad, *groups[0].rollouts[1:])), *groups[1:]]

    trainer.sampler.generate = broken
    trainer.model.train()
    with pytest.raises(EngineError, match="not finite.*old_logprobs: recompute"):
        trainer._generate_and_score_completions(rows(trainer))


def surrogate(trainer, batch):
    """The gradient of the plain importance-weighted loss, written out: no clip anywhere."""
    trainer.model.zero_grad()
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    logps, _, _ = trainer._get_per_token_logps_and_entropies(
        trainer.model, ids, mask, batch["completion_ids"].size(1)
    )
    counted = batch["completion_mask"]
    log_ratio = (logps - batch["old_per_token_logps"]) * counted
    if trainer.importance_sampling_level == "sequence":
        log_ratio = (log_ratio.sum(-1) / counted.sum(-1))[:, None].expand_as(logps)
    weight = log_ratio.exp()
    if trainer.loss_type == "cispo":  # the weight is a constant there
        weight = weight.detach() * logps
    terms = -(weight * batch["advantages"][:, None] * counted)
    loss = {
        "grpo": lambda: (terms.sum(-1) / counted.sum(-1)).mean(),
        "luspo": lambda: terms.sum(-1).mean(),
        "dapo": lambda: terms.sum() / counted.sum(),
        "cispo": lambda: terms.sum() / counted.sum(),
    }[trainer.loss_type]()
    loss.backward()
    return updating.gradient_of(trainer.model)


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "cispo", "luspo"])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("clip", [True, False])
def test_without_clip_the_ratio_is_never_held(make_trainer, tmp_path, clip, loss_type, level):
    recipe = parse_recipe({"rollout": {"clip": clip}})
    config = grpo_config(recipe, tmp_path, 1)
    trainer = make_trainer(
        {"microbatch_tokens": BUDGET},
        epsilon=config.epsilon,
        epsilon_high=config.epsilon_high,
        loss_type=loss_type,
        importance_sampling_level=level,
    )
    trainer.model.get_input_embeddings().weight.data.mul_(0.2)
    batch = updating.with_logps(trainer, updating.make_batch(), ["old_per_token_logps"], noise=1.0)
    if level == "token":
        batch["old_per_token_logps"][0, 0] -= 30.0  # a ratio of 1e13
    else:
        batch["old_per_token_logps"][0] -= 3.0 * batch["completion_mask"][0]
    batch["advantages"][0] = -1.0
    expected = surrogate(trainer, batch)
    found = updating.our_gradient(trainer, batch)
    if clip:
        batch["advantages"][0] = 1.0  # a high ratio of a good token is what a clip holds
        assert updating.difference(updating.our_gradient(trainer, batch), surrogate(trainer, batch)) > 0.1
    else:
        assert updating.difference(found, expected) < 1e-5
