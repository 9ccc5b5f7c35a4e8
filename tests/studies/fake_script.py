"""Stands for a recipe script in a study's launcher: writes a finished run without a model.

Its first argument is the real script, the others its arguments. `FAKE_FAIL` names runs that fail,
`FAKE_HANG` runs that never end by themselves; each start is a line of the file `FAKE_STARTS`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from trlmath.evaluation.report import summarise
from trlmath.evaluation.sample import Sample
from trlmath.evaluation.store import append_samples
from trlmath.recipe import load_recipe


def samples(setting, right):
    """Ten problems, of which the first `right` are solved."""
    blank = Sample(
        setting=setting,
        problem=0,
        sample=0,
        key="",
        question="",
        gold="1",
        prompt="",
        completion="",
        tokens=5,
        finish_reason="stop",
        reward=None,
        parts={},
        category="correct",
        logprob=-1.0,
    )
    return [
        replace(
            blank,
            problem=i,
            key=f"k{i}",
            question=f"q{i}",
            reward=float(i < right),
            parts={name: float(i < right) for name in ("format", "answer", "both")},
        )
        for i in range(10)
    ]


def main(argv):
    """Run and return the exit status."""
    script, _, config, *overrides = argv
    recipe = load_recipe(config, overrides)
    directory = Path(recipe.run.dir)
    name = directory.name
    with open(os.environ["FAKE_STARTS"], "a") as file:
        file.write(f"{name} {os.environ.get('OMP_NUM_THREADS')}\n")
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "recipe.yaml").write_text(recipe.to_yaml())
    manifest = directory / "manifest.json"
    manifest.write_text(json.dumps({"status": "running"}))
    if name in os.environ.get("FAKE_FAIL", "").split():
        print("error: this run was told to fail")
        manifest.write_text(json.dumps({"status": "failed"}))
        return 1
    if name in os.environ.get("FAKE_HANG", "").split():
        try:
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            print("hanging", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            manifest.write_text(json.dumps({"status": "interrupted"}))
            return 130
    right = 2 + round(10 * recipe.sampling.top_p) % 8 + recipe.run.seed
    rows = samples("sampled", right)
    report = summarise("sampled", rows).to_dict()
    if Path(script).stem == "evaluate":
        append_samples(directory / "samples.jsonl", rows)
        (directory / "report.json").write_text(json.dumps({"settings": {"sampled": report}}))
    else:
        before = samples("before/sampled", 1)
        rows = [replace(row, setting="after/sampled") for row in rows]
        append_samples(directory / "evaluation" / "samples.jsonl", [*before, *rows])
        told = [summarise("before/sampled", before).to_dict(), {**report, "name": "after/sampled"}]
        lines = "".join(json.dumps({"step": i, **r}) + "\n" for i, r in enumerate(told))
        (directory / "evaluation" / "reports.jsonl").write_text(lines)
        final = directory / "checkpoints" / "final"
        final.mkdir(parents=True)
        (final / "model.safetensors").write_bytes(os.urandom(64))
    manifest.write_text(json.dumps({"status": "finished", "summary": {"seconds": 1.0}}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
