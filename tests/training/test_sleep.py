"""Sleep mode in a GRPO run: nothing of the engine is in memory during the update, and it wakes in order."""

from __future__ import annotations

import pytest
from recording import recording_sampler
from transformers import AutoModelForCausalLM

from trlmath.errors import EngineError
from trlmath.sampling.transformers_engine import TransformersSampler
from trlmath.training.grpo import MathGRPOTrainer


@pytest.fixture
def run(make_trainer, tiny_dir, monkeypatch):
    """Train with a sleeping engine; returns (trainer, events), the updates among them."""
    events = []

    def make_sampler(trainer):
        tokenizer = trainer.processing_class
        own = AutoModelForCausalLM.from_pretrained(tiny_dir, dtype="float32")
        sampler = recording_sampler(monkeypatch, TransformersSampler(own, tokenizer), events)
        return sampler, TransformersSampler(trainer.model, tokenizer)

    step = MathGRPOTrainer._compute_loss

    def update(self, *arguments, **more):
        assert self.sampler.llm.awake == set(), "the engine holds memory during the update"
        if events[-1] != "update":
            events.append("update")
        return step(self, *arguments, **more)

    monkeypatch.setattr(MathGRPOTrainer, "_compute_loss", update)

    def train(**more):
        trainer = make_trainer(make_sampler=make_sampler, **more)
        trainer.train()
        return trainer, events

    return train


LOADED = ["wake weights", "load", "reset"]
PROVEN = ["wake kv_cache", "score"]
STEP = [*LOADED, *PROVEN, "generate", "sleep", "update"]


def test_generate_sleep_update_wake_weights_load_wake_cache_generate(run):
    trainer, events = run(max_steps=3)
    assert events == ["sleep", *STEP, *STEP, *STEP]
    assert trainer.sampler.weights_version == 3
    told = [row["engine/weights_version"] for row in trainer.state.log_history if "train_runtime" not in row]
    assert told == [1, 2, 3]


def test_several_updates_of_one_rollout_phase_wake_nothing(run):
    _, events = run(max_steps=4, steps_per_generation=2, per_device_train_batch_size=4)
    assert events == ["sleep", *STEP, *STEP]


def test_without_the_probe_the_cache_wakes_for_generating_only(run):
    _, events = run(max_steps=2, freshness="off")
    step = [*LOADED, "wake kv_cache", "generate", "sleep", "update"]
    assert events == ["sleep", *step, *step]


def test_weights_stay_loaded_through_a_sleep_without_an_update(run):
    """An evaluation's second draw wakes both parts and loads nothing: level 1 keeps the weights."""
    trainer, events = run(max_steps=1)
    del events[:]
    sampler = trainer.ready_sampler()
    for _ in range(2):
        sampler.generate([[5, 6, 7]], trainer.settings)
    both = ["wake weights+kv_cache", "generate", "sleep"]
    assert events == [*LOADED, *PROVEN, "generate", "sleep", *both]


def test_a_rank_with_nothing_to_draw_does_not_stay_awake(run):
    trainer, events = run(max_steps=1)
    del events[:]
    assert trainer.ready_sampler().generate([], trainer.settings) == []
    assert events == [*LOADED, *PROVEN, "sleep"]
    assert trainer.sampler.llm.awake == set()


def test_the_recording_engine_itself_notices_a_wrong_order(run, monkeypatch):
    from trlmath.sampling.vllm_engine import VllmSampler

    monkeypatch.setattr(VllmSampler, "_wake", lambda self, parts: None)
    with pytest.raises(AssertionError, match="loaded into memory that sleeps"):
        run(max_steps=1)


def test_an_engine_that_forgot_its_weights_stops_the_run(run, monkeypatch):
    """The freshness probe comes after the load: a wake-up that lost the weights is seen."""
    from recording import RecordingLLM

    monkeypatch.setattr(RecordingLLM, "load_weights", lambda self, weights: None)
    with pytest.raises(EngineError, match="does not generate from the trainer's weights"):
        run(max_steps=8, learning_rate=0.1)


def test_a_stale_engine_is_said_once_where_the_recipe_wants_a_warning(run, monkeypatch, capsys):
    from recording import RecordingLLM

    monkeypatch.setattr(RecordingLLM, "load_weights", lambda self, weights: None)
    trainer, _ = run(max_steps=4, learning_rate=0.1, freshness="warn")
    assert trainer.state.global_step == 4
    told = capsys.readouterr().err
    assert told.count("does not generate from the trainer's weights") == 1
    assert "sampling.freshness=warn" in told
