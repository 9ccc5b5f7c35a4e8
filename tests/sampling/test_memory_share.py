"""A colocated engine's share of the memory: numbers in, a share or an error with the numbers out."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trlmath.errors import EngineError
from trlmath.sampling.memory_share import (
    BLOCK,
    GIB,
    MARGIN,
    MOST,
    WORKSPACE,
    Need,
    cpu_cache,
    gpu_share,
    kv_bytes_per_token,
    weight_bytes,
)

# Qwen2.5-Math-1.5B in bfloat16: 28 layers, 2 key-value heads of 128
KV = 2 * 28 * 2 * 128 * 2
QWEN = Need(weights=weight_bytes(1_544_000_000, "bfloat16"), kv_per_token=KV, context=1280, sequences=256)


def config(**values):
    made = SimpleNamespace(num_hidden_layers=28, num_attention_heads=12, hidden_size=1536, **values)
    made.get_text_config = lambda: made
    return made


def test_bytes_of_a_token():
    assert kv_bytes_per_token(config(num_key_value_heads=2), "bfloat16") == KV
    assert kv_bytes_per_token(config(num_key_value_heads=2), "float32") == 2 * KV
    assert kv_bytes_per_token(config(num_key_value_heads=2), "bfloat16", "fp8_e4m3") == KV // 2
    assert kv_bytes_per_token(config(num_key_value_heads=2, head_dim=64), "bfloat16") == KV // 2
    assert kv_bytes_per_token(config(), "bfloat16") == 6 * KV  # every head its own keys


def test_a_large_gpu_gives_what_is_of_use_and_no_more():
    share = gpu_share(70 * GIB, 80 * GIB, QWEN)
    taken = share * 80 * GIB
    assert taken == pytest.approx(QWEN.weights + WORKSPACE + QWEN.cache, rel=1e-3)
    assert share < 0.2


def test_a_smaller_gpu_keeps_the_updates_room_free():
    need = Need(QWEN.weights, KV, 1280, 256, reserve=10 * GIB)
    share = gpu_share(18 * GIB, 24 * GIB, need)
    assert share * 24 * GIB == pytest.approx(18 * GIB - 10 * GIB - MARGIN, rel=1e-3)
    # asleep during the update, the engine may have it
    assert gpu_share(18 * GIB, 24 * GIB, QWEN) > share


def test_what_cannot_fit_is_told_with_the_numbers_and_the_knobs():
    need = Need(QWEN.weights, KV, 4096, 256, reserve=12 * GIB)
    with pytest.raises(EngineError) as caught:
        gpu_share(14 * GIB, 24 * GIB, need)
    told = str(caught.value)
    for number in ("14.00 GiB", "24.00 GiB", "weights 2.88 GiB", "4096 tokens 0.11 GiB", "12.00 GiB"):
        assert number in told
    needed = (need.weights + WORKSPACE + need.least_cache + need.reserve + MARGIN) / GIB
    assert f"{needed:.2f} GiB are needed" in told
    for knob in (
        "sampling.max_tokens",
        "microbatch_tokens",
        "sampling.sleep=true",
        "sampling.mode=server",
        "sampling.engine_options.gpu_memory_utilization",
    ):
        assert knob in told
    with pytest.raises(EngineError) as caught:
        cpu_cache(GIB, 8 * GIB, QWEN)
    assert "gpu_memory" not in str(caught.value)
    assert "sleep" not in str(caught.value)
    assert "sampling.engine_options.kv_cache_memory_bytes" in str(caught.value)


def test_a_cpu_holds_all_sequences_or_what_there_is_room_for():
    small = Need(weights=10_000_000, kv_per_token=1024, context=130, sequences=3)
    # 130 tokens take two blocks; one more is vLLM's own
    assert cpu_cache(8 * GIB, 16 * GIB, small) == (3 * 2 + 1) * BLOCK * 1024
    assert cpu_cache(5 * GIB, 16 * GIB, QWEN) == 5 * GIB - MARGIN - QWEN.weights


sizes = st.integers(0, 200 * GIB)


@given(
    total=st.integers(GIB, 200 * GIB),
    used=sizes,
    weights=sizes,
    reserve=sizes,
    kv=st.integers(1, 2**22),
    context=st.integers(1, 200_000),
    sequences=st.integers(1, 512),
)
def test_a_share_never_takes_what_is_not_free_and_always_holds_one_sequence(
    total, used, weights, reserve, kv, context, sequences
):
    free = max(0, total - used)
    need = Need(weights, kv, context, sequences, reserve)
    for decide, workspace in ((gpu_share, WORKSPACE), (cpu_cache, 0)):
        try:
            got = decide(free, total, need)
        except EngineError:
            assert free - reserve - MARGIN < weights + workspace + need.least_cache or (
                MOST * total < weights + workspace + need.least_cache + 1
            )
            continue
        taken = math.ceil(got * total) if decide is gpu_share else got + weights
        assert taken <= free - reserve - MARGIN + 1
        # a ten-thousandth of the device is lost to rounding
        assert taken >= weights + workspace + need.least_cache - total / 10_000
