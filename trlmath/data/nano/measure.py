"""Score a nano model on held-out problems: ``python -m trlmath.data.nano.measure [--model DIR]``.

Plain transformers and exact rational comparison; an independent check on the base, not the evaluation
of the package (that is ``trlmath evaluate``).
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path
from typing import Any

from trlmath.data.nano import MODEL_DIR, NanoDataset
from trlmath.data.nano.corpus import PREAMBLE

STOP = "</answer>"
NUMBER = r"-?\s?(?:\\frac\{\d+\}\{\d+\}|\d+\.\d+|\d+(?:/\d+)?)"
FORMAT = re.compile(
    r"(?:(?!</?think>|</?answer>).)*</think>\s+<answer>(?P<answer>(?:(?!</?think>|</?answer>).)*)</answer>",
    re.S,
)


def value(text: str) -> Fraction | None:
    """Read the last number of a text exactly; None when there is none."""
    found = re.findall(NUMBER, text)
    if not found:
        return None
    last = re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", found[-1].replace(" ", ""))
    return None if re.search(r"/0+$", last) else Fraction(last)


def judge(completion: str, gold: str) -> tuple[bool, bool]:
    """Return (format, answer): format is the r1_zero one, answer right whatever the format."""
    match = FORMAT.fullmatch(completion.strip())
    answer = value(match["answer"] if match else completion)
    return match is not None, answer is not None and answer == Fraction(gold)


def complete(
    model: Any, tokenizer: Any, questions: list[str], temperature: float, max_new_tokens: int
) -> list[str]:
    """Complete the r1_zero prompt of each question, cut after ``</answer>``; temperature 0 is greedy."""
    import torch

    out: list[str] = []
    for start in range(0, len(questions), 128):
        prompts = [f"{PREAMBLE} {q}\nAssistant: <think>" for q in questions[start : start + 128]]
        batch = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")
        sampling = (
            {"do_sample": True, "temperature": temperature, "top_k": 0}
            if temperature
            else {"do_sample": False}
        )
        with torch.inference_mode():
            ids = model.generate(**batch, max_new_tokens=max_new_tokens, **sampling)
        for text in tokenizer.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True):
            cut = text.find(STOP)
            out.append(text if cut < 0 else text[: cut + len(STOP)])
    return out


def interval(hits: int, total: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a rate."""
    z, rate = 1.96, hits / total
    middle = (rate + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return middle - half, middle + half


def measure(
    folder: Path, limit: int, temperature: float, n: int = 1, seed: int = 0, max_new_tokens: int = 96
) -> dict[str, Any]:
    """Sample `n` completions of `limit` held-out problems and return rates, lengths and spreads."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=False).eval()
    problems = NanoDataset(eval_size=limit).load("eval")
    texts = complete(
        model, tokenizer, [p.question for p in problems for _ in range(n)], temperature, max_new_tokens
    )
    totals: Counter[str] = Counter()
    families: dict[str, Counter[str]] = defaultdict(Counter)
    solved: Counter[int] = Counter()
    for index, problem in enumerate(problems):
        rewards = 0
        for text in texts[index * n : (index + 1) * n]:
            in_format, right = judge(text, problem.answer or "")
            parts = {"n": 1, "format": in_format, "answer": right, "both": in_format and right}
            totals.update(parts)
            families[f"{problem.metadata['family']} {problem.metadata['level']}"].update(parts)
            rewards += in_format and right
        solved[rewards] += 1
    lengths = [len(tokenizer(t)["input_ids"]) for t in texts]
    return {
        "temperature": temperature,
        "completions": totals["n"],
        "rates": {k: round(totals[k] / totals["n"], 4) for k in ("format", "answer", "both")},
        "intervals": {
            k: [round(x, 3) for x in interval(totals[k], totals["n"])] for k in ("format", "answer", "both")
        },
        "answer_given_format": round(totals["both"] / max(1, totals["format"]), 3),
        "mean_tokens": round(sum(lengths) / len(lengths), 1),
        "at_limit": sum(length >= max_new_tokens for length in lengths),
        "problems_by_rewarded": dict(sorted(solved.items())),
        "families": {
            k: {p: round(c[p] / c["n"], 2) for p in ("format", "answer", "both")}
            for k, c in sorted(families.items())
        },
    }


def main() -> None:
    """Read the command line and print one JSON object for each temperature."""
    parser = argparse.ArgumentParser(
        prog="python -m trlmath.data.nano.measure", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--model", type=Path, default=MODEL_DIR, help="model folder (default: the embedded base)"
    )
    parser.add_argument("--limit", type=int, default=256, help="held-out problems")
    parser.add_argument("-n", type=int, default=1, help="completions of each problem")
    parser.add_argument("--temperature", type=float, nargs="+", default=[1.0, 0.0], help="0 is greedy")
    args = parser.parse_args()
    for temperature in args.temperature:
        print(json.dumps(measure(args.model, args.limit, temperature, args.n if temperature else 1)))


if __name__ == "__main__":
    main()
