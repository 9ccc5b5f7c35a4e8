"""The pre-training documents, the tokenizer and the exactness of the shared preamble."""

import itertools
import os
import random
import unicodedata
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trlmath.data.nano.corpus import (
    ENDINGS,
    HABITS,
    PREAMBLE,
    documents,
    draw_item,
    other_form,
)
from trlmath.data.nano.measure import judge, value
from trlmath.data.nano.task import split_of

SHARED = Path(os.environ.get("TRLMATH_SHARED", Path(__file__).parents[3] / "shared"))


def test_preamble_is_the_r1_zero_prompt():
    prompt = SHARED / "prompts" / "r1_zero.prompt"
    if not prompt.exists():
        pytest.skip("no shared prompts beside the checkout")
    assert prompt.read_text() == PREAMBLE + " {question}\nAssistant: <think>"


def test_no_held_out_problem_is_drawn():
    rng = random.Random(0)
    assert {split_of(draw_item(rng).key) for _ in range(2000)} == {"train"}


def test_documents_are_a_function_of_the_seed():
    assert list(itertools.islice(documents(1), 20)) == list(itertools.islice(documents(1), 20))
    assert list(itertools.islice(documents(1), 20)) != list(itertools.islice(documents(2), 20))
    assert list(itertools.islice(documents(1), 20)) != list(itertools.islice(documents(1, stage=1), 20))


def test_only_the_right_ending_is_in_format():
    for habits in HABITS:
        assert sum(habits.order) == sum(habits.question) == 100
        assert len(habits.order) == len(habits.question) == len(ENDINGS)
    for name, ending in ENDINGS.items():
        in_format, right = judge(ending.format(t="1+1=2", a="2"), "2")
        assert in_format == (name == "right")
        assert right


@pytest.mark.parametrize("answer", ["3/4", "-7/3", "2.5", "-0.75", "12"])
def test_other_forms_are_equal(answer):
    forms = {other_form(answer, random.Random(seed)) for seed in range(20)}
    assert all(value(form) == Fraction(answer) for form in forms)
    assert answer == "12" or answer not in forms


@pytest.fixture(scope="module")
def tokenizer():
    from trlmath.data.nano.tokenizer import train_tokenizer

    return train_tokenizer(0, count=2000)


@settings(deadline=None, max_examples=200)
@given(text=st.text(max_size=80))
def test_any_text_round_trips(tokenizer, text):
    """Exactly for NFC text; Qwen2's tokenizer normalises the rest to it."""
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == unicodedata.normalize("NFC", text)


def test_batch_loss_equals_the_loss_of_whole_documents(tokenizer):
    torch = pytest.importorskip("torch")
    from trlmath.data.nano.pretrain import batch_loss, batches, new_model

    model = new_model(tokenizer, 0)
    preamble, pad = tokenizer(PREAMBLE)["input_ids"], tokenizer.pad_token_id
    rows = next(rows for under, rows in batches(tokenizer, documents(0)) if under)[:6]
    shared = batch_loss(model, preamble, rows, pad)
    shared.backward()
    gradient = model.model.layers[0].self_attn.k_proj.weight.grad.clone()
    model.zero_grad()
    spelled_out = batch_loss(
        model, None, [(preamble + ids, len(preamble) + start) for ids, start in rows], pad
    )
    spelled_out.backward()
    assert shared.item() == pytest.approx(spelled_out.item(), abs=1e-5)
    assert torch.allclose(gradient, model.model.layers[0].self_attn.k_proj.weight.grad, atol=1e-5)


def test_pretrain_writes_a_model_that_loads(tmp_path):
    pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from trlmath.data.nano.pretrain import pretrain

    figures = pretrain(tmp_path / "a", seed=1, stages=((3, 1.0), (2, 0.5)), log_every=1)
    assert figures["steps"] == 5
    assert len((tmp_path / "a" / "pretrain.jsonl").read_text().splitlines()) == 5
    pretrain(tmp_path / "b", seed=1, stages=((3, 1.0), (2, 0.5)))
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    assert 1e6 < model.num_parameters() < 2e6
    assert AutoTokenizer.from_pretrained(tmp_path / "a")("12")["input_ids"].__len__() == 2
