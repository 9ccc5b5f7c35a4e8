"""Share of greedy completions that change with the batch: python tests/bench/bench_order.py [MODEL_DIR].

Every engine and dtype completes the same problems twice, at temperature 0: in order in large batches, and
shuffled in small ones. What changes is the kernels' rounding, which depends on the shape of the batch.
"""

from __future__ import annotations

import argparse
import os
import random

os.environ.setdefault("OMP_NUM_THREADS", "1")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="nano")
    parser.add_argument("--problems", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--engines", nargs="+", default=["transformers", "vllm"])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    arguments = parser.parse_args()

    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trlmath.data.load import load_problems
    from trlmath.data.nano import MODEL_DIR
    from trlmath.data.prompts import load_prompt
    from trlmath.sampling import SamplingSettings
    from trlmath.sampling.transformers_engine import TransformersSampler
    from trlmath.sampling.vllm_engine import VllmSampler

    path = str(MODEL_DIR) if arguments.model == "nano" else arguments.model
    tokenizer = AutoTokenizer.from_pretrained(path, padding_side="left")
    prompt = load_prompt("r1_zero")
    texts = [prompt.render(p.question) for p in load_problems("nano", "eval")[: arguments.problems]]
    prompts = tokenizer(texts)["input_ids"]
    context = max(map(len, prompts)) + arguments.tokens
    settings = SamplingSettings(temperature=0, max_tokens=arguments.tokens, stop=("</answer>",))
    shuffled = list(range(len(prompts)))
    random.Random(0).shuffle(shuffled)
    print(f"{'engine':<14}{'dtype':<10}{'changed':>9}{'of':>6}")
    share = 0.0
    for dtype in arguments.dtypes:
        for engine in arguments.engines:
            if engine == "vllm":
                sampler = VllmSampler(path, dtype=dtype, context=context, max_seqs=64)
            else:
                model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype).eval()
                sampler = TransformersSampler(model, tokenizer)
            first = _complete(sampler, prompts, list(range(len(prompts))), 64, settings)
            second = _complete(sampler, prompts, shuffled, 7, settings)
            sampler.close()
            changed = sum(first[i] != second[i] for i in first)
            share = 100 * changed / len(first)
            print(f"{engine:<14}{dtype:<10}{changed:>9}{len(first):>6}", flush=True)
    print(f"changed {share:.1f} % in the last row")


def _complete(sampler, prompts, order, chunk, settings):
    found = {}
    for start in range(0, len(order), chunk):
        numbers = order[start : start + chunk]
        groups = sampler.generate([prompts[i] for i in numbers], settings)
        found |= {i: group.rollouts[0].token_ids for i, group in zip(numbers, groups, strict=True)}
    return found


if __name__ == "__main__":
    main()
