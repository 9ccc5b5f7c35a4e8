"""`trlmath serve` as a newcomer meets it: ready, used, stopped by Ctrl-C; mistakes are told at once."""

from __future__ import annotations

import importlib.util
import signal
import socket
import subprocess
import sys
import time

import psutil
import pytest
from launching import ROOT, environment
from servers import bridge, changed
from tiny import save_tiny_model

from trlmath.errors import EngineError
from trlmath.sampling.server_process import free_port
from trlmath.sampling.serving import open_server
from trlmath.sampling.settings import SamplingSettings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM here"),
]


def serve(*arguments, **kwargs):
    # under a shell in the background Ctrl-C would be ignored, and so by what it starts
    default = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    return subprocess.Popen(
        [sys.executable, "-m", "trlmath", "serve", *map(str, arguments)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **default,
        **kwargs,
    )


def ended(process, seconds):
    """Its output and status; kills it when it goes on."""
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return output, process.returncode


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("served"), tie_word_embeddings=False)


@pytest.mark.timeout(400)
def test_a_server_is_ready_trained_with_and_stopped(folder, tmp_path):
    """Its model keeps its output layer apart from its embeddings: both travel."""
    port = free_port()
    process = serve("nano/grpo", f"model.path={folder}", "--port", port, "--context", 256)
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if line.startswith("ready at"):
                break
        url = f"http://127.0.0.1:{port}"
        assert said[-1].strip() == f"ready at {url}: sampling.mode=server sampling.url={url}", "".join(said)

        from trlmath.recipe import parse_recipe

        recipe = parse_recipe({"model": {"path": str(folder)}, "sampling": {"mode": "server", "url": url}})
        sampler, policy = open_server(recipe, str(folder), 256, "float32", train=True), changed(folder)
        made = bridge(sampler, policy)
        made.sync_weights()
        assert made.difference < 1e-5
        assert len(sampler.generate([[5, 6]], SamplingSettings(max_tokens=4), n=3)[0].rollouts) == 3
        policy.model.lm_head.weight.data.mul_(1.5)
        with pytest.raises(EngineError, match=r"only a part of the run's weights: .*\(lm_head\.weight\)"):
            bridge(sampler, policy, skip=("lm_head",)).sync_weights()
        sampler.close()

        # another one on its port is refused before it loads anything
        again = serve("nano/grpo", "--port", port)
        output, status = ended(again, 60)
        assert status == 1
        assert f"cannot listen on 127.0.0.1 port {port}" in output
        assert "Traceback" not in output

        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        output, status = ended(process, 60)
        assert (status, output.split()[-1]) == (0, "stopped")
        assert time.monotonic() - started < 30
        gone, left = psutil.wait_procs(children, timeout=5)
        assert not left
    finally:
        process.kill()


def test_mistakes_are_told_before_a_server_starts():
    for arguments, told in (
        (("nano/grpo", "sampling.engine_options.max_num_seq=8"), "Did you mean 'max_num_seqs'?"),
        (("nano/grpo", "--prot", "8000"), "--port"),
        (("nano/grpo", "--host", "203.0.113.7", "--port", "8000"), "must be an address of this machine"),
    ):
        output, status = ended(serve(*arguments), 120)
        assert status in (1, 2), output
        assert told in output
        assert "Traceback" not in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_one_that_is_still_starting_can_be_stopped_and_leaves_nothing(number):
    process = serve("nano/grpo", "--port", 0)
    deadline = time.monotonic() + 120
    while not (children := psutil.Process(process.pid).children(recursive=True)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(number)
    output, status = ended(process, 60)
    assert status == (0 if number == signal.SIGINT else -number), output
    assert "Traceback" not in output
    _, left = psutil.wait_procs(children, timeout=30)
    assert not left


def test_two_servers_started_at_once_take_different_ports():
    ports = {free_port() for _ in range(20)}
    assert len(ports) > 1
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen(1)
        assert free_port() != holder.getsockname()[1]
