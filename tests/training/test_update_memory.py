"""What the update allocates beside the weights: against what torch allocates, and by optimizer."""

from __future__ import annotations

import pytest
import torch
import updating
from tiny import save_tiny_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from trlmath.planning.fakes import Counting
from trlmath.training.update_memory import activation_bytes, state_bytes, update_reserve


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = save_tiny_model(tmp_path_factory.mktemp("reserve"))
    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32")


def kept_for_backward(model, tokens):
    """Bytes that autograd keeps for one forward, weights left out, each storage once."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen = {}

    def pack(tensor):
        store = tensor.untyped_storage()
        if store.data_ptr() not in weights:
            seen[store.data_ptr()] = store.nbytes()
        held.append(tensor)
        return tensor

    held = []
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.model(input_ids=torch.ones(1, tokens, dtype=torch.long), use_cache=False)
    return sum(seen.values())


def test_activations_are_those_that_autograd_keeps(model):
    measured = kept_for_backward(model, 200) / 200
    head = model.config.vocab_size * 4 * 2 * 200
    estimated = (activation_bytes(model.config, 200, 4, checkpointing=False) - head) / 200
    assert 0.8 * measured < estimated < 1.5 * measured


def test_checkpointing_keeps_less(model):
    config = model.config
    config.num_hidden_layers, before = 24, config.num_hidden_layers
    try:
        plain, saved = (activation_bytes(config, 4096, 2, checkpointing=c) for c in (False, True))
    finally:
        config.num_hidden_layers = before
    assert saved < plain / 3


@pytest.mark.parametrize(
    ("optimizer", "per_parameter"),
    [
        ("adamw_torch_fused", 8),
        ("adamw_bnb_8bit", 2.1),
        ("paged_lion_8bit", 1.05),
        ("sgd", 0),
        ("lion_32bit", 4),
        ("paged_ademamix_32bit", 12),
        ("schedule_free_sgd", 8),  # not SGD's
    ],
)
def test_what_the_update_needs_by_optimizer(model, optimizer, per_parameter):
    count = sum(p.numel() for p in model.parameters())
    states = int(count * per_parameter)
    assert update_reserve(model, optimizer, 100, False, False, asleep=True) == states
    awake = update_reserve(model, optimizer, 100, False, False, asleep=False)
    assert awake == states + count * 4 + activation_bytes(model.config, 100, 4, False)


@pytest.mark.parametrize(
    "name", ["adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop", "adafactor"]
)
def test_an_optimizers_state_is_what_it_keeps(model, name, tmp_path):
    arguments = TrainingArguments(tmp_path, optim=name, use_cpu=True, report_to="none", learning_rate=0.0)
    optimizer = Trainer(model, arguments).create_optimizer()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    kept = [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
    model.zero_grad()
    each = sum(t.nbytes for t in kept) / sum(p.numel() for p in model.parameters())
    assert state_bytes(name, 4) == pytest.approx(each, rel=0.01, abs=0.5)


def test_only_what_is_trained_counts(model):
    names = [p for p in model.parameters() if p.requires_grad]
    for parameter in names[1:]:
        parameter.requires_grad = False
    try:
        assert update_reserve(model, "adamw_torch", 100, False, False, asleep=True) == names[0].numel() * 8
    finally:
        for parameter in names:
            parameter.requires_grad = True


def test_peak_memory_of_an_update_does_not_follow_the_rollouts(make_trainer):
    """All that a step allocates is counted while it lives; what grows is its own tensors, cut into parts."""
    trainer = make_trainer({"microbatch_tokens": 256}, per_device_train_batch_size=1024)
    peaks, parts = [], []
    for rollouts in (64, 256, 1024):
        batch = updating.make_batch(groups=rollouts // 4, size=4, longest=16)
        with Counting() as counting:
            updating.our_gradient(trainer, batch)
        parts.append(trainer._metrics["train"]["microbatches"][-1])
        peaks.append(counting.peak)
    assert parts[2] > 12 * parts[0]
    assert max(peaks) < 1.1 * peaks[0], peaks
