"""A real vLLM server: given weights, found stale, stopped, killed, restarted."""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
import time
from contextlib import ExitStack

import pytest
import torch
from tiny import save_tiny_model

from trlmath.errors import EngineError
from trlmath.recipe import parse_recipe
from trlmath.sampling.server_engine import ServerSampler
from trlmath.sampling.server_process import ServerProcess
from trlmath.sampling.server_weights import FilesTransport, ServerWeights
from trlmath.sampling.settings import SamplingSettings
from trlmath.sampling.transformers_engine import TransformersSampler
from trlmath.sampling.weight_files import WeightFiles
from trlmath.training.weights import WeightBridge

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM here"),
]

PROMPTS = [[5, 6, 7], [40, 41], [9] * 20]
PROBE = ([5, 6, 7, 8], [9, 10, 11, 12, 13])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def process(folder, tmp_path_factory):
    server = ServerProcess(str(folder), 256, "float32", log=tmp_path_factory.mktemp("log") / "server.log")
    server.wait(280)
    yield server
    server.stop()


@pytest.fixture
def sampler(process):
    with ExitStack() as held:
        sampler = ServerSampler(process.url, 256, timeout=60)
        files = WeightFiles(dtype=torch.float32)
        held.callback(files.close)
        sampler.take_weights_from(ServerWeights(FilesTransport(sampler.connections, files)))
        yield sampler


@pytest.fixture
def policy(folder):
    """A reference engine around a model whose weights differ from the served ones."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return TransformersSampler(model, tokenizer, [tokenizer.eos_token_id])


class Walk:
    """Hands out the model's parameters as the trainer's bridge does; `skip` leaves names out."""

    def __init__(self, model, skip=()):
        self.model, self.skip = model, skip

    def walk(self):
        return ((n, p) for n, p in self.model.named_parameters() if not any(s in n for s in self.skip))


def bridge(sampler, policy, skip=()):
    made = WeightBridge.__new__(WeightBridge)
    made.sampler, made.reference, made.probe, made.policy = sampler, policy, PROBE, "stop"
    made.difference, made._dtype, made._walk = None, "float32", Walk(policy.model, skip)
    made.took = lambda started: None
    return made


def test_weights_arrive_and_rollouts_come_from_them(sampler, policy):
    made = bridge(sampler, policy)
    made.sync_weights()
    assert made.difference < 1e-4
    groups = sampler.generate(PROMPTS, SamplingSettings(temperature=0.7, max_tokens=12, seed=1), n=2)
    assert [g.prompt_ids for g in groups] == [tuple(p) for p in PROMPTS]
    rollout = groups[0].rollouts[0]
    # at temperature 0.7 too: of the distribution drawn from
    logits = policy.model(torch.tensor([[*PROMPTS[0], *rollout.token_ids]])).logits[0] / 0.7
    rows = logits.log_softmax(-1)[len(PROMPTS[0]) - 1 : -1]
    theirs = rows[range(len(rollout.token_ids)), list(rollout.token_ids)]
    torch.testing.assert_close(torch.tensor(rollout.logprobs), theirs, atol=1e-3, rtol=0)


def test_half_loaded_weights_stop_the_run(sampler, policy):
    bridge(sampler, policy).sync_weights()
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.mul_(1.5)
    with pytest.raises(EngineError, match="does not generate from the trainer's weights"):
        bridge(sampler, policy, skip=("mlp", "layernorm")).sync_weights()


def test_a_load_that_never_happened_stops_the_run(sampler, policy):
    for connection in sampler.connections:
        real = connection.rpc

        def lying(method, timeout=None, _real=real, **arguments):
            if method == "trlmath_load_weights":
                return _real("trlmath_set_version", timeout, version=arguments["version"])
            return _real(method, timeout, **arguments)

        connection.rpc = lying
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.mul_(2.0)
    with pytest.raises(EngineError, match="does not generate from the trainer's weights"):
        bridge(sampler, policy).sync_weights()


def test_another_runs_weights_are_noticed_and_replaced(sampler, policy):
    bridge(sampler, policy).sync_weights()
    sampler.connections[0].rpc("trlmath_set_version", version="77")
    sampler.generate(PROMPTS, SamplingSettings(max_tokens=2))
    assert sampler._weights.renewed == 1


def test_a_stopped_server_has_a_deadline_and_can_be_used_again(process, sampler):
    sampler.connections[0].timeout = 3
    os.killpg(process.process.pid, signal.SIGSTOP)
    try:
        started = time.monotonic()
        with pytest.raises(EngineError, match="took longer than 3 s"):
            sampler.generate(PROMPTS, SamplingSettings(max_tokens=4))
        assert time.monotonic() - started < 60
    finally:
        os.killpg(process.process.pid, signal.SIGCONT)
    sampler.connections[0].timeout = 60
    assert len(sampler.generate(PROMPTS, SamplingSettings(max_tokens=4))) == 3


def test_a_bad_option_is_told_in_the_servers_own_words(folder, tmp_path):
    broken = ServerProcess(
        str(folder), 256, "float32", options={"max_num_seqs": "many"}, log=tmp_path / "log"
    )
    with pytest.raises(EngineError, match="ended with status .*before it was ready(.|\n)*max-num-seqs"):
        broken.wait(200)


def generate_for(sampler, seconds):
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        sampler.generate(PROMPTS, SamplingSettings(max_tokens=40, min_tokens=40), n=16)


def test_a_recipe_without_a_url_starts_and_stops_its_own(folder, tmp_path):
    from trlmath.sampling.serving import open_server

    recipe = parse_recipe({"model": {"path": str(folder)}, "sampling": {"mode": "server"}})
    sampler = open_server(recipe, str(folder), 64, "float32", log=tmp_path / "server.log", train=True)
    url = sampler.url
    root = sampler._weights.transport.files.root
    assert len(sampler.generate(PROMPTS, SamplingSettings(max_tokens=2))) == 3

    # killed in the middle of a generation
    import subprocess

    pid = int(subprocess.check_output(["pgrep", "-f", f"port {url.rsplit(':', 1)[1]} "]).split()[0])
    killer = threading.Timer(0.5, os.killpg, (pid, signal.SIGKILL))
    killer.start()
    started = time.monotonic()
    with pytest.raises(EngineError, match="no vLLM server answers at"):
        generate_for(sampler, seconds=60)
    assert time.monotonic() - started < 60
    sampler.close()
    assert not root.exists()
