"""What a GRPO step of the nano recipe is made of, by engine and threads: a table for docs/engines.md.

    python tests/bench/bench_steps.py [--steps 6] [--engines transformers vllm server] [--threads 1 2]

Every row is a run of recipes/grpo.py in a process of its own, evaluation left out: medians over its steps
but the first, which warms up, from the run's own metrics. The last line is the ratio of steps, vllm over
transformers, with the fewest threads.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PHASES = ["step", "generate", "grade", "old_logprobs", "update", "sync"]


def measure(engine: str, threads: int, steps: int, more: list[str]) -> dict[str, float]:
    """Median seconds of each phase of a run's steps."""
    given = ["sampling.mode=server"] if engine == "server" else [f"sampling.engine={engine}"]
    with tempfile.TemporaryDirectory(prefix="bench-steps-") as folder:
        run = Path(folder) / "run"
        command = [sys.executable, "recipes/grpo.py", *given, f"trainer.max_steps={steps}", f"run.dir={run}"]
        command += ["evaluation.enabled=false", "run.report=false", *more]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "time/step" in row and row["step"] > 1]
    return {p: statistics.median(row.get(f"time/{p}", 0.0) for row in rows) for p in PHASES}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--engines", nargs="+", default=["transformers", "vllm"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("overrides", nargs="*", help="further overrides of the recipe")
    options = parser.parse_args()
    print("| engine | threads | " + " | ".join(PHASES) + " |")
    print("|---|---:|" + "---:|" * len(PHASES))
    found = {}
    for threads in options.threads:
        for engine in options.engines:
            row = found[engine, threads] = measure(engine, threads, options.steps, options.overrides)
            print(
                f"| {engine} | {threads} | " + " | ".join(f"{row[p]:.2f}" for p in PHASES) + " |", flush=True
            )
    least = min(options.threads)
    if {"transformers", "vllm"} <= set(options.engines):
        print(f"vllm {found['vllm', least]['step'] / found['transformers', least]['step']:.2f}x transformers")


if __name__ == "__main__":
    main()
