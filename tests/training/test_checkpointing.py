"""Trainers go on from a checkpoint to the bit, and a checkpoint that did not end is none."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch
from dying import killed_at_every_file_operation
from made_up_server import send_json, serving
from transformers import TrainerCallback

from trlmath.data.filtering import build_filters
from trlmath.recipe.schema import Ref
from trlmath.runs.checkpoints import newest, verify
from trlmath.sampling.server_engine import ServerSampler
from trlmath.types import Grade


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop = state.global_step >= self.step


def weights(trainer):
    return {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}


def losses(trainer):
    keep = ("loss", "reward", "grad_norm")
    return [{k: row.get(k) for k in keep} for row in trainer.state.log_history if "loss" in row]


class OnlyLarge:
    """Spread for problems with large answers only: the others are filtered, and refilled."""

    name = "large"

    def __call__(self, *, completions, answer, **columns):
        return [Grade(float(i % 2) if int(a) >= 9 else 0.0) for i, a in enumerate(answer)]


# four rollout phases take each problem once: the third case goes on in the second pass over them
@pytest.mark.parametrize(
    ("updates", "epochs", "phases", "refill"),
    [(1, 1, 2, 0), (2, 2, 2, 0), (1, 1, 6, 0), (2, 1, 5, 0), (1, 1, 2, 3)],
)
def test_a_stopped_run_goes_on_to_the_same_bits(make_trainer, tmp_path, updates, epochs, phases, refill):
    every, asked = phases * updates * epochs, []
    refilled = {
        "rewards": [OnlyLarge()],
        "group_filters": build_filters([Ref(name="zero_spread")]),
        "refill_rounds": refill,
        "on_rollouts": lambda groups, _, step: asked.append((step, [g.prompt for g in groups])),
    }
    config = {
        "algorithm": refilled if refill else None,
        "save_strategy": "steps",
        "save_steps": every,
        "max_steps": 2 * every,
        "num_iterations": epochs,
        "steps_per_generation": updates,
        "learning_rate": 1e-2,
    }
    whole = make_trainer(output_dir=str(tmp_path / "whole"), **config)
    whole.train()
    uninterrupted = dict(asked)
    stopped = make_trainer(output_dir=str(tmp_path / "stopped"), **config)
    stopped.add_callback(StopAt(every + 1))
    stopped.train()
    torch.rand(7)  # another process would not begin with this random state either
    again = make_trainer(output_dir=str(tmp_path / "stopped"), **config)
    found, passed = newest(tmp_path / "stopped")
    assert (found.step, passed) == (every, [])
    again.train(resume_from_checkpoint=str(found.path))
    assert again.state.global_step == 2 * every
    assert losses(again) == losses(whole)
    assert dict(asked) == uninterrupted
    assert not refill or max(map(len, uninterrupted.values())) > 2
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(again)[name]), name


def test_a_server_is_sent_the_same_requests_by_a_run_that_goes_on(make_trainer, tmp_path):
    asked = []

    def answer(handler, text):
        if text is None:
            return send_json(handler, {"data": [{"id": "m", "max_model_len": 256}]})
        body = json.loads(text)
        asked.append(json.dumps(body, sort_keys=True))
        # what is drawn depends on the seed alone, as on a real one
        choices = [
            {
                "index": i,
                "text": "e" * (1 + (body["seed"] + i) % 5),
                "token_ids": [72] * (1 + (body["seed"] + i) % 5),
                "finish_reason": "stop",
                "logprobs": {"token_logprobs": [-0.5] * (1 + (body["seed"] + i) % 5)},
            }
            for i in range(body["n"])
        ]
        return send_json(handler, {"choices": choices})

    with serving(answer) as http:

        def make(folder):
            def server(trainer):
                sampler = ServerSampler(http.url, None)
                sampler.load_weights = lambda named: None
                return sampler, SimpleNamespace()

            config = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4, "freshness": "off"}
            return make_trainer(output_dir=str(tmp_path / folder), make_sampler=server, **config)

        whole = make("whole")
        whole.train()
        sent, asked[:] = sorted(asked), []
        stopped = make("stopped")
        stopped.add_callback(StopAt(3))
        stopped.train()
        before, asked[:] = list(asked), []
        again = make("stopped")
        found, _ = newest(tmp_path / "stopped")
        again.train(resume_from_checkpoint=str(found.path))
    assert (found.step, len(before), len(asked)) == (2, 3 * 2, 2 * 2)
    assert sorted({*before, *asked}) == sent
    assert len({json.loads(body)["seed"] for body in sent}) == len(sent)
    assert losses(again) == losses(whole)


def test_a_save_that_fails_leaves_the_one_before(make_trainer, tmp_path, monkeypatch):
    trainer = make_trainer(output_dir=str(tmp_path / "out"), save_strategy="steps", save_steps=1, max_steps=3)
    trainer.facts = lambda: {"step": trainer.state.global_step}
    real = trainer.save_model

    def full_disk(folder, **kwargs):
        real(folder, **kwargs)
        if trainer.state.global_step == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(trainer, "save_model", full_disk)
    with pytest.raises(OSError, match="No space left"):
        trainer.train()
    found, passed = newest(tmp_path / "out")
    assert (found.step, passed, found.facts) == (2, [], {"step": 2})
    assert sorted(p.name for p in (tmp_path / "out").glob("checkpoint-*")) == ["checkpoint-1", "checkpoint-2"]
    assert verify(tmp_path / "out" / "checkpoint-1")[0].step == 1


@pytest.mark.slow
def test_a_trainer_killed_at_every_file_operation_of_its_save(make_trainer, tmp_path, monkeypatch):
    folder = tmp_path / "out"
    trainer = make_trainer(output_dir=str(folder), save_strategy="steps", save_steps=1, max_steps=2)
    trainer.keep_last, deaths = 1, []
    save = trainer._save_checkpoint

    def dying(*arguments):
        if trainer.state.global_step == 2:
            for number in killed_at_every_file_operation(lambda: save(*arguments), folder):
                found, passed = newest(folder)
                assert passed == []
                assert found.step in (1, 2)
                deaths.append(found.step)
                if number % 8 == 0:  # what the kill has left is not in the way
                    save(*arguments)
                    assert newest(folder)[0].step == 2
                    assert sorted(p.name for p in folder.iterdir() if p.is_dir()) == ["checkpoint-2"]
        save(*arguments)

    monkeypatch.setattr(trainer, "_save_checkpoint", dying)
    trainer.train()
    assert deaths == sorted(deaths)
    assert {1, 2} == set(deaths)
    assert len(deaths) > 20
