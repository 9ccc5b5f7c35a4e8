"""Tokens per second of each engine: python tests/bench/bench_engines.py [MODEL_DIR] [--tokens 64].

Both engines generate the same number of completions for the same prompts, in turn, three times; the
median is printed. Starting an engine is not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "2")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="nano")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--concurrent", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--threads", type=int, default=int(os.environ["OMP_NUM_THREADS"]))
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trlmath.data.load import load_problems
    from trlmath.data.nano import MODEL_DIR
    from trlmath.data.prompts import load_prompt
    from trlmath.sampling import SamplingSettings
    from trlmath.sampling.transformers_engine import TransformersSampler
    from trlmath.sampling.vllm_engine import VllmSampler

    torch.set_num_threads(arguments.threads)
    path = str(MODEL_DIR) if arguments.model == "nano" else arguments.model
    tokenizer = AutoTokenizer.from_pretrained(path)
    model = AutoModelForCausalLM.from_pretrained(path, dtype="float32").eval()
    prompt = load_prompt("r1_zero")
    texts = [prompt.render(p.question) for p in load_problems("nano", "train")[:32]]
    prompts = tokenizer(texts)["input_ids"]
    context = max(map(len, prompts)) + arguments.tokens
    engines = {
        "transformers": TransformersSampler(model, tokenizer),
        "vllm": VllmSampler(path, dtype="float32", context=context, max_seqs=256),
    }
    settings = SamplingSettings(min_tokens=arguments.tokens, max_tokens=arguments.tokens)
    print(
        f"{arguments.model}, {model.num_parameters() / 1e6:.1f} M parameters, "
        f"{torch.get_num_threads()} threads"
    )
    print(f"{'completions':>12} {'transformers':>14} {'vllm':>10}  tokens/s")
    ratio = 1.0
    for total in arguments.concurrent:
        chosen, n = prompts[: max(1, total // 8)], min(8, total)
        seconds: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(arguments.repeats):
            for name, engine in engines.items():
                started = time.perf_counter()
                engine.generate(chosen, settings, n=n)
                seconds[name].append(time.perf_counter() - started)
        speed = {name: total * arguments.tokens / statistics.median(s) for name, s in seconds.items()}
        print(f"{total:>12} {speed['transformers']:>14,.0f} {speed['vllm']:>10,.0f}", flush=True)
        ratio = speed["vllm"] / speed["transformers"]
    engines["vllm"].close()
    print(f"vllm {ratio:.2f}x transformers at {arguments.concurrent[-1]} completions")


if __name__ == "__main__":
    main()
