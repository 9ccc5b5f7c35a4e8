"""Fixtures of the trainer's tests: a tiny model, and a function that builds a trainer around it."""

from __future__ import annotations

from functools import partial

import pytest
from tiny import save_tiny_model

from trlmath.types import Grade, Problem


@pytest.fixture(scope="session")
def tiny_dir(tmp_path_factory):
    """A tiny model directory."""
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


class LetterCount:
    """A reward with spread: how many e's the completion holds, in tenths; unscorable for a few."""

    name = "letters"

    def __init__(self, unscorable: str = "") -> None:
        self.unscorable = unscorable

    def __call__(self, *, completions, **columns):
        return [
            Grade(None) if self.unscorable and self.unscorable in text else Grade(text.count("e") / 10)
            for text in completions
        ]


@pytest.fixture
def make_trainer(trainer_builder, tmp_path):
    """Build a `MathGRPOTrainer`; keyword arguments change its config, `algorithm` its parts."""
    return partial(trainer_builder, tmp_path)


@pytest.fixture(scope="session")
def trainer_builder(tiny_dir):
    """`make_trainer` for fixtures that live longer than a test; its first argument is a folder."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig

    from trlmath.builtin.advantages import GroupAdvantage
    from trlmath.sampling import SamplingSettings
    from trlmath.sampling.transformers_engine import TransformersSampler
    from trlmath.training.grpo import Algorithm, MathGRPOTrainer

    def own_module(trainer):
        sampler = TransformersSampler(
            trainer.accelerator.unwrap_model(trainer.model), trainer._tokenizer, trainer.eos_token_ids
        )
        return sampler, sampler

    def build(folder, algorithm=None, settings=None, make_sampler=own_module, problems=None, **config):
        parts = {
            "rewards": [LetterCount()],
            "reward_weights": [1.0],
            "advantage": GroupAdvantage(eps=1e-4),
            **(algorithm or {}),
        }
        outside = {
            "peft_config": config.pop("peft_config", None),
            "freshness": config.pop("freshness", "stop"),
        }
        model = config.pop("model", None)
        problems = problems or [Problem(f"{a} + {a} = {'?' * a}", str(2 * a)) for a in range(1, 9)]
        arguments = {
            "output_dir": str(folder / "out"),
            "per_device_train_batch_size": 8,
            "steps_per_generation": 1,
            "num_generations": 4,
            "max_completion_length": 24,
            "max_steps": 2,
            "learning_rate": 1e-3,
            "gradient_checkpointing": False,
            "bf16": False,
            "use_cpu": True,
            "report_to": [],
            "logging_steps": 1,
            "save_strategy": "no",
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            "remove_unused_columns": False,
            "loss_type": "grpo",
            "beta": 0.0,
            **config,
        }
        return MathGRPOTrainer(
            model=model or AutoModelForCausalLM.from_pretrained(tiny_dir, dtype="float32"),
            args=GRPOConfig(**arguments),
            **outside,
            processing_class=AutoTokenizer.from_pretrained(tiny_dir, padding_side="left"),
            algorithm=Algorithm(**parts),
            settings=settings or SamplingSettings(max_tokens=arguments["max_completion_length"]),
            make_sampler=make_sampler,
            problems=problems,
            prompts=[p.question for p in problems],
        )

    return build


@pytest.fixture
def rows():
    """What TRL's data loader hands to a generation: rows of two problems, four times each."""

    def of(trainer, problems=2):
        return [
            dict(trainer.train_dataset[i]) for i in range(problems) for _ in range(trainer.num_generations)
        ]

    return of
