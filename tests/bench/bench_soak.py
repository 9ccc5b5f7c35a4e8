"""Memory over many GRPO steps: completions grow, what the process holds must not.

    python tests/bench/bench_soak.py [--steps 300] [--budget 512]

A tiny model trains on rollouts whose completions grow from 8 to 120 tokens. A line is fitted to the memory
that the process has to itself (anonymous pages, swapped ones too) after a warm-up of a third of the steps, by
when micro-batches fill the budget; then the same in a fresh process that goes on from the checkpoint, for as
many steps. The last line is the steeper slope, as in `soak 0.004 MB a step`; the exit status is 1 when it is
over the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from transformers import TrainerCallback
from updates import held, tiny_trainer

from trlmath.training.memory import GiveBack

LIMIT = 0.05  # MB a step


class Memory(TrainerCallback):
    """Notes what the process holds after each step, and lets the next step's completions grow."""

    def __init__(self, steps: int, longest: int) -> None:
        self.steps, self.longest = steps, longest
        self.seen: list[float] = []  # MB
        self.trainer = None

    def on_step_end(self, args, state, control, **_) -> None:
        self.seen.append(held())
        length = 8 + (self.longest - 8) * (state.global_step % self.steps) // self.steps
        self.trainer.settings = replace(
            self.trainer.settings, max_tokens=length, min_tokens=max(1, length // 2)
        )


def slope(values: list[float]) -> float:
    """Least squares, MB a step."""
    n = len(values)
    mean_x, mean_y = (n - 1) / 2, sum(values) / n
    above = sum((x - mean_x) * (y - mean_y) for x, y in enumerate(values))
    return above / sum((x - mean_x) ** 2 for x in range(n))


def soak(folder: Path, options: argparse.Namespace, resume: bool) -> float:
    """Train (on) and return the slope after warm-up."""
    memory = Memory(options.steps, options.longest)
    steps = options.steps * (2 if resume else 1)
    trainer = tiny_trainer(folder, options.budget, options.longest, max_steps=steps, save_steps=options.steps)
    memory.trainer = trainer
    trainer.add_callback(GiveBack())  # as every run does
    trainer.add_callback(memory)
    trainer.train(resume_from_checkpoint=resume or None)
    seen, name = memory.seen, "after a resume" if resume else "from the start"
    tenths = " ".join(f"{seen[i * len(seen) // 10]:.0f}" for i in range(10))
    found = slope(seen[len(seen) // 3 :])
    print(
        f"{name}, {len(seen)} steps: MB at each tenth {tenths}, last {seen[-1]:.0f}; {found:+.4f} MB a step"
    )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--longest", type=int, default=120, help="tokens of the last step's completions")
    parser.add_argument("--budget", type=int, default=512, help="rollout.microbatch_tokens")
    parser.add_argument("--part", nargs=2, metavar=("FOLDER", "start|resume"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        folder, part = options.part
        print(json.dumps(soak(Path(folder), options, part == "resume")))
        return 0
    with tempfile.TemporaryDirectory(prefix="bench-soak-") as name:
        slopes = [in_own_process(name, part) for part in ("start", "resume")]
    worst = max(slopes)
    print(f"limit {LIMIT} MB a step: {'kept' if worst < LIMIT else 'BROKEN'}")
    print(f"soak {worst:.4f} MB a step")
    return 0 if worst < LIMIT else 1


def in_own_process(folder: str, part: str) -> float:
    """`soak` in a process of its own; what it says is passed on."""
    done = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], "--part", folder, part],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    *told, found = done.stdout.splitlines()
    print("\n".join(told))
    return json.loads(found)


if __name__ == "__main__":
    sys.exit(main())
