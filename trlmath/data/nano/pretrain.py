"""Build the nano base model from nothing: ``python -m trlmath.data.nano.pretrain --out DIR [--seed S]``.

One core, no downloads. The r1_zero preamble is the same in every document, so each batch runs it
through the model once and lets all its documents attend to the cached keys and values (gradients
included): exact, and two to three times cheaper than spelling it out in every row.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trlmath.data.nano.corpus import PREAMBLE, Document, documents
from trlmath.data.nano.tokenizer import train_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

STAGES = ((4000, 1.0), (2000, 0.35))
"""Optimizer steps and share of the peak learning rate of each stage; `HABITS` gives the documents."""

BATCH = 32
POOL = 16
PEAK = {"muon": 4e-3, "adamw": 2e-3}
WARMUP = 100
DECAY_FROM = 0.65
FLOOR = 0.02


def schedule(step: int, steps: int) -> float:
    """Return the share of the peak: warm up, hold, then fall linearly to `FLOOR` over the last part."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    start = int(steps * DECAY_FROM)
    if step < start:
        return 1.0
    return 1 - (1 - FLOOR) * (step - start) / max(1, steps - start)


def new_model(tokenizer: Qwen2Tokenizer, seed: int) -> Qwen2ForCausalLM:
    """Return a freshly initialised Qwen2 of 1.1 million parameters in float32."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=512,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            dtype="float32",
        )
    )


def new_optimizers(model: Qwen2ForCausalLM) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices (Jordan 2024, step size matched to AdamW's as in Moonlight, 2502.16982)
    and AdamW for the embedding, biases and norms. Muon learns this corpus about three times faster."""
    import torch

    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (matrices if parameter.dim() == 2 and "embed" not in name else others).append(parameter)
    muon = torch.optim.Muon(
        [{"params": matrices, "peak": PEAK["muon"]}],
        lr=PEAK["muon"],
        weight_decay=0.1,
        momentum=0.95,
        adjust_lr_fn="match_rms_adamw",
    )
    adamw = torch.optim.AdamW(
        [{"params": others, "peak": PEAK["adamw"]}], lr=PEAK["adamw"], betas=(0.9, 0.98), weight_decay=0.0
    )
    return [muon, adamw]


def batches(
    tokenizer: Qwen2Tokenizer, stream: Iterator[Document]
) -> Iterator[tuple[bool, list[tuple[list[int], int]]]]:
    """Group documents of like length: yield (preamble, [(ids, length of the context), ...])."""
    waiting: dict[bool, list[tuple[list[int], int]]] = {True: [], False: []}
    while True:
        drawn = list(itertools.islice(stream, BATCH * POOL))
        contexts = tokenizer([d.context for d in drawn])["input_ids"]
        targets = tokenizer([d.target for d in drawn])["input_ids"]
        for doc, context, target in zip(drawn, contexts, targets, strict=True):
            waiting[doc.preamble].append((context + target + [tokenizer.eos_token_id], len(context)))
        ready: list[tuple[bool, list[tuple[list[int], int]]]] = []
        for preamble, rows in waiting.items():
            whole = len(rows) // BATCH * BATCH
            taken = sorted(rows[:whole], key=lambda row: len(row[0]))
            waiting[preamble] = rows[whole:]
            ready += [(preamble, taken[i : i + BATCH]) for i in range(0, whole, BATCH)]
        half = len(ready) // 2  # long and short in turn, so that no stretch of steps is all of one kind
        for pair in itertools.zip_longest(ready[:half], ready[half:]):
            yield from (batch for batch in pair if batch is not None)


