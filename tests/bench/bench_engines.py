"""Tokens per second of each engine: python tests/bench/bench_engines.py [MODEL_DIR] [--tokens 64] [--server].

The engines generate the same number of completions for the same prompts, in turn, several times; the median
is printed, in tokens a second (and, for the demo's own generation, prompts a second: `--demo`, completions
that end where they end). Starting an engine is not counted; what it took is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "2")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="nano")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--concurrent", type=int, nargs="+", default=[8, 64, 256])
    parser.add_argument("--threads", type=int, default=int(os.environ["OMP_NUM_THREADS"]))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--server", action="store_true", help="a vLLM server of its own, too")
    parser.add_argument(
        "--demo", action="store_true", help="the demo's rollouts: 16 prompts x 8, its stop string"
    )
    arguments = parser.parse_args()

    import torch
    from transformers import AutoTokenizer

    from trlmath.data.load import load_problems
    from trlmath.data.nano import MODEL_DIR
    from trlmath.data.prompts import load_prompt
    from trlmath.sampling import SamplingSettings

    torch.set_num_threads(arguments.threads)
    path = str(MODEL_DIR) if arguments.model == "nano" else arguments.model
    tokenizer = AutoTokenizer.from_pretrained(path)
    prompt = load_prompt("r1_zero")
    texts = [prompt.render(p.question) for p in load_problems("nano", "train")[:32]]
    prompts = tokenizer(texts)["input_ids"]
    settings = SamplingSettings(min_tokens=arguments.tokens, max_tokens=arguments.tokens)
    amounts = arguments.concurrent
    if arguments.demo:
        settings, amounts = SamplingSettings(min_tokens=4, max_tokens=96, stop=("</answer>",)), [128]
    context = max(map(len, prompts)) + settings.max_tokens
    with ExitStack() as held:
        engines = start(path, tokenizer, context, arguments, held)
        unit = "prompts/s" if arguments.demo else "tokens/s"
        print(f"{'completions':>12} " + " ".join(f"{name:>14}" for name in engines) + f"  {unit}")
        for total in amounts:
            chosen, n = prompts[: max(1, total // 8)], min(8, total)
            seconds: dict[str, list[float]] = {name: [] for name in engines}
            for _ in range(arguments.repeats):
                for name, engine in engines.items():
                    started = time.perf_counter()
                    engine.generate(chosen, settings, n=n)
                    seconds[name].append(time.perf_counter() - started)
            work = len(chosen) if arguments.demo else total * arguments.tokens
            speed = {name: work / statistics.median(s) for name, s in seconds.items()}
            print(f"{total:>12} " + " ".join(f"{s:>14,.1f}" for s in speed.values()), flush=True)
        print(f"vllm {speed['vllm'] / speed['transformers']:.2f}x transformers at {total} completions")


def start(path: str, tokenizer, context: int, arguments: argparse.Namespace, held: ExitStack) -> dict:
    """The engines, by name, each used once so that no first call is measured."""
    from transformers import AutoModelForCausalLM

    from trlmath.sampling import SamplingSettings
    from trlmath.sampling.server_engine import ServerSampler
    from trlmath.sampling.server_process import ServerProcess
    from trlmath.sampling.transformers_engine import TransformersSampler
    from trlmath.sampling.vllm_engine import VllmSampler

    def server() -> ServerSampler:
        log = Path(held.enter_context(tempfile.TemporaryDirectory())) / "server.log"
        process = ServerProcess(path, context, "float32", log=log)
        held.callback(process.stop)
        process.wait(600)
        return ServerSampler(process.url, context)

    model = AutoModelForCausalLM.from_pretrained(path, dtype="float32").eval()
    made = {
        "transformers": lambda: TransformersSampler(model, tokenizer),
        "vllm": lambda: VllmSampler(path, dtype="float32", context=context, max_seqs=256),
        **({"server": server} if arguments.server else {}),
    }
    print(f"{arguments.model}, {model.num_parameters() / 1e6:.1f} M parameters, {arguments.threads} threads")
    engines = {}
    for name, make in made.items():
        started = time.perf_counter()
        engines[name] = make()
        took = time.perf_counter() - started
        held.callback(engines[name].close)
        engines[name].generate([[1, 2, 3]], SamplingSettings(max_tokens=2))
        print(f"{name} started in {took:.0f} s", flush=True)
    return engines


if __name__ == "__main__":
    main()
