"""The update phase against `trl.GRPOTrainer` on identical rollouts: time, memory, utilisation.

    python tests/bench/bench_update.py [--repeats 5] [--model 20M] [--budget 4096] [--trl-rows 8]

Both sides take turns in one process; peak memory is of two further processes. The last line is the ratio
of medians, as in `update 4.31x TRL`. --quick makes it small enough for a busy machine. The exit status is 1
when the gradients of both sides differ by more than rounding.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from random_models import SIZES
from updates import (
    OurUpdate,
    PeakMemory,
    Shape,
    TrlUpdate,
    gradients_differ,
    matmul_peak,
    model_of,
    rollouts,
    seconds,
    useful_flops,
)

UNEVEN = Shape()
UNIFORM = Shape(prompt=(200, 200), median=200, longest=200, spread=0.0, flat=0.0)
ROUNDING = 1e-4  # of the largest gradient
QUICK = {"rollouts": 32, "longest": 512, "median": 75, "prompt": (60, 150)}


def main() -> int:
    options = parse()
    if options.side:
        print(json.dumps(memory(options)))
        return 0
    uneven, uniform = shapes(options)
    peak = matmul_peak(options.clock)
    folder, vocabulary = model_of(options.model), SIZES[options.model][-1]
    print(
        f"{options.model} parameters, {torch.get_num_threads()} threads, budget {options.budget} tokens, "
        f"TRL {options.trl_rows} rows a forward; {options.repeats} repeats in turn, {options.clock} time"
    )
    ratios, differ = {}, []
    for name, shape in {"uneven": uneven, "uniform": uniform}.items():
        if options.only in (None, name):
            ratios[name], found = compare(name, shape, folder, vocabulary, peak, options)
            differ += found
    if not options.no_memory and options.only in (None, "memory"):
        grown = {side: measured_elsewhere(side) for side in ("trl", "ours")}
        print(
            f"peak memory of the update: TRL {grown['trl']:.0f} MiB, trlmath {grown['ours']:.0f} MiB, "
            f"{grown['ours'] / grown['trl']:.2f} of TRL's"
        )
    if "uniform" in ratios:
        print(f"uniform lengths, no group without spread: {ratios['uniform']:.2f}x TRL")
    broken = not all(d < ROUNDING for d in differ)  # NaN too
    if broken:
        print(f"BROKEN: gradients differ by {differ} of the largest, not all under {ROUNDING:.0e}")
    if "uneven" in ratios:
        print(f"update {ratios['uneven']:.2f}x TRL")
    return int(broken)


def shapes(options: argparse.Namespace) -> tuple[Shape, Shape]:
    """Uneven rollouts with groups that teach nothing, and even ones without."""
    from dataclasses import replace

    if not options.quick:
        return UNEVEN, UNIFORM
    return replace(UNEVEN, **QUICK), replace(UNIFORM, rollouts=32, prompt=(100, 100), median=100, longest=100)


def compare(name, shape, folder, vocabulary, peak, options) -> tuple[float, list[float]]:
    """Both sides in turn, and ours with padded rows; prints a table.

    Returns TRL's median over ours, and by how much the gradients of our sides differ from TRL's.
    """
    batch = rollouts(shape, vocabulary)
    sides = {
        "TRL": TrlUpdate(folder, shape, options.trl_rows),
        "trlmath, padded rows": OurUpdate(folder, shape, options.budget, shared=False, loss_type="dapo"),
        "trlmath": OurUpdate(folder, shape, options.budget, loss_type="dapo"),
    }
    lengths = batch["completion_mask"].sum(-1).float()
    flat = 1 - float((batch["advantages"] != 0).float().mean())
    print(
        f"\n{name}: {shape.rollouts} rollouts in groups of {shape.group}, prompts {shape.prompt}, "
        f"completions median {lengths.median():.0f} mean {lengths.mean():.0f} longest {lengths.max():.0f}, "
        f"{flat:.0%} of rows without advantage"
    )
    taken = {side: [] for side in sides}
    for _ in range(options.repeats):
        for side, update in sides.items():
            taken[side].append(seconds(update, batch, options.clock))
    flops = useful_flops(sides["TRL"].trainer.model, batch)
    base = statistics.median(taken["TRL"])
    print(f"{'':22} {'median s':>9} {'fastest':>9} {'x TRL':>7} {'FLOPs used':>11}")
    for side, times in taken.items():
        median = statistics.median(times)
        print(f"{side:22} {median:9.2f} {min(times):9.2f} {base / median:7.2f} {flops / median / peak:11.0%}")
    differ = [gradients_differ(side, sides["TRL"]) for side in list(sides.values())[1:]]
    print(f"gradients differ by {max(differ):.1e} of the largest; matrix product {peak / 1e9:.0f} GFLOP/s")
    return base / statistics.median(taken["trlmath"]), differ


def memory(options: argparse.Namespace) -> float:
    """MiB that one side's update grows this process by; the second of two, so that buffers are there."""
    shape, _ = shapes(options)
    folder = model_of(options.model)
    batch = rollouts(shape, SIZES[options.model][-1])
    side = (
        TrlUpdate(folder, shape, options.trl_rows)
        if options.side == "trl"
        else OurUpdate(folder, shape, options.budget, loss_type="dapo")
    )
    with PeakMemory() as peak:
        side.run(batch)
    return peak.grown


def measured_elsewhere(side: str) -> float:
    """`memory` in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, *sys.argv[1:], "--side", side],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).resolve().parent,
    )
    return json.loads(done.stdout.splitlines()[-1])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--model", choices=list(SIZES), default="20M")
    parser.add_argument("--budget", type=int, default=4096, help="rollout.microbatch_tokens")
    parser.add_argument(
        "--trl-rows", type=int, default=8, help="per_device_train_batch_size of TRL (its default)"
    )
    parser.add_argument("--quick", action="store_true", help="half as many rollouts of half the length")
    parser.add_argument("--only", choices=["uneven", "uniform", "memory"])
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall", help="cpu: on a busy machine")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--side", choices=["trl", "ours"], help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