def batch_loss(
    model: Qwen2ForCausalLM, preamble: list[int] | None, rows: list[tuple[list[int], int]], pad: int
) -> torch.Tensor:
    """Return the mean cross-entropy (nats a token) of the targets of `rows`, under `preamble` if given."""
    import torch
    from torch.nn.functional import cross_entropy
    from transformers import DynamicCache

    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([row + [pad] * (width - len(row)) for row, _ in rows])
    labels = torch.tensor([[-100] * start + row[start:] + [-100] * (width - len(row)) for row, start in rows])
    cache = None
    if preamble is not None:
        cache = DynamicCache(config=model.config)
        model.model(torch.tensor([preamble]), past_key_values=cache, use_cache=True)
        for layer in cache.layers:
            layer.keys = layer.keys.expand(len(rows), -1, -1, -1)
            layer.values = layer.values.expand(len(rows), -1, -1, -1)
    hidden = model.model(ids[:, :-1], past_key_values=cache, use_cache=cache is not None).last_hidden_state
    keep = labels[:, 1:] != -100
    return cross_entropy(model.lm_head(hidden[keep]), labels[:, 1:][keep])


def pretrain(
    out: Path, seed: int = 0, stages: tuple[tuple[int, float], ...] = STAGES, log_every: int = 50
) -> dict[str, Any]:
    """Train the tokenizer and the model, save both in `out`, and return the figures of the run.

    Each stage starts with fresh optimizers. Progress goes to ``out/pretrain.jsonl`` (mean loss in nats a
    token of the solutions), the model after each stage to ``out/stage-N`` and the last one to `out`.
    """
    import torch

    torch.set_num_threads(1)
    out.mkdir(parents=True, exist_ok=True)
    began, tokens = time.process_time(), 0
    tokenizer = train_tokenizer(seed)
    model = new_model(tokenizer, seed).train()
    with (out / "pretrain.jsonl").open("w") as log:
        for number in range(len(stages)):
            for record in train_stage(model, tokenizer, seed, number, *stages[number], log_every):
                record["tokens"] = tokens = tokens + record["tokens"]
                record["cpu_seconds"] = round(time.process_time() - began)
                log.write(json.dumps(record) + "\n")
                log.flush()
            save(model, tokenizer, out / f"stage-{number}")
    save(model, tokenizer, out)
    steps = sum(count for count, _ in stages)
    return {"steps": steps, "tokens": tokens, "cpu_seconds": round(time.process_time() - began)}


def train_stage(
    model: Qwen2ForCausalLM,
    tokenizer: Qwen2Tokenizer,
    seed: int,
    stage: int,
    steps: int,
    peak: float,
    log_every: int,
) -> Iterator[dict[str, Any]]:
    """Train the model in place for one stage; yield step, mean loss and tokens since the last record."""
    import torch

    optimizers = new_optimizers(model)
    preamble, pad = tokenizer(PREAMBLE)["input_ids"], tokenizer.pad_token_id
    stream = batches(tokenizer, documents(seed, stage))
    losses: list[float] = []
    tokens = 0
    for step in range(steps):
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = peak * group["peak"] * schedule(step, steps)
        under, rows = next(stream)
        loss = batch_loss(model, preamble if under else None, rows, pad)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        tokens += sum(len(ids) for ids, _ in rows)
        losses.append(loss.item())
        if len(losses) == log_every or step + 1 == steps:
            mean = round(sum(losses) / len(losses), 4)
            yield {"stage": stage, "step": step + 1, "loss": mean, "tokens": tokens}
            losses.clear()
            tokens = 0


def save(model: Qwen2ForCausalLM, tokenizer: Qwen2Tokenizer, out: Path) -> None:
    """Write the model, its generation config (plain sampling at temperature 1) and the tokenizer."""
    from transformers import GenerationConfig

    model.generation_config = GenerationConfig(
        do_sample=True,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def main() -> None:
    """Read the command line and pre-train."""
    parser = argparse.ArgumentParser(
        prog="python -m trlmath.data.nano.pretrain", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for the model, its tokenizer and the log"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the documents and the initial weights")
    args = parser.parse_args()
    print(json.dumps(pretrain(args.out, args.seed)))


if __name__ == "__main__":
    main()
