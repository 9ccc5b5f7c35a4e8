"""Golden: the cut update's gradient is that of TRL's own uncut batch, for every loss and every term of it."""

from __future__ import annotations

import math

import pytest
import torch
import updating
from transformers import AutoModelForCausalLM

BUDGET = 60


def tame(model):
    """Log-probabilities as of a language model: summed over a row, wild ones let vespo magnify rounding."""
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(0.2)
    return model


@pytest.fixture(scope="module")
def plain(tiny_dir, tmp_path_factory):
    """TRL's own trainer, whose attributes the tests set."""
    model = tame(AutoModelForCausalLM.from_pretrained(tiny_dir, dtype="float32"))
    return updating.plain_trl(
        model,
        output_dir=str(tmp_path_factory.mktemp("plain")),
        bf16=False,
        use_cpu=True,
        report_to=[],
        gradient_checkpointing=False,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=24,
    )


@pytest.fixture(scope="module", params=["shared", "padded"])
def cut(trainer_builder, tmp_path_factory, request):
    """Our trainer with a budget; once with shared prompts, once with padded rows."""
    trainer = trainer_builder(tmp_path_factory.mktemp("cut"), {"microbatch_tokens": BUDGET})
    tame(trainer.model)
    assert trainer.padded_because is None
    if request.param == "padded":
        trainer.padded_because = "the test wants it"
    return trainer


def changed(trainers, **attributes):
    for trainer in trainers:
        for name, value in attributes.items():
            owner = trainer.args if name == "steps_per_generation" else trainer
            setattr(owner, name, value)


@pytest.fixture
def ours(cut):
    before = dict(vars(cut)), cut.args.steps_per_generation
    yield cut
    vars(cut).update(before[0])
    cut.args.steps_per_generation = before[1]


@pytest.fixture
def both(ours, plain):
    before = dict(vars(plain)), plain.args.steps_per_generation
    plain._metrics["train"].clear()
    ours._metrics["train"].clear()
    yield ours, plain
    vars(plain).update(before[0])
    plain.args.steps_per_generation = before[1]


def agree(ours, plain, batch, theirs=None):
    expected = updating.trl_gradient(plain, batch if theirs is None else theirs)
    found = updating.our_gradient(ours, batch)
    assert ours._metrics["train"]["microbatches"][-1] > 2
    assert updating.difference(found, expected) < 1e-5
    same_numbers(ours._metrics["train"], plain._metrics["train"])


def same_numbers(ours, theirs):
    """What TRL's loss logs of the uncut batch; of rows without an advantage only the clip is known."""
    names = {
        n for n in theirs if n.startswith("clip_ratio/") or n in ("cispo_clip_ratio", "policy_loss", "kl")
    }
    if ours["rows_with_advantage"][-1] == 1.0:
        names |= theirs.keys() & {"entropy", "vespo/phi_seq_mean"}
    for name in names:
        assert ours[name][-1] == pytest.approx(theirs[name][-1], abs=1e-6, rel=1e-5), name


@pytest.mark.parametrize("loss_type", updating.LOSS_TYPES)
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_every_loss(both, loss_type, level):
    changed(both, loss_type=loss_type, importance_sampling_level=level)
    agree(*both, updating.make_batch())


@pytest.mark.parametrize("loss_type", updating.LOSS_TYPES)
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_off_policy_rows(both, loss_type, level):
    changed(both, loss_type=loss_type, importance_sampling_level=level, epsilon_low=0.05, epsilon_high=0.05)
    agree(*both, updating.with_logps(both[1], updating.make_batch(), ["old_per_token_logps"]))


@pytest.mark.parametrize("loss_type", updating.LOSS_TYPES)
def test_kl_to_a_reference(both, loss_type):
    changed(both, loss_type=loss_type, beta=0.1)
    names = ["old_per_token_logps", "ref_per_token_logps"]
    agree(*both, updating.with_logps(both[1], updating.make_batch(), names))


@pytest.mark.parametrize("loss_type", updating.LOSS_TYPES)
@pytest.mark.parametrize("per", ["token", "sequence"])
def test_importance_correction_of_an_engine(both, loss_type, per):
    changed(both, loss_type=loss_type, use_vllm=True, vllm_importance_sampling_correction=True)
    names = ["old_per_token_logps", "sampling_per_token_logps"]
    batch = updating.with_logps(both[1], updating.make_batch(), names)
    difference = (batch["old_per_token_logps"] - batch["sampling_per_token_logps"]) * batch["completion_mask"]
    if per == "sequence":
        difference = difference.sum(-1, keepdim=True)
    agree(*both, {**batch, "importance_sampling_ratio": difference.exp().clamp(max=3.0)})


@pytest.mark.parametrize("loss_type", updating.LOSS_TYPES)
def test_masked_truncated_rows_count_as_rows_as_in_trl(both, loss_type):
    changed(both, loss_type=loss_type)
    batch = updating.make_batch()
    batch["completion_mask"][[1, 6, 7, 18]] = 0
    batch["num_items_in_batch"] = batch["completion_mask"].sum()
    agree(*both, batch)


