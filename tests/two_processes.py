"""Run as two processes: each takes its half of a batch, and the gradient they agree on is written out.

``python tests/two_processes.py MODEL_DIR BATCH.pt OUT.pt ddp|fsdp2`` under torch's launcher. BATCH.pt holds
a list of (attributes of the trainer, batch, rows of each process); OUT.pt gets a list of (gradient,
micro-batches of each process, what was logged).
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import updating
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig

from trlmath.builtin.advantages import GroupAdvantage
from trlmath.cli.launch import leave
from trlmath.sampling import SamplingSettings
from trlmath.sampling.transformers_engine import TransformersSampler
from trlmath.training.grpo import Algorithm, MathGRPOTrainer
from trlmath.types import Problem


def own_module(trainer):
    """The engine: not used here."""
    sampler = TransformersSampler(trainer.model, trainer._tokenizer, trainer.eos_token_ids)
    return sampler, sampler


def build(model_dir: str, folder: Path, budget: int | None, **config) -> MathGRPOTrainer:
    """A trainer whose rollouts and rewards nobody asks for."""
    problems = [Problem(f"{a}", str(a)) for a in range(16)]
    return MathGRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model_dir, dtype=config.pop("dtype", "float32")),
        args=GRPOConfig(
            **{
                "output_dir": str(folder),
                "per_device_train_batch_size": 8,
                "num_generations": 4,
                "max_completion_length": 24,
                "use_cpu": True,
                "report_to": [],
                "ddp_find_unused_parameters": False,
                "gradient_checkpointing": False,
                "bf16": False,
                **config,
            }
        ),
        processing_class=AutoTokenizer.from_pretrained(model_dir, padding_side="left"),
        algorithm=Algorithm([lambda **_: []], [1.0], GroupAdvantage(), microbatch_tokens=budget),
        settings=SamplingSettings(max_tokens=24),
        make_sampler=own_module,
        problems=problems,
        prompts=[p.question for p in problems],
    )


def sharded(model):
    """Torch's FSDP2 by hand: accelerate shards on GPUs only."""
    from torch.distributed.fsdp import fully_shard

    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def gradient_syncs(model):
    """What the sharded model is told of whether to reduce gradients, in a list that grows."""
    told, plain = [], model.set_requires_gradient_sync

    def spy(wanted, **rest):
        told.append(wanted)
        return plain(wanted, **rest)

    model.set_requires_gradient_sync = spy
    return told


def whole(gradients):
    """Sharded gradients put together; others as they are."""
    return {n: g.full_tensor() if hasattr(g, "full_tensor") else g for n, g in gradients.items()}


def main(model_dir: str, batches: Path, out: Path, how: str) -> None:
    trainer = build(model_dir, out.parent / "trainer", budget=130)
    trainer.model.get_input_embeddings().weight.data.mul_(0.2)
    if how == "ddp":
        wrapped = trainer.accelerator.prepare_model(trainer.model)
        assert type(wrapped).__name__ == "DistributedDataParallel"
    else:
        wrapped = trainer.model = sharded(trainer.model)
        type(trainer.accelerator).is_fsdp2 = property(lambda self: True)  # as where accelerate has sharded
    switched = gradient_syncs(wrapped) if how == "fsdp2" else []
    rank, found = trainer.accelerator.process_index, []
    for attributes, batch, shares in torch.load(batches):
        switched.clear()
        trainer._metrics["train"].clear()
        with updating.attributes(trainer, attributes):
            gradient = updating.our_gradient(trainer, updating.rows_of(batch, shares[rank]), wrapped)
        logged = {name: values[-1] for name, values in trainer._metrics["train"].items()}
        parts = logged["microbatches"]
        assert how == "ddp" or switched == [False, True] * (parts - 1), "gradients are reduced once"
        found.append((whole(gradient), trainer.accelerator.gather(torch.tensor([parts])).tolist(), logged))
    if rank == 0:
        torch.save(found, out)
    leave(0)  # as a run does: what gloo still holds is not torn down


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
