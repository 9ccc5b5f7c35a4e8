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


def trainer(rank, server, directory, *more):
    return [
        *(sys.executable, "-m", "accelerate.commands.launch", "--quiet", "--multi_gpu"),
        *("--num_machines", "2", "--num_processes", "2", "--machine_rank", str(rank)),
        *("--main_process_ip", hosts.HOSTS["tm-a"], "--main_process_port", "29611"),
        *("--mixed_precision", "no", "--dynamo_backend", "no", "recipes/grpo.py"),
        *("rollout.prompts_per_step=4", "rollout.group_size=4", "sampling.max_tokens=32"),
        *("evaluation.enabled=false", "trainer.max_steps=500", "trainer.ddp_timeout=20"),
        *("sampling.mode=server", f"sampling.url={server}", f"run.dir={directory}", *more),
    ]


def wait_for(what, seconds, why):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return
        time.sleep(0.3)
    raise AssertionError(why())


@pytest.mark.timeout(600)
def test_two_hosts_train_with_a_server_and_stop_when_one_is_gone(tmp_path):
    run = tmp_path / "run"
    log = {name: tmp_path / f"{name}.log" for name in ("server", "tm-a", "tm-b")}
    env = {**environment(), "GLOO_SOCKET_IFNAME": hosts.INTERFACE}

    def start(host, name, command):
        output = log[name].open("w")
        return subprocess.Popen(
            hosts.on(host, *command), cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT
        )

    def rows():
        file = run / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    with hosts.two_hosts() as address:
        server = f"http://{address['tm-a']}:8391"
        serve = [
            sys.executable,
            "-m",
            "trlmath",
            "serve",
            "nano/grpo",
            "--host",
            address["tm-a"],
            "--port",
            "8391",
        ]
        processes = [start("tm-a", "server", serve)]
        try:
            wait_for(lambda: "ready at" in log["server"].read_text(), 250, log["server"].read_text)
            ranks = [start(h, h, trainer(i, server, run)) for i, h in enumerate(address)]
            processes += ranks
            wait_for(lambda: len(rows()) >= 2 or ranks[0].poll() is not None, 250, log["tm-a"].read_text)
            assert ranks[0].poll() is None, log["tm-a"].read_text()[-3000:]
            hosts.unplug("tm-b")
            pulled = time.monotonic()
            assert ranks[0].wait(90) == 1
            assert time.monotonic() - pulled < 80  # ddp_timeout, and what launchers need to end
            assert "another process of this run is gone" in log["tm-a"].read_text()
        finally:
            for host in address:
                pids = subprocess.run(
                    hosts.on(host, "true")[:1] + ["netns", "pids", host], capture_output=True
                )
                for pid in pids.stdout.split():
                    os.kill(int(pid), signal.SIGKILL)
            for process in processes:
                process.wait(30)
    assert all(row["engine/freshness"] < 1e-3 for row in rows() if "engine/freshness" in row)
    assert [row["step"] for row in rows()] == list(range(1, len(rows()) + 1)), "nothing written was lost"
