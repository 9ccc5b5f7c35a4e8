"""What the benchmarks of the update share: a model of some size, rollouts made by hand, both updates."""

from __future__ import annotations

import math
import resource
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from random_models import random_qwen2
from tiny import save_tiny_model
from updating import gradient_of, plain_trl


@dataclass(frozen=True)
class Shape:
    """A step's rollouts: groups, lengths, and how many groups teach nothing.

    Attributes:
        longest: completions are cut there; the first one reaches it, as in nearly every real step.
        spread: sigma of the log-normal of completion lengths; 0: all have the median.
        flat: share of groups whose advantages are 0.
    """

    rollouts: int = 64
    group: int = 8
    prompt: tuple[int, int] = (120, 300)
    median: int = 150
    longest: int = 1024
    spread: float = 0.8
    flat: float = 1 / 3
    seed: int = 0


def model_of(size: str, dtype: str = "float32"):
    """A random Qwen2 of about that many parameters, and its folder (which holds a tokenizer)."""
    folder = save_tiny_model(Path(tempfile.mkdtemp(prefix="bench-update-")))
    model = random_qwen2(size).to(getattr(torch, dtype))
    model.save_pretrained(folder)
    return folder


def rollouts(shape: Shape, vocabulary: int) -> dict[str, torch.Tensor]:
    """Rows as TRL lays them out, on-policy; shuffled, as TRL shuffles them."""
    generator = torch.Generator().manual_seed(shape.seed)
    groups = shape.rollouts // shape.group
    low, high = shape.prompt
    prompts = torch.randint(low, high + 1, (groups,), generator=generator).repeat_interleave(shape.group)
    draws = torch.randn(shape.rollouts, generator=generator)
    lengths = (shape.median * (draws * shape.spread).exp()).long().clamp(8, shape.longest)
    if shape.spread:
        lengths[0] = shape.longest
    width = int(prompts.max())
    ids = torch.randint(2, vocabulary, (groups, width), generator=generator)
    prompt_mask = (torch.arange(width) >= (width - prompts)[:, None]).long()
    completion_mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    completions = torch.randint(2, vocabulary, tuple(completion_mask.shape), generator=generator)
    advantages = torch.randn(groups, shape.group, generator=generator)
    advantages[torch.randperm(groups, generator=generator)[: round(groups * shape.flat)]] = 0
    order = torch.randperm(shape.rollouts, generator=generator)
    batch = {
        "prompt_ids": ids.repeat_interleave(shape.group, 0) * prompt_mask,
        "prompt_mask": prompt_mask,
        "completion_ids": completions * completion_mask,
        "completion_mask": completion_mask,
        "advantages": advantages.view(-1),
    }
    return {k: v[order] for k, v in batch.items()} | {"num_items_in_batch": completion_mask.sum()}


class TrlUpdate:
    """The update phase of `trl.GRPOTrainer`: `rows` at a time, accumulated to one optimizer step."""

    name = "TRL"

    def __init__(self, folder: Path, shape: Shape, rows: int = 8, **config) -> None:
        from transformers import AutoModelForCausalLM

        self.rows = min(rows, shape.rollouts)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
        self.trainer = plain_trl(
            model,
            **arguments(folder, shape),
            per_device_train_batch_size=self.rows,
            gradient_accumulation_steps=shape.rollouts // self.rows,
            num_generations=shape.group,
            **config,
        )

    def run(self, batch) -> None:
        trainer, parts = self.trainer, self.trainer.args.gradient_accumulation_steps
        trainer.model.zero_grad()
        trainer.current_gradient_accumulation_steps = parts
        trainer._buffered_inputs = [
            {k: v[i * self.rows : (i + 1) * self.rows] if v.dim() else v for k, v in batch.items()}
            for i in range(parts)
        ]
        trainer.num_iterations, trainer._step = 4, parts
        for _ in range(parts):
            trainer.training_step(trainer.model, None, None)


class OurUpdate:
    """Ours, of the same rollouts."""

    name = "trlmath"

    def __init__(self, folder: Path, shape: Shape, budget: int | None, shared: bool = True, **config) -> None:
        from two_processes import build

        self.trainer = build(
            str(folder),
            Path(arguments(folder, shape)["output_dir"]),
            budget,
            **{
                "num_generations": shape.group,
                "per_device_train_batch_size": shape.rollouts,
                "max_completion_length": shape.longest,
                **config,
            },
        )
        if not shared:
            self.trainer.padded_because = "the benchmark compares"

    def run(self, batch) -> None:
        trainer = self.trainer
        trainer.model.zero_grad()
        trainer.current_gradient_accumulation_steps = 1
        trainer._buffered_inputs, trainer._step, trainer.num_iterations = [batch], 1, 4
        trainer.training_step(trainer.model, batch)
        for values in trainer._metrics["train"].values():
            values.clear()


