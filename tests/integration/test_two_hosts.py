"""A run on two hosts with a vLLM server on one of them, and a host whose cable is pulled."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time

import hosts
import pytest
from launching import ROOT, environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM here"),
    pytest.mark.skipif(not hosts.available(), reason="network namespaces need Linux and root"),
]


STEPS = 10


def trainer(rank, server, directory, *more):
    return [
        *(sys.executable, "-m", "accelerate.commands.launch", "--quiet"),
        *("--config_file", "recipes/accelerate/multi_node.yaml", "--num_processes", "2"),
        *("--machine_rank", str(rank), "--main_process_ip", hosts.HOSTS["tm-a"], "recipes/grpo.py"),
        *("rollout.prompts_per_step=4", "rollout.group_size=4", "sampling.max_tokens=32"),
        *("evaluation.enabled=false", f"trainer.max_steps={STEPS}", "trainer.ddp_timeout=20"),
        *("checks.reward_timeout=10", "run.checkpoint_every=2", "run.report=false"),
        *("sampling.mode=server", f"sampling.url={server}", f"run.dir={directory}"),
        # the host that is cut off may be waiting for the server then, which is on the other one
        *("sampling.request_timeout=20", *more),
    ]


def wait_for(what, seconds, why):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return
        time.sleep(0.3)
    raise AssertionError(why())


@pytest.mark.timeout(900)
def test_two_hosts_train_with_a_server_stop_when_one_is_gone_and_go_on(tmp_path):
    run = tmp_path / "run"
    env = {**environment(), "GLOO_SOCKET_IFNAME": hosts.INTERFACE}
    processes = []

    def start(host, name, command):
        log = tmp_path / f"{name}.log"
        with log.open("w") as output:
            processes.append(
                subprocess.Popen(
                    hosts.on(host, *command), cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT
                )
            )
        return processes[-1], log

    def rows():
        file = run / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    with hosts.two_hosts() as address:
        server = f"http://{address['tm-a']}:8391"
        serve = ["trlmath", "serve", "nano/grpo", "--host", address["tm-a"], "--port", "8391"]
        try:
            _, log = start("tm-a", "server", [sys.executable, "-m", *serve])
            wait_for(lambda: "ready at" in log.read_text(), 400, log.read_text)
            ranks = [start(h, f"{h}-first", trainer(i, server, run)) for i, h in enumerate(address)]
            first, log = ranks[0]
            wait_for(lambda: len(rows()) >= 3 or first.poll() is not None, 250, log.read_text)
            assert first.poll() is None, log.read_text()[-3000:]
            hosts.unplug("tm-b")
            pulled = time.monotonic()
            assert first.wait(90) == 1
            assert time.monotonic() - pulled < 80  # ddp_timeout, and what launchers need to end
            assert "another process of this run is gone" in log.read_text()
            before = rows()
            assert 3 <= len(before) < STEPS

            # the host is there again, what it was doing with nobody to talk to has ended too
            assert ranks[1][0].wait(90) == 1, ranks[1][1].read_text()[-3000:]
            hosts.plug("tm-b")
            again = [start(h, f"{h}-again", trainer(i, server, run)) for i, h in enumerate(address)]
            for process, log in again:
                assert process.wait(250) == 0, log.read_text()[-3000:]
            saved = len(before) - len(before) % 2
            assert f"resume   after step {saved}" in again[0][1].read_text()
        finally:
            for host in address:
                pids = subprocess.run(["ip", "netns", "pids", host], capture_output=True)
                for pid in pids.stdout.split():
                    os.kill(int(pid), signal.SIGKILL)
            for process in processes:
                process.wait(30)
    assert all(row["engine/freshness"] < 1e-3 for row in rows() if "engine/freshness" in row)
    assert [row["step"] for row in rows()] == list(range(1, STEPS + 1)), "every step, each once"
    assert rows()[:saved] == before[:saved]
