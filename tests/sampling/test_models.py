"""Model directories: what is read before weights, adapters, the fingerprint of weights."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny import save_tiny_model

from trlmath.errors import RecipeError
from trlmath.recipe import parse_recipe
from trlmath.sampling.choose import choose_engine
from trlmath.sampling.models import (
    count_parameters,
    eos_token_ids,
    load_policy,
    load_whole,
    read_model_files,
    weights_fingerprint,
)


@pytest.fixture(scope="module")
def adapter(tiny_dir, tmp_path_factory):
    """(folder of a LoRA adapter on the tiny model, the merged model)."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("adapter")
    config = LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False, task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(tiny_dir, dtype="float32"), config)
    model.save_pretrained(folder)
    return folder, model.merge_and_unload()


def test_small_files(tiny_dir):
    files = read_model_files(str(tiny_dir))
    assert (files.base, files.context) == (None, 256)
    assert files.tokenizer.padding_side == "left"


def test_parameters_are_counted_without_a_model(tiny):
    assert count_parameters(tiny[0].config) == tiny[0].num_parameters()


def test_an_adapter_is_read_with_its_base(adapter, tiny_dir):
    folder, merged = adapter
    files = read_model_files(str(folder))
    assert files.base == str(tiny_dir)
    loaded = load_whole(parse_recipe({}), files)
    for name, tensor in merged.state_dict().items():
        assert tensor.equal(loaded.state_dict()[name]), name


def test_vllm_gets_a_merged_directory(adapter):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trlmath.sampling.build import _whole_directory

    folder, merged = adapter
    with ExitStack() as held:
        whole = _whole_directory(parse_recipe({}), read_model_files(str(folder)), held)
        saved = AutoModelForCausalLM.from_pretrained(whole, dtype="float32").state_dict()
        assert all(tensor.equal(saved[name]) for name, tensor in merged.state_dict().items())
        assert AutoTokenizer.from_pretrained(whole)("1 + 1")["input_ids"]
    assert not Path(whole).exists()


@pytest.mark.parametrize(("text", "wanted"), [("{}", "names no base model"), ("{", "not valid JSON")])
def test_a_broken_adapter(tmp_path, text, wanted):
    (tmp_path / "adapter_config.json").write_text(text)
    with pytest.raises(RecipeError, match=wanted):
        read_model_files(str(tmp_path))


def test_every_token_that_ends_a_completion(tiny):
    model, tokenizer = tiny
    assert eos_token_ids(model, tokenizer) == [tokenizer.eos_token_id]
    other = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=[9, tokenizer.eos_token_id]))
    assert eos_token_ids(other, tokenizer) == [tokenizer.eos_token_id, 9]


def test_the_fingerprint_follows_the_weights(tiny, tmp_path):
    import copy

    import torch

    model = copy.deepcopy(tiny[0])
    model.save_pretrained(tmp_path / "a")
    model.save_pretrained(tmp_path / "b")
    assert weights_fingerprint(str(tmp_path / "a")) == weights_fingerprint(str(tmp_path / "b"))
    with torch.no_grad():
        model.model.norm.weight.add_(1e-3)
    model.save_pretrained(tmp_path / "b")
    assert weights_fingerprint(str(tmp_path / "a")) != weights_fingerprint(str(tmp_path / "b"))
    assert weights_fingerprint("owner/name") != weights_fingerprint("owner/other")
    assert json.dumps(weights_fingerprint("owner/name"))


@pytest.mark.parametrize(
    ("asked", "parameters", "gpu", "installed", "expected"),
    [
        ("auto", 10**6, False, True, "transformers"),
        ("auto", 10**9, False, True, "vllm"),
        ("auto", 10**6, True, True, "vllm"),
        ("auto", 10**9, True, False, "transformers"),
        ("transformers", 10**9, True, True, "transformers"),
    ],
)
def test_the_engine_by_machine_and_size(asked, parameters, gpu, installed, expected):
    assert choose_engine(asked, parameters, gpu, installed)[0] == expected


def test_many_completions_pay_for_the_start_of_vllm():
    told = [choose_engine("auto", 10**6, False, True, completions) for completions in (None, 100, 20_000)]
    assert [engine for engine, _ in told] == ["transformers", "transformers", "vllm"]
    assert "a step takes as long with either engine" in told[0][1]
    assert "100 completions are too few" in told[1][1]
    assert choose_engine("auto", 10**6, False, False, 20_000)[0] == "transformers"


def test_a_folder_without_tokenizer_and_weights_cut_short(tmp_path):
    folder = save_tiny_model(tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(RecipeError, match="weights of .* cannot be loaded"):
        load_policy(parse_recipe({}), str(folder))
    for file in folder.glob("token*"):
        file.unlink()
    with pytest.raises(RecipeError, match="has no usable tokenizer"):
        read_model_files(str(folder))


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("model.safetensors", b"", "damaged or cut off"),
        ("model.safetensors", b"\0" * 100, "damaged or cut off"),
        ("pytorch_model.bin", b"junk", "damaged or cut off"),
        ("readme.txt", b"", "holds the whole model"),
    ],
)
def test_what_to_do_about_weights_fits_the_cause(tmp_path, name, content, wanted):
    folder = save_tiny_model(tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(content)
    with pytest.raises(RecipeError, match=wanted) as caught:
        load_policy(parse_recipe({}), str(folder))
    assert "flash" not in str(caught.value)


def test_an_attention_that_is_not_installed(tiny_dir):
    with pytest.raises(RecipeError, match="sdpa works everywhere"):
        load_policy(parse_recipe({"model": {"attention": "flash_attention_2"}}), str(tiny_dir))