def tiny_trainer(folder: Path, budget: int, longest: int, **config):
    """A trainer that really samples: a tiny model, rewarded for the letter e."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig
    from two_processes import own_module

    from trlmath.builtin.advantages import GroupAdvantage
    from trlmath.sampling import SamplingSettings
    from trlmath.training.grpo import Algorithm, MathGRPOTrainer
    from trlmath.types import Grade, Problem

    def letters(*, completions, **_):
        return [Grade(text.count("e") / 10) for text in completions]

    model = save_tiny_model(folder / "model")
    problems = [Problem(f"{a} + {a} = {'?' * (a % 9)}", str(2 * a)) for a in range(64)]
    settings = {
        "output_dir": str(folder / "out"),
        "per_device_train_batch_size": 16,
        "num_generations": 4,
        "max_completion_length": longest,
        "learning_rate": 1e-4,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": False,
        "gradient_checkpointing": False,
        "report_to": [],
        "save_strategy": "steps",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "remove_unused_columns": False,
    }
    return MathGRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype="float32"),
        args=GRPOConfig(**settings, **config),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
        algorithm=Algorithm([letters], [1.0], GroupAdvantage(), microbatch_tokens=budget),
        settings=SamplingSettings(max_tokens=8),
        make_sampler=own_module,
        problems=problems,
        prompts=[p.question for p in problems],
    )


def arguments(folder: Path, shape: Shape) -> dict:
    """What both sides are given."""
    return {
        "output_dir": str(folder / "out"),
        "max_completion_length": shape.longest,
        "use_cpu": not torch.cuda.is_available(),
        "report_to": [],
        "bf16": False,
        "gradient_checkpointing": False,
        "loss_type": "dapo",
        "beta": 0.0,
    }


def seconds(side, batch, clock: str = "wall") -> float:
    """Time of one update; the ``cpu`` clock counts this process's threads, whatever else the machine does."""
    now = time.perf_counter if clock == "wall" else time.process_time
    started = now()
    side.run(batch)
    return now() - started


def gradients_differ(one, other) -> float:
    """Largest difference between the last gradients of both sides, relative to the largest."""
    a, b = gradient_of(one.trainer.model), gradient_of(other.trainer.model)
    return max(float((a[n] - b[n]).abs().max()) for n in b) / max(float(g.abs().max()) for g in b.values())


def resident() -> float:
    """Resident memory of this process now, MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def held() -> float:
    """Memory that this process has to itself, MiB: anonymous pages and swapped ones; no mapped files."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name.rstrip(":"): int(size) for name, size, _ in map(str.split, lines)}
    return (sizes["Anonymous"] + sizes["Swap"]) / 1024


class PeakMemory:
    """Samples resident memory while it is open; `grown` is the peak above what there was before, MiB."""

    def __enter__(self) -> PeakMemory:
        self.before = self.peak = resident()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.peak = max(self.peak, resident())

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def grown(self) -> float:
        return self.peak - self.before


def matmul_peak(clock: str = "wall", size: int = 1536, repeats: int = 6) -> float:
    """FLOP/s of a float32 matrix product on this machine, now."""
    now = time.perf_counter if clock == "wall" else time.process_time
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = math.inf
    for _ in range(repeats):
        started = now()
        a @ b
        best = min(best, now() - started)
    return 2 * size**3 / best


def useful_flops(model, batch) -> float:
    """Forward and backward over what the gradient needs: each prompt once, completions with an advantage.

    Linear layers 6 a parameter and token, the head for completion tokens only, attention for the pairs
    that a causal mask leaves.
    """
    config = model.config
    head = config.vocab_size * config.hidden_size
    linear = sum(p.numel() for p in model.parameters()) - head
    rows = (batch["advantages"] != 0).nonzero().squeeze(1).tolist()
    prompts = {tuple(batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()) for i in rows}
    of_row = {i: int(batch["prompt_mask"][i].sum()) for i in rows}
    completions = {i: int(batch["completion_mask"][i].sum()) for i in rows}
    tokens = sum(map(len, prompts)) + sum(completions.values())
    pairs = sum(len(p) ** 2 / 2 for p in prompts)
    pairs += sum(c * of_row[i] + c * c / 2 for i, c in completions.items())
    attention = 12 * config.num_hidden_layers * config.hidden_size * pairs
    return 6 * linear * tokens + 6 * head * sum(completions.values()) + attention
