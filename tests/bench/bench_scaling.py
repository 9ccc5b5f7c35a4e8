"""How the update's cost grows with rollouts, group size and length: a table for docs/performance.md.

    python tests/bench/bench_scaling.py [--model 1M] [--budget 4096] [--repeats 5] [--clock cpu]

Medians of `--repeats` updates after one that does not count; --repeats 1 is a single shot without a warm-up.
Every row is a process of its own, so that its peak memory is its own. The last line says how much more memory
1,024 rollouts take than 64, as in `scaling 1.05x memory`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from random_models import SIZES
from updates import OurUpdate, PeakMemory, Shape, model_of, rollouts, seconds, useful_flops

BASE = Shape(rollouts=64, group=8, prompt=(120, 120), median=100, longest=512, flat=0.0)
CASES = {
    "rollouts 64": BASE,
    "rollouts 256": replace(BASE, rollouts=256),
    "rollouts 1024": replace(BASE, rollouts=1024),
    "group 4": replace(BASE, group=4),
    "group 16": replace(BASE, group=16),
    "group 32": replace(BASE, group=32),
    "length 128": replace(BASE, median=128, longest=128, spread=0.0),
    "length 512": replace(BASE, median=512, longest=512, spread=0.0),
    "length 2048": replace(BASE, median=2048, longest=2048, spread=0.0),
    "prompt 512": replace(BASE, prompt=(512, 512)),
    "prompt 1024": replace(BASE, prompt=(1024, 1024)),
    "prompt 1024, group 32, length 16": replace(
        BASE, prompt=(1024, 1024), group=32, median=16, longest=16, spread=0.0
    ),
    "one of 2048": replace(BASE, longest=2048, spread=0.3),  # among short ones
}


def measure(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Time, memory and tokens of one case, in this process."""
    shape = CASES[name]
    batch = rollouts(shape, SIZES[options.model][-1])
    side = OurUpdate(model_of(options.model), shape, options.budget, loss_type="dapo")
    with PeakMemory() as peak:
        if options.repeats > 1:
            side.run(batch)
        times = [seconds(side, batch, options.clock) for _ in range(options.repeats)]
    taken = statistics.median(times)
    return {
        "tokens": int(batch["completion_mask"].sum()),
        "seconds": taken,
        "memory": peak.grown,
        "flops": useful_flops(side.trainer.model, batch) / taken,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=list(SIZES), default="1M")
    parser.add_argument("--budget", type=int, default=4096, help="rollout.microbatch_tokens")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: on a busy machine")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--case", choices=list(CASES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.case, options)))
        return
    print(
        f"{options.model} parameters, budget {options.budget} tokens, {options.clock} time, "
        f"{options.repeats} repeats\n"
    )
    print("| case | completion tokens | seconds | tokens/s | GFLOP/s | peak MiB |")
    print("|---|---:|---:|---:|---:|---:|")
    found = {}
    same = ["--model", options.model, "--budget", str(options.budget), "--clock", options.clock]
    same += ["--repeats", str(options.repeats)]
    for name in options.cases:
        done = subprocess.run(
            [sys.executable, __file__, *same, "--case", name],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).resolve().parent,
        )
        row = found[name] = json.loads(done.stdout.splitlines()[-1])
        print(
            f"| {name} | {row['tokens']:,} | {row['seconds']:.1f} | {row['tokens'] / row['seconds']:,.0f} | "
            f"{row['flops'] / 1e9:.1f} | {row['memory']:.0f} |",
            flush=True,
        )
    if {"rollouts 64", "rollouts 1024"} <= set(found):
        print(f"scaling {found['rollouts 1024']['memory'] / found['rollouts 64']['memory']:.2f}x memory")


if __name__ == "__main__":
    main()
