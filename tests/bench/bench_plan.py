"""How far `trlmath plan` is from what runs really take: peak resident memory, estimated and measured.

    python tests/bench/bench_plan.py [--sizes nano 20M 135M] [--cases NAME ...] [--steps 2]

Every run is a process of its own, on the CPU with the transformers engine; its peak is the kernel's own
count (VmHWM). Models but nano are random, so completions reach `sampling.max_tokens`, as a plan assumes;
without `checks.preflight`, which would make that peak in any case.
The last line is the largest difference, as in `plan off by at most 7.1 %`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from peaks import ROOT, environment, peak_of
from random_models import random_qwen2

REWARD = '''"""A reward that differs within each group, whatever the completion."""
import zlib


def spread(completions, **_):
    return [zlib.crc32(repr((i, c)).encode()) % 7 / 7 for i, c in enumerate(completions)]
'''
SMALL = [
    "checks.preflight=false",
    "evaluation.enabled=false",
    "run.report=false",
    "run.report_to=none",
    "sampling.engine=transformers",
]
# name -> (size, script, overrides)
CASES: dict[str, tuple[str, str, list[str]]] = {
    "nano grpo": ("nano", "grpo", []),
    "nano grpo, wide": (
        "nano",
        "grpo",
        [
            "rollout.prompts_per_step=32",
            "rollout.microbatch_tokens=24000",
            "sampling.max_tokens=192",
            "sampling.min_tokens=192",
        ],
    ),
    "nano sft": ("nano", "sft", []),
    "20M grpo": (
        "20M",
        "grpo",
        ["rollout.prompts_per_step=4", "sampling.max_tokens=256", "rollout.microbatch_tokens=4096"],
    ),
    "20M grpo, beta": (
        "20M",
        "grpo",
        [
            *("rollout.prompts_per_step=4", "sampling.max_tokens=128", "rollout.microbatch_tokens=2048"),
            *("trainer.beta=0.1", "trainer.gradient_checkpointing=true"),
        ],
    ),
    "20M sft": ("20M", "sft", ["batch.size=24", "batch.microbatch_tokens=4096"]),
    "135M grpo": (
        "135M",
        "grpo",
        [
            *("rollout.prompts_per_step=2", "rollout.group_size=4", "sampling.max_tokens=192"),
            "rollout.microbatch_tokens=1024",
        ],
    ),
    "135M sft": ("135M", "sft", ["batch.size=8", "batch.microbatch_tokens=2048"]),
}


def model_of(size: str, folder: Path) -> str:
    """A random Qwen2 of that size with nano's tokenizer, or nano itself."""
    if size == "nano":
        return size
    from transformers import AutoTokenizer

    from trlmath.data.nano import MODEL_DIR

    where = folder / size
    if not where.exists():
        random_qwen2(size).save_pretrained(where)
        AutoTokenizer.from_pretrained(MODEL_DIR).save_pretrained(where)
    return str(where)


def arguments(name: str, folder: Path, steps: int) -> tuple[str, list[str]]:
    """(script, overrides) of a case."""
    size, script, changes = CASES[name]
    reward = folder / "spread.py"
    reward.write_text(REWARD)
    own = [f"model.path={model_of(size, folder)}", f"trainer.max_steps={steps}", *SMALL, *changes]
    if script == "grpo":
        own += [f"rewards=[{reward}:spread]", "sampling.stop=[]", "rollout.clip=true"]
    return script, own


def estimated(script: str, overrides: list[str]) -> tuple[float, str]:
    """What `trlmath plan` says: (peak in MiB, phase of the peak)."""
    command = [sys.executable, "-m", "trlmath", "plan", f"nano/{script}", "--json", *overrides]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment(), check=False)
    if done.returncode not in (0, 1) or not done.stdout:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    told = json.loads(done.stdout)
    return told["peak_bytes"] / 2**20, told["peak_phase"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = list(dict.fromkeys(size for size, *_ in CASES.values()))
    parser.add_argument("--sizes", nargs="+", choices=sizes, default=sizes)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="folder for models and runs; default: a temporary one")
    options = parser.parse_args()
    print("| run | estimated MiB | measured MiB | off | peak in |")
    print("|---|---:|---:|---:|---|")
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="bench-plan-") as name:
        folder = options.keep or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for case in options.cases:
            if CASES[case][0] not in options.sizes:
                continue
            script, own = arguments(case, folder, options.steps)
            where = folder / f"{case.replace(' ', '-').replace(',', '')}-{time.time_ns()}"
            peak = peak_of(script, [*own, f"run.dir={where}"], where.with_suffix(".log"))
            told, phase = estimated(script, own)
            off = told / peak - 1
            worst = max(worst, abs(off))
            print(f"| {case} | {told:,.0f} | {peak:,.0f} | {off:+.1%} | {phase} |", flush=True)
    print(f"plan off by at most {worst:.1%}")


if __name__ == "__main__":
    main()
