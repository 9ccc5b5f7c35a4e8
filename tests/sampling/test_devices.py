"""Devices: a server of the run's own is never put on another's GPU, nor beside a trainer by default."""

from __future__ import annotations

import pytest
import torch

from trlmath.errors import RecipeError
from trlmath.recipe import parse_recipe
from trlmath.sampling import choose, devices
from trlmath.sampling.choose import SERVER, check_engine, engine_of
from trlmath.sampling.devices import check_server_devices, of_visible, own_device


def test_numbers_are_counted_among_the_visible():
    assert of_visible([1], None) == "1"
    assert of_visible([1], "2,3") == "3"
    assert of_visible([0, 1], "GPU-aa, GPU-bb") == "GPU-aa,GPU-bb"
    with pytest.raises(RecipeError, match=r"got \[2\], and CUDA_VISIBLE_DEVICES=2,3 leaves 2.*allowed: 0, 1"):
        of_visible([2], "2,3")
    with pytest.raises(RecipeError, match="leaves 0 to see.*allowed: none"):
        of_visible([0], "")
    with pytest.raises(RecipeError, match="leaves 1 to see"):
        of_visible([1], "4,-1,5")


@pytest.mark.parametrize(
    ("given", "count", "trainers", "options"),
    [
        (None, 0, 1, {}),  # a CPU
        ([1], 2, 1, {}),  # one trains, one serves
        ([2, 3], 4, 2, {}),
        (None, 2, 0, {}),  # nobody trains
        ([0], 1, 0, {}),
        (None, 1, 1, {"gpu_memory_utilization": 0.3}),
        ([0], 1, 1, {"kv_cache_memory_bytes": "2G"}),
    ],
)
def test_what_is_fine(given, count, trainers, options):
    check_server_devices(given, count, trainers, options)


@pytest.mark.parametrize(
    ("given", "count", "trainers", "told"),
    [
        (None, 1, 1, r"is null, and vLLM would take GPU 0, where a trainer is \(0\).*no other GPU is left"),
        (None, 4, 2, r"is null.*Allowed: 2, 3\."),
        ([1, 2], 4, 2, r"got \[1, 2\]: where a trainer is \(1\).*Allowed: 2, 3\."),
        ([4], 4, 1, r"got \[4\]; allowed: 0, 1, 2, 3, .*nearest is 3"),
        ([1, 1], 2, 1, "names a GPU twice"),
        ([1], 0, 1, "there is no GPU here"),
    ],
)
def test_what_is_not(given, count, trainers, told):
    with pytest.raises(RecipeError, match=rf"sampling\.devices: .*{told}"):
        check_server_devices(given, count, trainers, {"enforce_eager": True})


def test_it_is_asked_before_weights_are_loaded_and_only_of_who_trains(monkeypatch):
    monkeypatch.setattr(choose, "gpu_count", lambda: 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    recipe = parse_recipe({"sampling": {"mode": "server", "devices": [1]}})
    check_engine(recipe, SERVER)
    with pytest.raises(RecipeError, match="no other GPU is left"):
        check_engine(recipe, SERVER, trains=True)


def test_xpu_is_a_gpu_everywhere(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    monkeypatch.setattr(torch.xpu, "device_count", lambda: 3)
    monkeypatch.setattr(choose.importlib.util, "find_spec", lambda name: object())
    assert (own_device(), devices.gpu_count(), devices.visible_variable()) == ("xpu", 3, "ZE_AFFINITY_MASK")
    assert engine_of(parse_recipe({}), 1_000_000) == ("vllm", "there is a GPU")
