"""A server of the run's own: on which devices it starts, with which key, and how weights will reach it."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from trlmath.errors import RecipeError
from trlmath.recipe import parse_recipe
from trlmath.sampling import server_process, serving
from trlmath.sampling.server_process import server_environment


def recipe(**sampling):
    return parse_recipe({"sampling": {"mode": "server", **sampling}})


def test_its_devices_and_key_are_in_its_environment_and_the_trainers_ranks_are_not(monkeypatch):
    for name in (
        "RANK",
        "WORLD_SIZE",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "VLLM_ENABLE_V1_MULTIPROCESSING",
    ):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5,GPU-7")
    told = server_environment([2, 1], "a-key-of-ours")
    assert (told["CUDA_VISIBLE_DEVICES"], told["VLLM_API_KEY"]) == ("GPU-7,5", "a-key-of-ours")
    assert not {"RANK", "WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID"} & set(told)
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in told
    assert server_environment(None, None)["CUDA_VISIBLE_DEVICES"] == "2,5,GPU-7"


@pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM here")
@pytest.mark.parametrize("transport", ["files", "nccl"])
def test_the_recipe_says_what_is_started(monkeypatch, transport, tiny_dir):
    started = {}

    class Started:
        def __init__(self, command, env, **rest):
            started.update(command=command, env=env)

    monkeypatch.setattr(server_process.subprocess, "Popen", Started)
    monkeypatch.setenv("VLLM_API_KEY", "a-key-of-ours")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    serving.start_server(recipe(devices=[1], transport=transport), str(tiny_dir), 128, "float32")
    command = started["command"]
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--max-model-len") + 1] == "128"
    assert ("--weight-transfer-config" in command) == (transport == "nccl")
    assert started["env"]["CUDA_VISIBLE_DEVICES"] == "1"
    assert "a-key-of-ours" not in " ".join(command), "ps shows it"


def test_nccl_without_a_gpu_is_told():
    class Nobody:
        connections = ()

    with pytest.raises(RecipeError, match=r"sampling\.transport: 'nccl' moves weights between GPUs"):
        serving._transport(recipe(transport="nccl"), Nobody(), "float32", torch.device("cpu"))
