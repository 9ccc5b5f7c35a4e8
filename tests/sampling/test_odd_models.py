"""Models as they are: tied or not, more embedding rows than tokens, no pad token; and engines that lie.

Through the server: tests/integration/test_server.py and test_serve.py.
"""

from __future__ import annotations

import pytest
import torch
from servers import bridge, changed, raises_stale
from tiny import ODD, save_tiny_model

from trlmath.errors import EngineError
from trlmath.sampling import SamplingSettings
from trlmath.sampling.models import read_model_files
from trlmath.sampling.transformers_engine import TransformersSampler

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MODELS = {"tied, padded, no pad token": ODD, "untied": {"tie_word_embeddings": False}}


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def folder(request, tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("odd"), **request.param)


@pytest.fixture(scope="module")
def plain(folder):
    """transformers' own model, without an engine of ours."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval()


@pytest.fixture(scope="module")
def tokenizer(folder):
    return read_model_files(str(folder)).tokenizer


def drawn_as_told(engine, plain, tokenizer):
    """What `engine` draws has the log-probabilities that it tells and scores, and decodes to its text."""
    prompts = [tokenizer(text=t)["input_ids"] for t in ("2 + 2 =", "Solve x: 3x = 12, please.")]
    groups = engine.generate(prompts, SamplingSettings(max_tokens=40, seed=0), n=6)
    highest = 0
    for prompt, group in zip(prompts, groups, strict=True):
        for rollout in group.rollouts:
            ids = list(rollout.token_ids)
            with torch.no_grad():
                logits = plain(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
            expected = logits.log_softmax(-1)[range(len(ids)), ids]
            for told in (rollout.logprobs, engine.score([prompt], [ids])[0]):
                torch.testing.assert_close(torch.tensor(told), expected, atol=1e-4, rtol=0)
            text = tokenizer.decode(ids, skip_special_tokens=True)
            assert rollout.text.rstrip("\ufffd") == text.rstrip("\ufffd")
            highest = max(highest, *ids)
    # a row of the embedding without a token is drawn like any other
    assert (highest >= len(tokenizer)) == (plain.config.vocab_size > len(tokenizer))


def test_transformers_draws_as_told(plain, tokenizer):
    drawn_as_told(TransformersSampler(plain, tokenizer), plain, tokenizer)


@pytest.fixture(scope="module")
def vllm(folder):
    pytest.importorskip("vllm")
    from trlmath.sampling.vllm_engine import VllmSampler

    sampler = VllmSampler(str(folder), dtype="float32", context=256, max_seqs=16)
    yield sampler
    sampler.close()


@pytest.mark.vllm
def test_vllm_draws_as_told_and_takes_every_weight(vllm, folder, plain, tokenizer, monkeypatch):
    drawn_as_told(vllm, plain, tokenizer)
    policy = changed(folder)
    made = bridge(vllm, policy)
    made.sync_weights()
    assert made.difference < 1e-5
    drawn_as_told(vllm, policy.model, tokenizer)
    last = "embed_tokens" if plain.config.tie_word_embeddings else "lm_head"
    for missing in ("mlp", last):
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.mul_(1.3)
        with pytest.raises(EngineError, match="only a part of the trainer's weights"):
            bridge(vllm, policy, skip=(missing,)).sync_weights()
    made.sync_weights()
    # an engine that says that it has loaded them
    monkeypatch.setattr(vllm, "load_weights", lambda tensors: sum(1 for _ in tensors))
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.mul_(2.0)
    with raises_stale():
        made.sync_weights()


@pytest.mark.vllm
def test_packed_copies_in_vllm_are_found(vllm, folder):
    """What vLLM's float32 CPU layers would do on their own: go on multiplying with weights of before."""
    worker = vllm.llm.llm_engine.model_executor.driver_worker
    layers = [m for m in worker.model_runner.model.modules() if hasattr(m, "cpu_linear")]
    assert layers
    for layer in layers:
        old = layer.weight.detach().clone()
        layer.cpu_linear = lambda x, weight, bias, _old=old: torch.nn.functional.linear(x, _old, bias)
    with raises_stale():
        bridge(vllm, changed(folder, seed=7)).sync_weights()
