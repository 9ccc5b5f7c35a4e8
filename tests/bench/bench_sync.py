"""Seconds until new weights are in an engine: python tests/bench/bench_sync.py [MODEL_DIR] [--random-gb 1].

For `files`, a vLLM server of its own is given the model's weights through /dev/shm (written by the trainer's
side, read by the server's worker), for `colocated` they are loaded into a vLLM in this process. The median of
several loads, and seconds a GB (10^9 bytes, float32). Ends with the ratio, as in `colocated 3.1x files`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="nano")
    parser.add_argument(
        "--random-gb", type=float, help="a random Qwen2 of this size instead, written to a scratch folder"
    )
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="bench-sync-")))
        measure(arguments, folder, held)


def measure(arguments: argparse.Namespace, folder: Path, held: ExitStack) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from trlmath.data.nano import MODEL_DIR
    from trlmath.sampling.server_engine import ServerSampler
    from trlmath.sampling.server_process import ServerProcess
    from trlmath.sampling.server_weights import FilesTransport, ServerWeights
    from trlmath.sampling.vllm_engine import VllmSampler
    from trlmath.sampling.weight_files import WeightFiles

    path = str(MODEL_DIR) if arguments.model == "nano" else arguments.model
    if arguments.random_gb:
        path = random_model(folder / "random", arguments.random_gb)
    model = AutoModelForCausalLM.from_pretrained(path, dtype="float32").eval()
    size = sum(p.numel() * p.element_size() for p in model.parameters()) / 1e9
    print(f"{arguments.model if not arguments.random_gb else 'random'}: {size:.3f} GB in float32")

    def timed(name: str, sampler) -> float:
        seconds = []
        for _ in range(arguments.repeats + 1):
            started = time.perf_counter()
            sampler.load_weights((n, p.detach()) for n, p in model.named_parameters())
            seconds.append(time.perf_counter() - started)
        median = statistics.median(seconds[1:])  # the first one makes pages that the others reuse
        told = ", ".join(f"{s:.2f}" for s in seconds)
        print(f"{name:>10} {median:8.3f} s {median / size:8.2f} s/GB   (each: {told})", flush=True)
        return median

    process = ServerProcess(path, 256, "float32", log=folder / "server.log")
    held.callback(process.stop)
    process.wait(600)
    server = ServerSampler(process.url, 256)
    files = WeightFiles(dtype=torch.float32)
    held.callback(files.close)
    server.take_weights_from(ServerWeights(FilesTransport(server.connections, files)))
    through = timed("files", server)
    process.stop()
    colocated = VllmSampler(path, dtype="float32", context=256, max_seqs=8)
    held.callback(colocated.close)
    within = timed("colocated", colocated)
    print(f"colocated {through / within:.1f}x files")


def random_model(folder: Path, gigabytes: float) -> str:
    """Write a random Qwen2 of about so many GB in float32, with the nano model's tokenizer."""
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    from trlmath.data.nano import MODEL_DIR

    tokenizer = AutoTokenizer.from_pretrained(str(MODEL_DIR))
    layers = max(1, round(gigabytes * 1e9 / 4 / 10.5e6))  # 10.5 M parameters a layer of this width
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=1024,
        intermediate_size=2048,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=16,
        max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


if __name__ == "__main__":
    main()
