"""Every engine refuses an option it has not, and vLLM's own parser reads the values of those it has."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from trlmath.errors import RecipeError
from trlmath.recipe import load_recipe, parse_recipe, shipped_recipes
from trlmath.recipe.owned import OWNED
from trlmath.sampling import choose
from trlmath.sampling.engine_options import (
    OWN_SERVER,
    RUNNING,
    VLLM,
    as_flags,
    check_engine_options,
    vllm_arguments,
)

DOCS = Path(__file__).resolve().parents[2] / "docs" / "engines.md"
with_vllm = pytest.mark.skipif(not importlib.util.find_spec("vllm"), reason="no vLLM here")

# what must be reachable: cache (prefixes, numbers, size), reading in pieces, graphs or eager, attention
REACHABLE = {
    *("enable_prefix_caching", "kv_cache_dtype", "kv_cache_memory_bytes", "gpu_memory_utilization"),
    *("enable_chunked_prefill", "enforce_eager", "cudagraph_capture_sizes", "attention_backend"),
}


def documented():
    """(engine, option, value) of each row of the table in docs/engines.md."""
    rows = re.findall(
        r"^\| (vLLM|server|transformers) \| `(.+?)` \|", DOCS.read_text(encoding="utf-8"), flags=re.M
    )
    engines = {"vLLM": VLLM, "server": OWN_SERVER, "transformers": "transformers"}
    return [
        (engines[engine], name, value)
        for engine, cell in rows
        for name, value in YAML(typ="safe").load(cell).items()
    ]


@pytest.fixture(scope="module")
def vllm():
    """vLLM's parsers, made once; importing them takes about ten seconds."""
    pytest.importorskip("vllm")
    return vllm_arguments(False), vllm_arguments(True)


@pytest.mark.slow
@pytest.mark.vllm
@with_vllm
def test_every_documented_option_is_the_engines_and_takes_its_value(vllm):
    rows = documented()
    assert {name for engine, name, _ in rows if engine == VLLM} >= REACHABLE
    for engine, name, value in rows:
        read = check_engine_options(engine, {name: value}, trains=True)
        if engine == VLLM:  # its server takes the same
            assert repr(check_engine_options(OWN_SERVER, {name: value})) == repr(read)
    values = {name: check_engine_options(engine, {name: value})[name] for engine, name, value in rows}
    assert values["enable_prefix_caching"] is False
    assert values["kv_cache_memory_bytes"] == 2 * 2**30
    assert values["cudagraph_capture_sizes"] == [1, 2, 4]
    assert values["attention_config"].backend.name == "FLASHINFER"
    assert values["compilation_config"].cudagraph_mode.name == "FULL_DECODE_ONLY"


@pytest.mark.slow
@pytest.mark.vllm
@with_vllm
def test_every_option_of_a_shipped_recipe_is_vllms(vllm):
    shipped = [load_recipe(name) for name in shipped_recipes()]
    used = [recipe.sampling for recipe in shipped if recipe.sampling.engine_options]
    assert used
    for sampling in used:
        engine = OWN_SERVER if sampling.mode == "server" else sampling.engine
        check_engine_options(engine, sampling.engine_options, trains=True)


@pytest.mark.slow
@pytest.mark.vllm
@with_vllm
@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("enable_prefix_cachin", True, "has no such option. Did you mean 'enable_prefix_caching'?"),
        ("gpu_memory_utilisation", 0.3, "Did you mean 'gpu_memory_utilization'?"),
        ("enable_prefix_caching", "maybe", "got 'maybe'; allowed: true or false"),
        ("kv_cache_dtype", "fp9", "got 'fp9'.*Did you mean 'fp8'?"),
        ("gpu_memory_utilization", "a lot", "got 'a lot'.*invalid float"),
        ("max_num_seqs", "many", "got 'many'.*invalid int"),
        ("max_num_seqs", True, "got True"),
        ("max_num_seqs", 1.5, "got 1.5"),
        ("attention_backend", "FLASH_ATN", "got 'FLASH_ATN'.*Did you mean 'FLASH_ATTN'?"),
        ("attention_config", {"backnd": "FLASH_ATTN"}, "backnd"),
        ("compilation_config", {"mod": 3}, "mod"),
        ("model", "x", "is decided by model.path"),
        ("max_model_len", 64, "is decided by the longest prompt and sampling.max_tokens"),
        ("generation_config", "auto", "is decided by `sampling`"),
        ("trust_remote_code", True, "code that comes with a model never runs"),
    ],
)
@pytest.mark.parametrize("engine", [VLLM, OWN_SERVER])
def test_a_wrong_option_is_told_with_its_key(vllm, engine, option, value, told):
    with pytest.raises(RecipeError, match=re.compile(rf"sampling.engine_options.{option}: .*{told}", re.S)):
        check_engine_options(engine, {option: value})


