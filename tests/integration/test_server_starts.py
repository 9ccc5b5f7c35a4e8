"""Real vLLM servers that a test starts for itself: killed, trapped, refused.

Each test starts one, where tests/integration/test_server.py shares one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import time

import psutil
import pytest
import servers
from servers import STALE, AtPhase, bridge, generate_for, line_of
from tiny import ODD, save_tiny_model

from trlmath.errors import EngineError
from trlmath.sampling import server_process
from trlmath.sampling.server_process import ServerProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM here"),
]

PHASES = {"check": 4, "generate": 5, "load": 2, "score": 2}
PROMPTS = [[5, 6, 7], [40, 41], [9] * 20]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("served"), **ODD)


@pytest.mark.parametrize("phase", ["load"])  # a start of vLLM each: any of PHASES may stand here
def test_a_server_of_the_runs_own_that_is_killed_ends_the_run(folder, tmp_path, monkeypatch, phase):
    before = {child.pid for child in psutil.Process().children()}

    def kill():
        (pid,) = {c.pid for c in psutil.Process().children() if "--port " in line_of(c)} - before
        os.killpg(pid, signal.SIGKILL)

    at = AtPhase(monkeypatch, phase, kill, after=PHASES[phase])
    with pytest.raises(EngineError, match="This run started it, and it ended with status -9.*server.log"):
        servers.train(folder, tmp_path / "run", mode="server")
    assert time.monotonic() - at.struck_at < 30
    told = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert (told["status"], told["step"]) == ("failed", 1)


def test_a_server_that_dies_while_it_starts(folder, tmp_path):
    def start(number, seconds):
        server = ServerProcess(str(folder), 256, "float32", log=tmp_path / "log")
        time.sleep(1)
        os.killpg(server.process.pid, number)
        with pytest.raises(EngineError) as told:
            server.wait(seconds)
        assert server.process.poll() is not None, "nothing is left of it"
        return str(told.value)

    assert "ended with status -9 before it was ready" in start(signal.SIGKILL, 60)
    assert "did not answer at http://127.0.0.1" in start(signal.SIGSTOP, 1)


def test_a_bad_option_is_told_in_the_servers_own_words(folder, tmp_path):
    broken = ServerProcess(
        str(folder), 256, "float32", options={"max_num_seqs": "many"}, log=tmp_path / "log"
    )
    with pytest.raises(EngineError, match="ended with status .*before it was ready(.|\n)*max-num-seqs"):
        broken.wait(200)


def test_a_server_with_packed_copies_is_found_stale_and_one_without_engine_answers_500(
    folder, policy, open_sampler, tmp_path, monkeypatch
):
    """The trap of vLLM's float32 CPU layers, as it is without our worker; then its engine alone dies."""
    plain = server_process.server_command

    def trapped(*arguments):
        return [
            a.replace("trlmath.sampling.vllm_worker.WorkerExtension", "trapped_worker.TrappedWorker")
            for a in plain(*arguments)
        ]

    monkeypatch.setattr(server_process, "server_command", trapped)
    monkeypatch.setenv("PYTHONPATH", os.path.dirname(servers.__file__))
    server = ServerProcess(str(folder), 256, "float32", log=tmp_path / "server.log")
    try:
        server.wait(280)
        sampler = open_sampler(server.url)
        with pytest.raises(EngineError, match=STALE):
            bridge(sampler, policy).sync_weights()
        family = psutil.Process(server.process.pid).children(recursive=True)
        engine = next(c for c in family if "EngineCore" in line_of(c))
        # not while it is asked its version: vLLM then answers nothing at all
        at = AtPhase(monkeypatch, "generate", engine.kill)
        with pytest.raises(EngineError, match="answered 500: .*EngineCore|no vLLM server answers"):
            generate_for(sampler, PROMPTS, seconds=60)
        assert time.monotonic() - at.struck_at < 60
    finally:
        server.stop()
