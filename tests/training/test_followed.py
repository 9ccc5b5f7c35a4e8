"""An engine that did not take its weights is found by the sync, at any learning rate; another is not."""

from __future__ import annotations

import copy

import pytest
import torch
from servers import bridge, raises_stale
from transformers import AutoModelForCausalLM

from trlmath.sampling.models import located, read_model_files
from trlmath.sampling.transformers_engine import TransformersSampler
from trlmath.training.followed import Fingerprint


class Engine(TransformersSampler):
    """An engine with a module of its own, which leaves out the parameters that `skips` says."""

    shares_weights = False
    skips = staticmethod(lambda name: False)

    def load_weights(self, named_tensors):
        mine = dict(self.model.named_parameters())
        with torch.no_grad():
            for name, tensor in named_tensors:
                if not self.skips(name):
                    mine[name].copy_(tensor)


@pytest.fixture
def pair(request):
    """(trainer's sampler, engine, dtype of the engine); `request.param`: both dtypes."""
    files = read_model_files(located("nano"))
    trainer, engine = request.param
    model = AutoModelForCausalLM.from_pretrained(located("nano"), dtype=trainer).eval()
    other = copy.deepcopy(model).to(getattr(torch, engine))
    return TransformersSampler(model, files.tokenizer), Engine(other, files.tokenizer), engine


def step(model, rate):
    """As AdamW's first steps do: every weight moves by the learning rate."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(rate * torch.sign(torch.randn_like(parameter)))


both = pytest.mark.parametrize(
    "pair",
    [("float32", "float32"), ("float32", "bfloat16"), ("bfloat16", "bfloat16")],
    indirect=True,
    ids="-".join,
)


@both
@pytest.mark.parametrize("rate", [1e-5, 1e-6])
def test_a_load_that_never_happens_is_found_within_few_syncs(pair, rate):
    ours, engine, dtype = pair
    torch.manual_seed(0)
    made = bridge(engine, ours, dtype=dtype)
    made.sync_weights()
    engine.skips = lambda name: True
    with raises_stale():
        for syncs in range(1 if dtype == "float32" else 3):  # noqa: B007 (told if none of them finds it)
            step(ours.model, rate)
            made.sync_weights()
    assert made.difference < 0.15


@both
@pytest.mark.parametrize("rate", [0.0, 1e-9, 1e-7])
def test_an_engine_that_loads_what_hardly_changes_is_fresh(pair, rate):
    ours, engine, dtype = pair
    torch.manual_seed(0)
    made = bridge(engine, ours, dtype=dtype)
    for _ in range(4):
        made.sync_weights()
        step(ours.model, rate)


@pytest.mark.parametrize("pair", [("float32", "float32")], indirect=True)
def test_warn_says_it_and_off_does_not_look(pair, capsys):
    ours, engine, dtype = pair
    made = bridge(engine, ours, dtype=dtype)
    made.policy = "warn"
    made.sync_weights()
    engine.skips = lambda name: True
    for _ in range(3):
        step(ours.model, 1e-6)
        made.sync_weights()
    assert capsys.readouterr().err.count("to the bit, while the trainer's have moved by") == 1


def test_a_fingerprint_is_of_what_the_engine_gets():
    one, odd = torch.randn(5, 7), torch.randn(99)[2:9]

    def of(*tensors, dtype="bfloat16"):
        made = Fingerprint(dtype)
        assert len(list(made.of((str(i), t) for i, t in enumerate(tensors)))) == len(tensors)
        return made.value

    assert of(one, odd) == of(one, odd) != of(odd, one)
    assert of(one, odd) != of(one, odd + 0.1)
    nearly = one.bfloat16().float()
    assert of(nearly) == of(nearly * (1 + 1e-5))
    assert of(nearly, dtype="float32") != of(nearly * (1 + 1e-5), dtype="float32")