@pytest.mark.parametrize("loss_type", updating.LOSS_TYPES)
def test_dropped_groups_are_as_if_never_drawn(both, loss_type):
    changed(both, loss_type=loss_type)
    batch = updating.make_batch()
    kept = torch.ones(20, dtype=torch.bool)
    kept[4:8] = False
    left = updating.rows_of(batch, kept.nonzero().squeeze(1))
    left["num_items_in_batch"] = left["completion_mask"].sum()
    mask = batch["completion_mask"] * kept[:, None]
    agree(*both, {**batch, "completion_mask": mask, "num_items_in_batch": mask.sum(), "kept": kept}, left)


@pytest.mark.parametrize("loss_type", updating.LOSS_TYPES)
def test_one_of_several_updates_on_a_rollout(both, loss_type):
    changed(both, loss_type=loss_type, steps_per_generation=2)
    batch = updating.with_logps(both[1], updating.make_batch(), ["old_per_token_logps"])
    for rows in (torch.arange(0, 20, 2), torch.arange(1, 20, 2)):  # groups are torn apart by TRL's shuffle
        agree(*both, updating.rows_of(batch, rows))


@pytest.mark.parametrize("loss_type", ["grpo", "dapo"])
def test_several_epochs_on_a_rollout_end_at_trls_weights(tiny_dir, trainer_builder, tmp_path, loss_type):
    """Two rollouts of two epochs each, through `train` of both."""
    config = {
        "per_device_train_batch_size": 12,
        "num_generations": 4,
        "num_iterations": 2,
        "max_steps": 4,
        "optim": "sgd",
        "learning_rate": 0.1,
        "lr_scheduler_type": "constant",
        "loss_type": loss_type,
    }
    plain = updating.plain_trl(
        tame(AutoModelForCausalLM.from_pretrained(tiny_dir, dtype="float32")),
        output_dir=str(tmp_path),
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        gradient_checkpointing=False,
        max_completion_length=24,
        **config,
    )
    ours = trainer_builder(tmp_path, {"microbatch_tokens": BUDGET}, **config)
    tame(ours.model)
    before = {name: tensor.detach().clone() for name, tensor in ours.model.named_parameters()}
    moved = []
    for trainer in (plain, ours):
        batches = iter([updating.make_batch(seed=seed, groups=3) for seed in (0, 1)])

        def drawn(inputs, trainer=trainer, batches=batches):
            return updating.with_logps(trainer, next(batches), ["old_per_token_logps"], noise=0.0)

        trainer._generate_and_score_completions = drawn
        trainer.train()
        assert next(batches, None) is None
        moved.append({name: p.detach() - before[name] for name, p in trainer.model.named_parameters()})
    assert all(row["microbatches"] > 1 for row in ours.state.log_history if "microbatches" in row)
    # the difference of float32 weights: their rounding is some 1e-4 of what a step moves
    assert updating.difference(moved[1], moved[0]) < 1e-3


@pytest.mark.parametrize("loss_type", updating.LOSS_TYPES)
@pytest.mark.parametrize("terms", [{"entropy_coef": 0.3}, {"top_entropy_quantile": 0.3}])
def test_terms_that_are_means_over_all_tokens(both, loss_type, terms):
    changed(both, loss_type=loss_type, **terms)
    changed(both, _entropy_bonus_enabled="entropy_coef" in terms)
    agree(*both, updating.make_batch())
    if "entropy_coef" in terms:
        assert both[0]._metrics["train"]["policy_loss"]
        assert both[0]._metrics["train"]["entropy_coef"][-1] == 0.3


def test_only_the_last_micro_batch_synchronises(ours, monkeypatch):
    seen, loss = [], type(ours).compute_loss

    def spy(self, *args, **kwargs):
        seen.append(self.accelerator.sync_gradients)
        return loss(self, *args, **kwargs)

    monkeypatch.setattr(type(ours), "compute_loss", spy)
    updating.our_gradient(ours, updating.make_batch())
    assert seen == [False] * (len(seen) - 1) + [True]
    assert len(seen) > 2


def test_a_step_without_work_has_gradient_zero(ours):
    batch = updating.make_batch()
    batch["advantages"].zero_()
    found = updating.our_gradient(ours, batch)
    assert all(float(g.abs().max()) == 0 for g in found.values())
    logged = {name: values[-1] for name, values in ours._metrics["train"].items()}
    assert logged["rows_with_advantage"] == 0
    assert math.isnan(logged["entropy"]), "of tokens that nobody computed"
    clipped = {name: value for name, value in logged.items() if name.startswith("clip_ratio/")}
    assert len(clipped) == 5
    assert set(clipped.values()) == {0.0}, "a row without an advantage cannot meet the clip"


def test_an_improbable_token_in_an_empty_part_is_no_nan(ours):
    batch = updating.with_logps(ours, updating.make_batch(), ["old_per_token_logps"])
    batch["advantages"].zero_()
    batch["old_per_token_logps"] -= 200.0
    found = updating.our_gradient(ours, batch)
    assert all(torch.isfinite(g).all() for g in found.values())