@pytest.mark.slow
@pytest.mark.vllm
@with_vllm
def test_what_trls_arguments_are_sent_to_exists(vllm):
    sent = {name.removeprefix("vllm_") for name, key in OWNED.items() if key == "sampling.engine_options"}
    assert {"gpu_memory_utilization"} <= sent <= set(vllm_arguments(server=True))


@pytest.mark.slow
@pytest.mark.vllm
@with_vllm
def test_one_engine_a_process(vllm):
    with pytest.raises(RecipeError, match="tensor_parallel_size: got 2; allowed: 1.*sampling.mode=server"):
        check_engine_options(VLLM, {"tensor_parallel_size": 2}, trains=True)
    assert check_engine_options(VLLM, {"tensor_parallel_size": 2}) == {"tensor_parallel_size": 2}
    assert check_engine_options(OWN_SERVER, {"tensor_parallel_size": 2, "data_parallel_size": 2}, trains=True)
    with pytest.raises(RecipeError, match="port: is decided by trlmath"):
        check_engine_options(OWN_SERVER, {"port": 8000})


@pytest.mark.parametrize(
    ("engine", "options", "told"),
    [
        ("transformers", {"max_row": 8}, "transformers has no such option. Did you mean 'max_rows'?"),
        ("transformers", {"gpu_memory_utilization": 0.3}, "has no such option. .*Its options: max_rows"),
        ("transformers", {"max_rows": "8"}, "max_rows: got '8'; allowed: a whole number, at least 1"),
        ("transformers", {"max_rows": 0}, "max_rows: got 0; allowed: a whole number, at least 1"),
        ("transformers", {"max_rows": True}, "got True"),
        (RUNNING, {"concurency": 8}, "Did you mean 'concurrency'?"),
        (RUNNING, {"model": 3}, "model: got 3; allowed: text"),
    ],
)
def test_our_own_engines(engine, options, told):
    with pytest.raises(RecipeError, match=f"sampling.engine_options.*{told}"):
        check_engine_options(engine, options)


def test_what_our_own_engines_take():
    assert check_engine_options("transformers", {"max_rows": 8}) == {"max_rows": 8}
    assert check_engine_options(RUNNING, {"model": "m", "concurrency": 3}) == {"model": "m", "concurrency": 3}


def test_flags_of_the_command_line():
    options = {"a_b": 1, "on": True, "off": False, "none": None, "sizes": [1, 2], "nested": {"x": [1]}}
    assert as_flags(options) == [
        "--a-b",
        "1",
        "--on",
        "--no-off",
        "--sizes",
        "1",
        "2",
        "--nested",
        '{"x": [1]}',
    ]
    assert as_flags({"allowed_origins": ["*"]}) == ["--allowed-origins", '["*"]']


@pytest.mark.parametrize(
    ("engine", "on_gpu", "told"),
    [
        ("transformers", True, "sampling.sleep: frees the memory of a vLLM in this process.*'transformers'"),
        ("vllm", False, "sampling.sleep: vLLM's sleep mode exists on GPUs only"),
    ],
)
def test_sleep_needs_vllm_on_a_gpu(monkeypatch, engine, on_gpu, told):
    monkeypatch.setattr("trlmath.sampling.choose.on_gpu", lambda: on_gpu)
    recipe = parse_recipe({"sampling": {"sleep": True}})
    with pytest.raises(RecipeError, match=told):
        choose.check_engine(recipe, engine)
    choose.check_engine(parse_recipe({"sampling": {"sleep": False}}), engine)
