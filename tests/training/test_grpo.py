"""The trainer against TRL itself: rollouts, advantages, truncation, filters, and an update's gradient."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from trl import GRPOTrainer

from trlmath.builtin.advantages import BatchAdvantage, GroupAdvantage
from trlmath.errors import PluginError
from trlmath.sampling import SamplingSettings
from trlmath.training import microbatches
from trlmath.types import Drop, Grade, Group, Keep, Problem


def generated(trainer, inputs):
    trainer.model.train()
    trainer.state.max_steps = 1
    return trainer._generate_and_score_completions(inputs)


@pytest.mark.parametrize(
    ("advantage", "scale"),
    [
        (GroupAdvantage(eps=1e-4), "group"),
        (GroupAdvantage(std=False), "none"),
        (BatchAdvantage(eps=1e-4), "batch"),
    ],
)
def test_advantages_equal_trls_own(make_trainer, rows, advantage, scale, monkeypatch):
    trainer = make_trainer({"advantage": advantage}, scale_rewards=scale)
    theirs = {}
    original = GRPOTrainer._generate_and_score_completions

    def spy(self, inputs):
        output = original(self, inputs)
        theirs["advantages"] = output["advantages"].clone()
        return output

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", spy)
    output = generated(trainer, rows(trainer))
    assert theirs["advantages"].abs().max() > 0.1
    torch.testing.assert_close(output["advantages"], theirs["advantages"], atol=1e-6, rtol=0)


def test_an_unscorable_rollout_has_advantage_zero_and_its_group_lives(make_trainer, rows):
    from conftest_rewards import EveryOther

    trainer = make_trainer({"rewards": [EveryOther()]})
    output = generated(trainer, rows(trainer))
    advantages = output["advantages"].view(-1, 4)
    assert (advantages[:, 0] == 0).all()
    assert torch.isfinite(advantages).all()
    assert (advantages[:, 1:] != 0).any()


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "bnpo"])
def test_rows_without_advantage_cost_nothing_and_change_nothing(make_trainer, rows, loss_type):
    class SecondGroupOnly:
        name = "second"

        def __call__(self, *, completions, **columns):
            return [Grade(float(i * i) if i >= 4 else 1.0) for i in range(len(completions))]

    trainer = make_trainer({"rewards": [SecondGroupOnly()]}, loss_type=loss_type, max_steps=1)
    trainer.create_optimizer()
    output = generated(trainer, rows(trainer))
    trainer.current_gradient_accumulation_steps = 1
    GRPOTrainer.compute_loss(trainer, trainer.model, output).backward()
    expected = {n: p.grad.clone() for n, p in trainer.model.named_parameters()}
    trainer.model.zero_grad()
    parts = trainer._cut(output)
    assert sum(p["completion_ids"].size(0) for p in parts) == 4
    trainer._buffered_inputs, trainer._step, trainer.num_iterations = [output], 1, 2
    trainer.training_step(trainer.model, output)
    for name, parameter in trainer.model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], atol=1e-6, rtol=1e-4)


def test_a_stop_string_is_finished_and_the_cut_off_is_truncated(make_trainer, rows):
    settings = SamplingSettings(max_tokens=24, stop=("e",))
    trainer = make_trainer(settings=settings, mask_truncated_completions=True)
    output = generated(trainer, rows(trainer))
    rollouts = trainer._rollouts
    truncated = [r.finish_reason == "length" for r in rollouts]
    assert any(truncated)
    assert any(r.text.endswith("e") and not t for r, t in zip(rollouts, truncated, strict=True))
    masked = (output["completion_mask"].sum(-1) == 0).tolist()
    assert masked == truncated
    assert int(output["num_items_in_batch"]) == int(output["completion_mask"].sum())
    share = trainer._metrics["train"]["completions/clipped_ratio"][-1]
    assert share == pytest.approx(sum(truncated) / len(truncated))


def test_rewards_see_the_completion_and_the_columns_never_the_prompt(make_trainer, rows):
    seen = {}

    class Spy:
        name = "spy"

        def __call__(self, **given):
            seen.update(given)
            return [Grade(0.0) for _ in given["completions"]]

    problems = [
        Problem(f"SECRET {i} é½", str(i), metadata={"level": i, "mixed": [None, "a"][i % 2]})
        for i in range(8)
    ]
    trainer = make_trainer({"rewards": [Spy()]}, problems=problems)
    generated(trainer, rows(trainer))
    assert all("SECRET" not in text for text in seen["completions"])
    assert seen["completions"] == [r.text for r in trainer._rollouts]
    assert seen["answer"] == ["0"] * 4 + ["1"] * 4
    assert seen["level"] == [0] * 4 + [1] * 4
    assert seen["mixed"] == [None] * 4 + ["a"] * 4
    assert set(seen["finish_reasons"]) <= {"stop", "length"}


@dataclass
class DropFirst:
    """Drops the group of the problem 1 + 1."""

    name = "drop_first"
    moment = "group"

    def select(self, items):
        return [self(item) for item in items]

    def __call__(self, item: Group):
        assert all(r.grade is not None for r in item.rollouts)
        return Drop("first") if item.problem.answer == "2" else Keep()


def test_dropped_groups_leave_the_update_and_its_normaliser(make_trainer, rows):
    drops = []
    trainer = make_trainer(
        {"group_filters": [DropFirst()], "on_drops": lambda entries, step: drops.extend(entries)}
    )
    output = generated(trainer, rows(trainer))
    assert [(e.filter, e.reason, e.index) for e in drops] == [("drop_first", "first", 0)]
    assert output["completion_mask"][:4].sum() == 0
    assert int(output["num_items_in_batch"]) == int(output["completion_mask"][4:].sum())
    parts = trainer._cut(output)
    assert sum(p["completion_ids"].size(0) for p in parts) == 4
    assert sum(p.weight for p in parts) == pytest.approx(1)


def test_a_step_without_any_kept_group_changes_nothing(make_trainer):
    class DropAll(DropFirst):
        def __call__(self, item):
            return Drop("all")

    trainer = make_trainer({"group_filters": [DropAll()]}, max_steps=1)
    before = {n: p.clone() for n, p in trainer.model.named_parameters()}
    trainer.train()
    assert all(torch.equal(before[n], p) for n, p in trainer.model.named_parameters())


@pytest.mark.parametrize(
    ("advantage", "message"),
    [
        (lambda rewards: rewards[0], "returned"),
        (lambda rewards: rewards * torch.inf, "must be finite"),
        (lambda rewards: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_wrong_advantage_stops_with_its_name(make_trainer, rows, advantage, message):
    trainer = make_trainer({"advantage": advantage, "advantage_label": "'mine' (my-dist 1.0)"})
    with pytest.raises(PluginError, match=rf"'mine' \(my-dist 1.0\).*{message}"):
        generated(trainer, rows(trainer))


def test_an_advantage_cannot_change_what_is_trained_on(make_trainer, rows):
    def greedy(rewards, lengths, parts, mask):
        lengths.zero_(), parts.fill_(torch.nan), mask.zero_()
        return torch.ones_like(rewards)

    output = generated(trainer := make_trainer({"advantage": greedy}), rows(trainer))
    assert (output["completion_mask"].sum(-1) > 0).all()
    assert trainer._metrics["train"]["tokens"][-1] > 0


def test_training_learns_the_letter(make_trainer):
    trainer = make_trainer(
        max_steps=25,
        learning_rate=1e-2,
        lr_scheduler_type="constant",
        per_device_train_batch_size=64,
        num_generations=8,
    )
    trainer.train()
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    assert sum(rewards[-3:]) > 1.5 * sum(rewards[:3])


def test_several_updates_and_epochs_take_their_steps_from_one_rollout(make_trainer):
    steps = []
    trainer = make_trainer(
        {
            "on_rollouts": lambda groups, advantages, step: steps.append(
                (step, len(groups), tuple(advantages.shape))
            )
        },
        per_device_train_batch_size=4,
        steps_per_generation=2,
        num_iterations=2,
        max_steps=8,
    )
    trainer.train()
    assert steps == [(0, 2, (2, 4)), (4, 2, (2, 4))]


def test_micro_batch_metrics_are_one_value_a_step(make_trainer):
    trainer = make_trainer({"microbatch_tokens": 60}, max_steps=2)
    trainer.train()
    for values in trainer._metrics["train"].values():
        assert len(values) <= 1
    assert isinstance(microbatches.MicroBatch(), dict)
