"""Run as two processes: each takes its rows of one SFT step, and the gradient they agree on is written out.

``python tests/sft_processes.py MODEL_DIR EXAMPLES.pt OUT.pt`` under torch's launcher.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import SFTConfig

from trlmath.cli.launch import leave
from trlmath.data.examples import Example
from trlmath.recipe.schema import BatchSection
from trlmath.training.sft import MathSFTTrainer


def main(model_dir: str, examples: Path, out: Path) -> None:
    trainer = MathSFTTrainer(
        examples=[Example(*ids, row) for row, ids in enumerate(torch.load(examples))],
        batch=BatchSection(size=13, microbatch_tokens=100),
        model=AutoModelForCausalLM.from_pretrained(model_dir, dtype="float32"),
        args=SFTConfig(
            output_dir=str(out.parent / "trainer"),
            use_cpu=True,
            report_to=[],
            gradient_checkpointing=False,
            bf16=False,
        ),
        processing_class=AutoTokenizer.from_pretrained(model_dir),
    )
    wrapped = trainer.accelerator.prepare_model(trainer.model)
    assert type(wrapped).__name__ == "DistributedDataParallel"
    (step,), _ = trainer.get_batch_samples(iter(trainer.get_train_dataloader()), 1, torch.device("cpu"))
    rows = torch.tensor([sum(part["input_ids"].size(0) for part in step["parts"])])
    loss = trainer.training_step(wrapped, step)
    found = {
        "gradient": {n: p.grad for n, p in trainer.model.named_parameters() if p.grad is not None},
        "loss": float(trainer.accelerator.reduce(loss, "mean")),
        "rows": trainer.accelerator.gather(rows).tolist(),
    }
    if trainer.accelerator.is_main_process:
        torch.save(found, out)
    leave(0)  # as a run does: what gloo still holds is not torn down


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
