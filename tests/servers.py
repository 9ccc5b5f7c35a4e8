"""For tests of real vLLM servers: what stands between a run and one, and runs that use one.

``python tests/servers.py PORT TARGET`` passes connections on to TARGET: killing it is to its client what the
death of the server is, without another start of vLLM.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from trlmath.errors import EngineError

STALE = "does not generate from the trainer's weights"
PROBE = ([5, 6, 7, 8], [9, 10, 11, 12, 13])
SMALL = {
    "data": {"prompt": "question_only", "train_size": 64},
    "rewards": ["servers:letters"],
    "rollout": {"prompts_per_step": 4, "group_size": 4},
    "evaluation": {"enabled": False},
    "trainer": {"max_steps": 3, "learning_rate": 1e-2},
}


def letters(completions):
    """A reward with spread on random text: how many vowels it holds."""
    return [float(sum(text.count(c) for c in "aeiou")) for text in completions]


class Walk:
    """Hands out the model's parameters as the trainer's bridge does; `skip` leaves names out."""

    def __init__(self, model, skip=()):
        self.model, self.skip = model, skip

    def walk(self):
        return ((n, p) for n, p in self.model.named_parameters() if not any(s in n for s in self.skip))


def bridge(sampler, reference, skip=(), dtype="float32"):
    """A trainer's `WeightBridge` around the reference's model, without a trainer."""
    from types import SimpleNamespace

    from trlmath.training.weights import WeightBridge

    alone = SimpleNamespace(is_main_process=True, state=SimpleNamespace(deepspeed_plugin=None))
    made = WeightBridge(sampler, reference, reference.model, alone, dtype, PROBE)
    made._walk = Walk(reference.model, skip)
    return made


def changed(folder, seed=3):
    """The reference engine around the model in `folder`, its weights moved."""
    import torch
    from transformers import AutoModelForCausalLM

    from trlmath.sampling.models import read_model_files
    from trlmath.sampling.transformers_engine import TransformersSampler

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return TransformersSampler(model, read_model_files(str(folder)).tokenizer)


def train(folder, directory, url=None, lora=None, **sampling):
    """A GRPO run as recipes/grpo.py makes it, in this process; returns its `GrpoRun`."""
    from trlmath.recipe import parse_recipe
    from trlmath.training.grpo_run import GrpoRun

    server = {"mode": "server", "url": url} if url else {}
    recipe = parse_recipe(
        {
            **SMALL,
            "model": {"path": str(folder), "lora": lora},
            "sampling": {"max_tokens": 12, "min_tokens": 4, "stop": [], **server, **sampling},
            "run": {"dir": str(directory), "report": False, "checkpoint_every": 1},
        }
    )
    with GrpoRun(recipe) as run:
        run.train()
        run.finish()
    return run


class Proxy:
    """A process between a run and its server, which can be killed and started again in its place."""

    def __init__(self, target):
        from trlmath.sampling.server_process import free_port

        self.port, self._target = free_port(), target
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self):
        code = [sys.executable, str(Path(__file__)), str(self.port), str(self._target)]
        self.process = subprocess.Popen(code, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"

    def send(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def stop(self):
        self.send()


class AtPhase:
    """Calls `strike` when a run reaches a phase of a server's use, the `after`-th time; once.

    Phases: ``check`` (its version is asked), ``generate``, ``load``, ``score``. From then on the server has
    `seconds` to answer: a machine that is busy before is no failure.
    """

    def __init__(self, monkeypatch, phase, strike, after=1, seconds=None):
        from trlmath.sampling.server_http import Connection

        self.phase, self.strike, self.left, self.struck_at = phase, strike, after, None
        self.allowed = None  # seconds it had before
        asked, one_at_a_time = Connection._once, threading.Lock()

        def watched(connection, path, body, timeout):
            with one_at_a_time:
                if self.struck_at is None and phase_of(path, body or {}) == self.phase:
                    self.left -= 1
                    if self.left == 0:
                        self.struck_at = time.monotonic()
                        self.strike()
                        self.allowed = connection.timeout
            if self.struck_at is not None:
                timeout = min(timeout, seconds or timeout)
            return asked(connection, path, body, timeout)

        monkeypatch.setattr(Connection, "_once", watched)


def phase_of(path, body):
    """What a request to a server is for."""
    if path == "/collective_rpc":
        return {"trlmath_load_weights": "load", "trlmath_weights_version": "check"}.get(body["method"])
    if path == "/v1/completions":
        return "score" if "prompt_logprobs" in body else "generate"
    return None


def generate_for(sampler, prompts, seconds):
    """Draw again and again."""
    from trlmath.sampling.settings import SamplingSettings

    started = time.monotonic()
    while time.monotonic() - started < seconds:
        sampler.generate(prompts, SamplingSettings(max_tokens=40, min_tokens=40), n=16)


def line_of(process):
    """A process's command line, each word followed by a space."""
    return " ".join(process.cmdline()) + " "


@contextmanager
def raises_stale():
    """The engine is found to be stale in the block."""
    import pytest

    with pytest.raises(EngineError, match=STALE):
        yield


async def _pass_on(port: int, target: int) -> None:
    async def pump(reader, writer):
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def meet(reader, writer):
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", target)
        await asyncio.gather(pump(reader, there_writer), pump(there_reader, writer))

    server = await asyncio.start_server(meet, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_pass_on(int(sys.argv[1]), int(sys.argv[2])))
