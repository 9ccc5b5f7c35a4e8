"""One optimizer step's rollouts made by hand, and the gradient that TRL itself takes from them uncut."""

from __future__ import annotations

from contextlib import contextmanager

import torch
from datasets import Dataset

ZERO = 1e-3  # of the largest gradient

LOSS_TYPES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo", "sapo", "luspo", "vespo")


def make_batch(seed=0, groups=5, size=4, longest=24, prompt=14, vocabulary=250):
    """Rows as TRL lays them out, padded beyond their longest; the third group has no advantage.

    Completions are uneven; log-probabilities of an old and of a reference policy lie near a uniform one.
    """
    generator = torch.Generator().manual_seed(seed)

    def random(low, high, shape):
        return torch.randint(low, high, shape, generator=generator)

    rows = groups * size
    prompt_lengths = random(3, prompt + 1, (groups,)).repeat_interleave(size)
    lengths = random(1, longest + 1, (rows,))
    prompts = random(3, vocabulary, (groups, prompt)).repeat_interleave(size, 0)
    prompt_mask = (torch.arange(prompt + 2) >= (prompt + 2 - prompt_lengths)[:, None]).long()
    completion_mask = (torch.arange(longest + 3) < lengths[:, None]).long()
    completion_ids = random(3, vocabulary, tuple(completion_mask.shape)) * completion_mask
    advantages = torch.randn(groups, size, generator=generator)
    advantages[2] = 0
    return {
        "prompt_ids": torch.nn.functional.pad(prompts, (2, 0)) * prompt_mask,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
        "advantages": advantages.view(-1),
        "num_items_in_batch": completion_mask.sum(),
    }


def plain_trl(model, **config):
    """`trl.GRPOTrainer` around `model`, only there to take a gradient."""
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    return GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=GRPOConfig(**config),
        train_dataset=Dataset.from_dict({"prompt": ["a"] * 8}),
        processing_class=AutoTokenizer.from_pretrained(model.config.name_or_path, padding_side="left"),
    )


def with_logps(trainer, batch, names, noise=0.3):
    """`batch` with log-probabilities of other policies: those of `trainer`'s model, shaken."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    with torch.no_grad():
        logps, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, batch["completion_ids"].size(1)
        )
    generator = torch.Generator().manual_seed(1)
    shaken = {n: logps + noise * torch.randn(logps.shape, generator=generator) for n in names}
    return {**batch, **{n: v * batch["completion_mask"] for n, v in shaken.items()}}


def rows_of(batch, rows):
    """Some rows of `batch`, at the same width."""
    index = torch.as_tensor(rows)
    return {k: v[index] if v.dim() else v for k, v in batch.items()}


def trl_gradient(trainer, batch):
    """What TRL's own loss gives for the uncut batch."""
    trainer.model.train()
    trainer.model.zero_grad()
    trainer.current_gradient_accumulation_steps = 1
    trainer.compute_loss(trainer.model, batch).backward()
    return gradient_of(trainer.model)


@contextmanager
def attributes(trainer, changes):
    """Within, `trainer` has these attributes; ``steps_per_generation`` is its arguments'."""
    before, several = dict(vars(trainer)), trainer.args.steps_per_generation
    vars(trainer).update(changes)
    trainer.args.steps_per_generation = changes.get("steps_per_generation", several)
    try:
        yield
    finally:
        vars(trainer).clear()
        vars(trainer).update(before)
        trainer.args.steps_per_generation = several


def our_gradient(trainer, batch, model=None):
    """What our training step gives for the batch, as if it had just been generated."""
    model = model if model is not None else trainer.model
    model.zero_grad()
    trainer.current_gradient_accumulation_steps = 1
    trainer._buffered_inputs, trainer._step, trainer.num_iterations = [batch] * 4, 1, 4
    trainer.training_step(model, batch)
    return gradient_of(trainer.accelerator.unwrap_model(model))


def gradient_of(model):
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def difference(ours, theirs):
    """The largest difference of any tensor, relative to that tensor's own largest entry.

    A tensor whose entries are all below `ZERO` of the largest gradient is nothing but rounding (the bias of
    keys, which moves no softmax): it is taken relative to that.
    """
    assert ours.keys() == theirs.keys()
    floor = ZERO * max(float(g.abs().max()) for g in theirs.values())
    return max(
        float((ours[n] - theirs[n]).abs().max()) / max(float(theirs[n].abs().max()), floor) for n in theirs
    )
