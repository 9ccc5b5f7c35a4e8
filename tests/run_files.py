"""Writes the directory of a run that never was: for tests of what reads run directories."""

from __future__ import annotations

import json
import random

from trlmath.evaluation.report import summarise
from trlmath.evaluation.sample import Sample, problem_key
from trlmath.evaluation.store import append_samples
from trlmath.recipe.schema import Recipe
from trlmath.runs.rollouts import write_rollouts
from trlmath.types import Grade, Group, Problem, Rollout

HOSTILE = (
    "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
    '"><svg onload=window.pwned=3> {{ 7 * 7 }} {% raw %} <!-- <a href="javascript:alert(1)">x</a>'
    "\x1b[31mred\x1b[0m \u202egnp.exe\u202c \ud800 \u2028 </textarea></template>"
)
CATEGORIES = ("both", "format_only", "answer_only", "no_think_end")


def make_run(folder, steps=12, seed=0, text="Adding them. </think> <answer> 4 </answer>", **changes):
    """Write a run of `steps` steps to `folder` and return it.

    Args:
        text: of every completion.
        changes: of the recipe, e.g. ``trainer={"max_steps": 3}``; and ``status``, ``problems``, ``size``.
    """
    draw = random.Random(seed)
    status = changes.pop("status", "finished")
    problems, size = changes.pop("problems", 4), changes.pop("size", 4)
    hostile = changes.pop("hostile", "")
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(Recipe(**changes).to_yaml())
    rows = [evaluation(folder, "before", 0, 0.3, draw, text)]
    for step in range(1, steps + 1):
        share = min(0.9, 0.3 + step / 40 + draw.random() / 10)
        row = {"step": step, "train/loss": draw.random(), "train/reward": share, "train/both": share}
        row |= {"train/answer": share + 0.05, "train/format": share + 0.1, "train/entropy": 1 - share}
        row |= {f"train/category/{c}{hostile}": 0.25 for c in CATEGORIES}
        row |= {"train/length/right": 40 + step, "train/length/wrong": 60 + step, "train/grad_norm": None}
        row |= {"train/num_tokens": 1000 * step}
        row |= {"time/generate": 1.0, "time/update": 2.0, "time/step": 3.0, "memory/host": 1.5}
        rows.append(row)
        groups, advantages = [], []
        for number in range(problems):
            problem = Problem(f"What is {number} + {step}?{hostile}", str(number + step))
            rollouts = []
            for i in range(size):
                parts = {"format": 1.0, "answer": float(i % 2)}
                grade = Grade(float(i % 2), parts, CATEGORIES[i % 4] + hostile, f"because {hostile}")
                rollouts.append(Rollout(f"{text} {hostile}", (1,) * 20, finish_reason="stop", grade=grade))
            groups.append(Group("prompt", (1, 2), tuple(rollouts), problem))
            advantages.append([0.5] * size)
        write_rollouts(folder, groups, advantages, step - 1, step)
    if status == "finished":
        rows.append(evaluation(folder, "after", steps, 0.8, draw, text))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    drop = {"moment": "group", "filter": "zero_spread", "reason": f"no spread{hostile}", "index": 0}
    (folder / "filters.jsonl").write_text(
        json.dumps({"step": 1, **drop, "question": f"1 + 1{hostile}"}) + "\n"
    )
    manifest = {"started": f"2026-01-0{1 + seed}T00:00:00+0000", "status": status, "python": "3.11.7"}
    manifest |= {"machine": "Linux x86_64", "packages": {"trl": "1.16.0", "torch": f"2.13.{seed}"}}
    manifest |= {"command": ["recipes/grpo.py", f"run.seed={seed}"], "processes": 1, "recipe": "nano-grpo"}
    manifest |= {"rows": {"read": 10, "train": 9}, "summary": {"seconds": 61.0, "steps": steps}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def evaluation(folder, when, step, share, draw, text):
    """Write one evaluation of 50 problems and return its line of metrics."""
    samples = []
    for number in range(50):
        right = float(draw.random() < share)
        question = f"What is {number} + 2?"
        samples.append(
            Sample(
                setting=f"{when}/sampled",
                problem=number,
                sample=0,
                key=problem_key(question, str(number + 2)),
                question=question,
                gold=str(number + 2),
                prompt="p",
                completion=text,
                tokens=12,
                finish_reason="stop",
                reward=right,
                parts={"both": right, "format": 1.0, "answer": right},
                category="both" if right else "format_only",
            )  # fmt: skip
        )
    append_samples(folder / "evaluation" / "samples.jsonl", samples)
    report = summarise(f"{when}/sampled", samples)
    with (folder / "evaluation" / "reports.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, **report.to_dict()}) + "\n")
    return {"step": step, "eval/both": report.rates["both"].value}
