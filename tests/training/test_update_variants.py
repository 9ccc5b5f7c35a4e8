"""LoRA, gradient checkpointing and bfloat16 through the cut update."""

from __future__ import annotations

import tempfile

import pytest
import torch
import updating

BUDGET = 60


@pytest.fixture
def batch():
    """One step's rollouts."""
    return updating.make_batch()


def test_gradient_checkpointing_changes_nothing(make_trainer, batch):
    found = []
    for checkpointing in (False, True):
        trainer = make_trainer({"microbatch_tokens": BUDGET}, gradient_checkpointing=checkpointing)
        if checkpointing:
            trainer.model.gradient_checkpointing_enable({"use_reentrant": False})
        trainer.model.get_input_embeddings().weight.data.mul_(0.2)
        found.append(updating.our_gradient(trainer, batch))
        assert trainer.model.is_gradient_checkpointing == checkpointing
        assert trainer.padded_because is None
    assert updating.difference(found[1], found[0]) < 1e-6


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_lora_trains_adapters_only_and_shares_prompts(tiny_dir, make_trainer, batch, beta):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    config = LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False
    )
    trainer = make_trainer({"microbatch_tokens": BUDGET}, beta=beta, peft_config=config)
    assert trainer.padded_because is None
    plain = updating.plain_trl(
        get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_dir, dtype="float32"), config),
        output_dir=tempfile.gettempdir(),
        use_cpu=True,
        bf16=False,
        report_to=[],
        gradient_checkpointing=False,
        beta=beta,
        loss_type="grpo",
        max_completion_length=24,
    )
    plain.model.load_state_dict(trainer.model.state_dict(), strict=False)  # TRL adds a copy as reference
    for model in (trainer.model, plain.model):
        model.get_input_embeddings().weight.data.mul_(0.2)
    names = ["old_per_token_logps", "ref_per_token_logps"] if beta else []
    batch = updating.with_logps(plain, batch, names)
    found = updating.our_gradient(trainer, batch)
    assert found
    assert all("lora" in name for name in found)
    assert updating.difference(found, updating.trl_gradient(plain, batch)) < 1e-5


@pytest.mark.parametrize("masters", ["float32", "bfloat16"])
def test_bfloat16_gradients_are_as_near_the_float32_ones_as_trls(make_trainer, tiny_dir, batch, masters):
    from transformers import AutoModelForCausalLM

    def model(dtype):
        made = AutoModelForCausalLM.from_pretrained(tiny_dir, dtype="float32")
        made.get_input_embeddings().weight.data.mul_(0.2)
        return made.to(getattr(torch, dtype))

    settings = {
        "output_dir": tempfile.gettempdir(),
        "use_cpu": True,
        "report_to": [],
        "gradient_checkpointing": False,
    }
    settings |= {"max_completion_length": 24, "loss_type": "grpo"}
    exact = updating.trl_gradient(updating.plain_trl(model("float32"), bf16=False, **settings), batch)
    autocast = masters == "float32"
    theirs = updating.trl_gradient(updating.plain_trl(model(masters), bf16=autocast, **settings), batch)
    trainer = make_trainer({"microbatch_tokens": BUDGET}, model=model(masters), bf16=autocast)
    ours = updating.our_gradient(trainer, batch)
    wide = {n: g.float() for n, g in ours.items()}, {n: g.float() for n, g in theirs.items()}
    assert {g.dtype for g in ours.values()} == {getattr(torch, masters)}
    # bfloat16 gradients add up in bfloat16, here over several micro-batches
    allowed = 2 if autocast else 4
    assert updating.difference(wide[0], exact) < allowed * updating.difference(wide[1], exact) + 1e-3
